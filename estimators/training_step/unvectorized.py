"""Seconds that kernels lose which load the elements of tensors one by one.

Elementwise kernels of PyTorch load several elements at once where all operands are contiguous and
of one type. A kernel that reads halves of rows, repeats a vector, turns dimensions or changes the
type loads one at a time, and so did `torch.cat` in 16 bits before release 2.8 (pytorch/pytorch
aten/src/ATen/native/cuda/CUDALoops.cuh gpu_kernel_impl; pull requests 71710, 137053, 150233). Too
little is in flight then to fill the memory's bandwidth: an element takes a multiprocessor the same
time (`unvectorized_seconds`), unless its bytes take memory longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.training_step.products import stream_seconds

GATE_BYTES = 5.0
"""Memory traffic of such a kernel of a gate, an element: SiLU of a half 4, product with the other
one 6; backward 6 and 6, and both gradients joined 4 each."""

COPY_BYTES = 4.0
"""The same of a copy in 16 bits."""

LOSS_BYTES = 7.2
"""The same of the loss, on average: casts from and to 16 bits 6 each; difference to the maximum,
quotient by the sum and product with the loss's gradient, which repeat a number in each row, 8."""

NORM_FORWARD = (6.0, 8.0, 4.0)
"""The same of a norm written out in 32 bits (`elementwise.RMS_FORWARD`): cast to 32 bits, product
with the inverse root, and with the weight."""

NORM_BACKWARD = (4.0, 6.0, 8.0, 4.0)
"""Backward: product with the weight, cast to 32 bits, product with the root, gradient of the
mean."""

ROTARY = (6.0,)
"""The same of rotary embedding written out in 32 bits, either way: cast to 32 bits."""


def lost_seconds(elements: Any, width: Any, values: Values) -> Any:
    """Return by how much longer a number of elements takes than memory does.

    Parameters
    ----------
    elements
        All that these kernels handle.
    width
        Bytes that they read and write of each.
    """
    once = values["unvectorized_seconds"] / values["num_sms"] - stream_seconds(width, values)
    return elements * np.maximum(once, 0.0)


def lost_in(kernels: Iterable[float], elements: Any, values: Values) -> Any:
    """Return the same of several kernels, each over as many elements, by their widths."""
    return sum(lost_seconds(elements, width, values) for width in kernels)
