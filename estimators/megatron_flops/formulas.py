"""Equations 2 to 4 of arXiv 2104.04473 (Narayanan et al. 2021), section 5.1.

Values are given by column name: scalars or arrays, broadcast against one another. A missing number
is NaN, and so are results that depend on it. The vocabulary is an exception: where it is unknown,
its terms are left out. All arithmetic is in float64 from the first factor: equation 3 exceeds
64-bit integers from 310 billion parameters on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.transformer import number

Given = Mapping[str, Any]


def parameters(given: Given) -> Any:
    """Return P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), equation 2.

    It counts learned positions and biases. The output layer shares the embedding's weights. The
    last norm (2 h) is left out.
    """
    layers, hidden = number(given, "num_layers"), number(given, "hidden_size")
    embedded = _vocabulary(given) + number(given, "seq_len")
    return 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + embedded / (12 * layers * hidden))


def step_flops(given: Given, recomputes: Any) -> Any:
    """Return the FLOPs of a step on all GPUs, equation 3.

    F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) with full recomputation: 24 of the 96 are the
    forward pass, 48 the backward pass and 24 the second forward pass (the paper's appendix).
    Without recomputation the layers have 72. The logits, 6 B s h V, are the same in both cases.

    Parameters
    ----------
    recomputes
        Whether all activations are computed again.
    """
    layers, hidden = number(given, "num_layers"), number(given, "hidden_size")
    length = number(given, "seq_len")
    tokens = number(given, "global_batch_size") * length
    passes = np.where(recomputes, 96.0, 72.0)
    layer_width = passes * layers * (hidden + length / 6)
    return tokens * hidden * (layer_width + 6 * _vocabulary(given))


def num_steps(given: Given) -> Any:
    """Return the steps of a run over `dataset_tokens`, rounded up."""
    tokens = number(given, "global_batch_size") * number(given, "seq_len")
    return np.ceil(number(given, "dataset_tokens") / tokens)


def approximate_training_seconds(given: Given, recomputes: Any) -> Any:
    """Return 8 T P / (n X), equation 4: the time of a run over T tokens.

    It takes s / (6 h) + V / (16 l h) in equation 3 for equal to 13 / (12 h) + (V + s) / (12 l h) in
    equation 2. The 8 is 96 / 12; without recomputation it is 72 / 12 = 6.
    """
    factor = np.where(recomputes, 8.0, 6.0)
    rate = number(given, "num_gpus") * number(given, "achieved_flops_per_second_per_gpu")
    return factor * number(given, "dataset_tokens") * parameters(given) / rate


def figures(given: Given, recomputes: Any) -> dict[str, Any]:
    """Return every measure of a run by column name; FLOPs, seconds, shares of the peak rate."""
    step = step_flops(given, recomputes)
    model = step_flops(given, recomputes=False)
    gpus = number(given, "num_gpus")
    seconds = step / (gpus * number(given, "achieved_flops_per_second_per_gpu"))
    peak = gpus * number(given, "matrix_flops_per_second") * seconds
    steps = num_steps(given)
    approximate = approximate_training_seconds(given, recomputes)
    tokens = number(given, "global_batch_size") * number(given, "seq_len")
    return {
        "parameters": parameters(given),
        "step_flops": step,
        "model_flops": model,
        "step_seconds": seconds,
        "mfu": model / peak,
        "hfu": step / peak,
        "tokens_per_second_per_gpu": tokens / (seconds * gpus),
        "num_steps": steps,
        "total_flops": steps * step,
        "training_seconds": steps * seconds,
        "approximate_training_seconds": approximate,
        "approximation_error": approximate / (steps * seconds) - 1,
    }


def _vocabulary(given: Given) -> Any:
    return np.nan_to_num(number(given, "vocab_size"))
