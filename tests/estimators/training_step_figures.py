"""Cases of training steps of which each part is known by hand: FLOPs, seconds and volumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.estimators.training_step_cases import (
    FREE,
    GPT,
    LLAMA,
    MOE,
)

SMALL = {**GPT, "vocab_size": 512}
"""The vocabulary's matrices have 512 x 512 = 262,144 weights."""

FORWARD = 24 * 1024 * 512**2 / 1e12
"""Products of a layer of GPT, forward: 24 T h^2 FLOPs (arXiv 2104.04473 appendix)."""

CORE = 4 * 1024 * 1024 * 512 / 1e12 * (1 + 1 / 8) / 2
"""Scores and values of a layer, forward: 4 b s^2 h (the same), of 8 x 8 blocks of 128 the 36 on and
below the diagonal: (1 + 1/8)/2 of 64."""

LAYER = 3 * FORWARD + 3.5 * CORE
"""Backward: twice the products, two and a half times the core (arXiv 2307.08691 section 4.1)."""

OUTPUT = 3 * 2 * 1024 * 512 * 512 / 1e12
"""The output layer, forward and both gradients: 6 T h V."""

HIDDEN = 2 * 1024 * 512
"""Bytes of a microbatch's hidden states in 16 bits."""


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-25)


FAST = {"matrix_flops_per_second": FREE}
"""No arithmetic to hide behind."""

MIXTURE = {**MOE, "vocab_size": 512}

REPLICAS = {
    **LLAMA,
    "vocab_size": 512,
    "data_parallel": 4,
    "nvlink_size": 1,
    "network_bytes_per_second": 1e8,
    "reduced_gradient_bytes": 4.0,
    "gathered_weight_bytes": 2.0,
}
