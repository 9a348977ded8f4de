"""Memory traffic and kernels of parts that few models have.

Norms of queries and keys, rotary positions of YaRN, biases of experts, and clamps of gates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.training_step.formats import RECIPES

BIAS_BYTES = (12.0, 16.0)
"""Memory traffic of the bias behind an expert, an element of its result in 16 bits.

Forward the bias times the probability is written 2, added 6, experts joined 4; backward the
gradient times the probability 4 and its sum 2, times the bias 4 and its sum 2, parts joined 4
(NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/experts.py `_apply_bias`)."""

WIDE_BIAS_BYTES = (28.0, 40.0)
"""The same with a probability in 32 bits, in which the products are too.

Forward the bias times the probability is written 4, added 10, experts joined 8, and cast to 16 bits
6; backward the gradient is cast 6, cast back for the experts 6 and joined 4, multiplied by the
probability 8 and summed 4, and multiplied by the bias 8 and summed 4. Dispatcher `flex` sends
probabilities in 32 bits (megatron/core/transformer/moe/token_dispatcher.py); others send those of
the router, which are in 16 bits as its input where nothing is said, as in GPT-OSS
(megatron/core/transformer/moe/router.py `router_dtype`; NVIDIA-NeMo/Megatron-Bridge @067f987d
src/megatron/bridge/models/gpt_oss/gpt_oss_bridge.py)."""

CLAMP_BYTES = (16.0, 30.0)
"""Memory traffic of clamping both halves of a gated layer, an element of its width in 16 bits.

Forward clamped 8, joined 8. Backward the gate, which has an upper bound, is compared 3 and selected
5; the other half, which has two, is compared twice 6, both joined 3, and selected 5; the halves are
joined 8 (NVIDIA/Megatron-LM @0d8e0714, @b0cc2706, @d7288711, @d0b3b775 and @cd4afff, those of
Megatron-Bridge 0.2 to 0.6, megatron/core/fusions/fused_bias_geglu.py
`weighted_bias_quick_geglu_impl`; pytorch/pytorch @002ca671 torch/csrc/autograd/FunctionsManual.cpp
`clamp_backward`)."""

CLAMP_LAUNCHES = (4.0, 9.0)
"""Operations of them: forward two clamps, one that joins, and a copy of the gate's offset to the
GPU; backward three of the gate, five of the other half, with a zero each, and one that joins."""

YARN_BYTES = (24.0, 28.0)
"""Memory traffic of a query or key that YaRN turns, an element in 16 bits.

The fused kernel has no factor of sines and cosines, which YaRN has, so PyTorch turns queries and
keys. Forward: times the cosine 4, one half negated 2, halves joined 4, times the sine 4, sum 6,
joined with the part that is not turned, which is empty, 4. Backward: times the cosine 4 and the
sine 4, one half negated 2, halves joined 4, sum 6, zeros for the empty part 2 and their sum 6
(NVIDIA/Megatron-LM @0d8e0714, @b0cc2706, @d7288711, @d0b3b775 and @cd4afff, those of
Megatron-Bridge 0.2 to 0.6, megatron/core/models/common/embeddings/rope_utils.py
`apply_rotary_pos_emb`, `_apply_rotary_pos_emb_bshd`; yarn_rotary_pos_embedding.py
`_yarn_get_concentration_factor`: 1.35 for GPT-OSS). Latent queries and keys have a kernel of their
own, which has the factor."""

YARN_LAUNCHES = (22.0, 12.0)
"""Operations that queries and keys then have beyond one fused kernel each: forward 12, with 6 for
sine and cosine, their products and casts; backward 7."""

OPERATION = 1 / 6
"""Cost to the host of an operation of PyTorch alone over that of a layer's other launches.

