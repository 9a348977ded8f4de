"""Additional seconds of kernels that load the elements of tensors one by one.

Elementwise kernels of PyTorch load several elements at once if all operands are contiguous and of
one type. A kernel that reads halves of rows, repeats a vector, swaps dimensions or changes the type
loads one at a time; so did `torch.cat` in 16 bits before release 2.8 (pytorch/pytorch
aten/src/ATen/native/cuda/CUDALoops.cuh gpu_kernel_impl; pull requests 71710, 137053, 150233). Such
kernels have too few bytes in flight to fill the memory's bandwidth. An element takes a
multiprocessor `unvectorized_seconds`, or longer if memory is slower:
``elements x max(unvectorized_seconds / num_sms - bytes of one / memory rate, 0)`` is the loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.training_step.products import stream_seconds

GATE_BYTES = 5.0
"""Mean bytes of an element in such kernels of a gate: SiLU of a half 4, product with the other half
6; backward 6 and 6, and both gradients joined 4 each."""

COPY_BYTES = 4.0
"""Bytes of an element in a copy in 16 bits."""

LOSS_BYTES = 7.2
"""Mean bytes of an element in such kernels of the loss: casts from and to 16 bits 6 each; and 8
each for difference to the maximum, quotient by the sum and product with the loss's gradient, which
repeat a number in each row."""

NORM_FORWARD = (6.0, 8.0, 4.0)
"""Bytes of an element in such kernels of a norm written out in 32 bits (`elementwise.RMS_FORWARD`):
cast to 32 bits, product with the inverse root, product with the weight."""

NORM_BACKWARD = (4.0, 6.0, 8.0, 4.0)
"""Bytes of an element in its backward pass: product with the weight, cast to 32 bits, product with
the root, gradient of the mean."""

ROTARY = (6.0,)
"""Bytes of an element in rotary embedding written out in 32 bits, either pass: cast to 32 bits."""


def lost_seconds(elements: Any, width: Any, values: Values) -> Any:
    """Return the seconds by which these kernels take longer than memory does.

    Parameters
    ----------
    elements
        Number of elements that they load.
    width
        Bytes that they read and write for each.
    """
    once = values["unvectorized_seconds"] / values["num_sms"] - stream_seconds(width, values)
    return elements * np.maximum(once, 0.0)


def lost_in(kernels: Iterable[float], elements: Any, values: Values) -> Any:
    """Return these seconds for several kernels, each over all elements, from their widths."""
    return sum(lost_seconds(elements, width, values) for width in kernels)
