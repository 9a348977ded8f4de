"""Memory traffic and kernels of parts that few models have.

Norms of queries and keys, rotary positions of YaRN, biases of experts, and clamps of gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step.formats import are_fused
from estimators.training_step.unvectorized import lost_seconds


class Bytes(NamedTuple):
    """Bytes of memory traffic of PyTorch's operations on one element in one pass.

    Attributes
    ----------
    streamed
        Bytes of kernels that load several elements at once.
    single
        Bytes of kernels that load elements one by one (module `unvectorized`).
    elements
        Elements that the latter kernels load.
    """

    streamed: float
    single: float
    elements: float


BIAS = (Bytes(10.0, 2.0, 1.0), Bytes(8.0, 8.0, 2.0))
"""Bias behind an expert: traffic of an element of its result in 16 bits, forward and backward.

Forward: bias times probability written 2 (single), added 6, experts joined 4. Backward: gradient
times probability 4 (single), its sum 2, gradient times bias 4 (single), its sum 2, parts joined 4
(NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/experts.py `_apply_bias`)."""

WIDE_BIAS = (Bytes(14.0, 14.0, 2.0), Bytes(18.0, 22.0, 3.0))
"""The same bias with probabilities, and so products, in 32 bits.

Forward: bias times probability written 4 (single), added 10 (single), experts joined 8, cast to 16
bits 6. Backward: gradient cast 6 (single), cast back for the experts 6 and joined 4, times
probability 8 (single) and summed 4, times bias 8 (single) and summed 4. Dispatcher `flex` sends
probabilities in 32 bits (megatron/core/transformer/moe/token_dispatcher.py). Others send those of
the router, by default in 16 bits like its input, so in GPT-OSS
(megatron/core/transformer/moe/router.py `router_dtype`; NVIDIA-NeMo/Megatron-Bridge @067f987d
src/megatron/bridge/models/gpt_oss/gpt_oss_bridge.py)."""

CLAMP = (Bytes(8.0, 8.0, 2.0), Bytes(11.0, 19.0, 5.0))
"""Clamps of both halves of a gated layer: traffic of an element of its width in 16 bits.

Forward: both halves clamped 8 (single), joined 8. Backward: the gate has one bound, compared 3 and
selected 5 (single); the other half has two, compared twice 6 (single), both joined 3, selected 5
(single); halves joined 8 (NVIDIA/Megatron-LM
@0d8e0714, @b0cc2706, @d7288711, @d0b3b775 and @cd4afff, those of Megatron-Bridge 0.2 to 0.6,
megatron/core/fusions/fused_bias_geglu.py
`weighted_bias_quick_geglu_impl`; pytorch/pytorch @002ca671 torch/csrc/autograd/FunctionsManual.cpp
`clamp_backward`)."""

CLAMP_LAUNCHES = (4.0, 9.0)
"""Launches of the clamps: forward two clamps, a join, and a copy of the gate's offset to the GPU;
backward three for the gate and five for the other half, a zero each included, and a join."""

YARN = (Bytes(14.0, 10.0, 2.5), Bytes(18.0, 10.0, 2.5))
"""Rotary positions of YaRN: traffic of an element of a query or key in 16 bits.

YaRN scales sines and cosines, which the fused kernel cannot, so PyTorch turns queries and keys.
Sines and cosines are repeated for each head, and half a head is negated. Forward: times the cosine
4 (single), one half negated 2 (single), halves joined 4, times the sine 4 (single), sum 6, joined
with an empty part that is not turned 4. Backward: times the cosine 4 and the sine 4 (single), one
half negated 2 (single), halves joined 4, sum 6, zeros for the empty part 2 and their sum 6
(NVIDIA/Megatron-LM @0d8e0714, @b0cc2706, @d7288711, @d0b3b775 and @cd4afff, those of
Megatron-Bridge 0.2 to 0.6, megatron/core/models/common/embeddings/rope_utils.py
`apply_rotary_pos_emb`, `_apply_rotary_pos_emb_bshd`; yarn_rotary_pos_embedding.py
`_yarn_get_concentration_factor`: 1.35 for GPT-OSS). The fused kernel of latent queries and keys
has the factor."""

YARN_LAUNCHES = (22.0, 12.0)
"""Launches of YaRN beyond one fused kernel for queries and one for keys. Each of the two takes 12
forward, 6 of them for sine and cosine, their products and casts, and 7 backward."""

OPERATION = 1 / 6
"""Host's cost of a plain operation of PyTorch over that of a layer's other launches.