Those are behind modules and autograd functions in Python. 7.5e-6 s, +-2.5e-6, of 45e-6 (table
`step_constant`, `host_seconds_per_launch` of fsdp and of megatron_core)."""

BIAS_LAUNCHES = (2.0, 4.0)
"""Operations of the bias for each expert, forward and backward."""

QK_NORM_LAUNCHES = (2.0, 4.0)
"""Kernels of the norms of queries and of keys: backward the gradients of the input and of the
weights."""


def traffic(size: Any, values: Values, norms: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return the bytes that these parts move, forward and backward, and those of experts forward.

    Parameters
    ----------
    norms
        Bytes that a norm moves for an element, forward and backward.
    """
    forward: Any = 0.0
    backward: Any = 0.0
    experts: Any = 0.0
    if np.any(values["uses_qk_norm"]):
        normed = np.where(values["uses_qk_norm"], size.tokens * (size.query + size.key), 0.0)
        forward, backward = norms[0] * normed, norms[1] * normed
    sparse = values["sparse_share"]
    if np.any(sparse) and np.any(are_separate(values)):
        routed = np.where(are_separate(values), sparse * size.experts * size.expert_tokens, 0.0)
        biased = np.where(values["uses_linear_bias"], routed * size.hidden, 0.0)
        clamped = np.where(values["uses_gate_clamp"], routed * size.expert_ffn, 0.0)
        is_wide = np.equal(values["dispatcher"], "flex")
        bias = [np.where(is_wide, *both) for both in zip(WIDE_BIAS_BYTES, BIAS_BYTES, strict=True)]
        experts = bias[0] * biased + CLAMP_BYTES[0] * clamped
        forward = forward + experts
        backward = backward + bias[1] * biased + CLAMP_BYTES[1] * clamped
    return forward, backward, experts


def rotary_bytes(fused: tuple[Any, Any], values: Values) -> tuple[Any, Any]:
    """Return the bytes of turning an element, forward and backward; `fused` is without YaRN."""
    is_slow = values["uses_yarn"] & values["fuses_elementwise"]
    if not np.any(is_slow):
        return fused
    forward, backward = (np.where(is_slow, *both) for both in zip(YARN_BYTES, fused, strict=True))
    return forward, backward


def clamp_bytes(width: Any, values: Values) -> Any:
    """Return the bytes that clamps move forward of rows of experts times their `width`."""
    return np.where(values["uses_gate_clamp"] & are_separate(values), CLAMP_BYTES[0], 0.0) * width


def are_separate(values: Values) -> Any:
    """Return whether biases of experts and clamps of gates are kernels of their own.

    In recipe mxfp8 Transformer Engine fuses them with the experts' products
    (NVIDIA-NeMo/Megatron-Bridge @067f987d src/megatron/bridge/perf_recipes/gpt_oss/common.py,
    `use_transformer_engine_op_fuser`; Megatron-LM @d98e8a64 experts.py, `scale_bias`).
    """
    has_any = values["uses_linear_bias"] | values["uses_gate_clamp"]
    return has_any & np.not_equal(values["recipe"], RECIPES.index("mxfp8"))


def launches(way: int, size: Any, values: Values) -> tuple[Any, Any]:
    """Return the launches of these parts outside the experts, and in them.

    `way` is 0 forward, 1 backward.
    """
    outside: Any = np.where(values["uses_qk_norm"], QK_NORM_LAUNCHES[way], 0.0)
    turns = values["uses_yarn"] & values["fuses_elementwise"]
    if np.any(turns):
        slow = turns & np.equal(size.key_latent, 0)
        outside = outside + np.where(slow, OPERATION * YARN_LAUNCHES[way], 0.0)
    separate = are_separate(values)
    if not np.any(values["sparse_share"]) or not np.any(separate):
        return outside, 0.0
    biases = np.where(separate & values["uses_linear_bias"], BIAS_LAUNCHES[way], 0.0)
    clamps = np.where(separate & values["uses_gate_clamp"], CLAMP_LAUNCHES[way], 0.0)
    return outside, OPERATION * values["sparse_share"] * (size.experts * biases + clamps)