The others go through modules and autograd functions in Python. It is 7.5e-6 s, +-2.5e-6, of 45e-6
(table `step_constant`, `host_seconds_per_launch` of fsdp and of megatron_core)."""

BIAS_LAUNCHES = (2.0, 4.0)
"""Operations of the bias for each expert, forward and backward."""

QK_NORM_LAUNCHES = (2.0, 4.0)
"""Kernels of the norms of queries and of keys: two forward; backward a gradient of the input and
one of the weights for each."""


class Work(NamedTuple):
    """Work in memory of the small parts of a layer in one pass.

    Attributes
    ----------
    moved
        Bytes read and written.
    lost_seconds
        Seconds by which kernels that load elements one by one take longer than memory does.
    """

    moved: Any = 0.0
    lost_seconds: Any = 0.0


def work(size: Any, values: Values, norms: tuple[Any, ...]) -> tuple[Work, Work, Work]:
    """Return the work of these parts forward, backward, and inside experts forward.

    Parameters
    ----------
    norms
        Bytes that a norm moves for an element, forward and backward.
    """
    both: list[Work] = []
    experts = Work()
    separate = are_separate(values)
    has_separate = np.any(values["sparse_share"]) and np.any(separate)
    for way in (0, 1):
        found = Work()
        if np.any(values["uses_qk_norm"]):
            heads = np.where(values["uses_qk_norm"], size.tokens * (size.query + size.key), 0.0)
            found = Work(norms[way] * heads)
        if np.any(turns_slowly(values)):
            heads = np.where(turns_slowly(values) & np.equal(size.key_latent, 0), 1.0, 0.0)
            heads = heads * size.tokens * (size.query + size.key)
            found = _sum(found, _of(YARN[way], heads, values))
        if has_separate:
            sparse = values["sparse_share"]
            routed = np.where(separate, sparse * size.experts * size.expert_tokens, 0.0)
            own = _experts(way, routed * size.hidden, routed * size.expert_ffn, values)
            experts, found = (own if way == 0 else experts), _sum(found, own)
        both.append(found)
    return both[0], both[1], experts


def _experts(way: int, results: Any, width: Any, values: Values) -> Work:
    """Return the work of experts' biases and clamps in one pass."""
    biased = np.where(values["uses_linear_bias"], results, 0.0)
    is_wide = np.equal(values["dispatcher"], "flex")
    bias = [
        np.where(is_wide, wide, narrow)
        for wide, narrow in zip(WIDE_BIAS[way], BIAS[way], strict=True)
    ]
    clamped = np.where(values["uses_gate_clamp"], width, 0.0)
    return _sum(_of(bias, biased, values), _of(CLAMP[way], clamped, values))


def _of(of_element: Sequence[Any], elements: Any, values: Values) -> Work:
    """Return the work of a number of elements, from the `Bytes` of one."""
    streamed, single, passes = of_element
    lost = lost_seconds(passes * elements, single / passes, values)
    return Work((streamed + single) * elements, lost)


def _sum(one: Work, other: Work) -> Work:
    return Work(one.moved + other.moved, one.lost_seconds + other.lost_seconds)


def turns_slowly(values: Values) -> Any:
    """Return whether kernels of PyTorch turn queries and keys, not a fused one."""
    return values["uses_yarn"] & values["fuses_elementwise"]


def clamp_work(width: Any, values: Values) -> Work:
    """Return the work of clamps forward; `width` is the rows of experts times their width."""
    clamped = np.where(values["uses_gate_clamp"] & are_separate(values), width, 0.0)
    return _of(CLAMP[0], clamped, values)


def are_separate(values: Values) -> Any:
    """Return whether biases of experts or clamps of gates run as separate kernels."""
    has_any = values["uses_linear_bias"] | values["uses_gate_clamp"]
    return has_any & ~are_fused(values)


def launches(way: int, size: Any, values: Values) -> tuple[Any, Any]:
    """Return the launches of these parts outside the experts, and in them.

    `way` is 0 forward, 1 backward.
    """
    outside: Any = np.where(values["uses_qk_norm"], QK_NORM_LAUNCHES[way], 0.0)
    turns = turns_slowly(values)
    if np.any(turns):
        slow = turns & np.equal(size.key_latent, 0)
        outside = outside + np.where(slow, OPERATION * YARN_LAUNCHES[way], 0.0)
    separate = are_separate(values)
    if not np.any(values["sparse_share"]) or not np.any(separate):
        return outside, 0.0
    biases = np.where(separate & values["uses_linear_bias"], BIAS_LAUNCHES[way], 0.0)
    clamps = np.where(separate & values["uses_gate_clamp"], CLAMP_LAUNCHES[way], 0.0)
    return outside, OPERATION * values["sparse_share"] * (size.experts * biases + clamps)
