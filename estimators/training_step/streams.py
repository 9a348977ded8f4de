"""Seconds of the memory traffic of a layer between its matmuls.

Bytes are counted for each element of 16 bits: 2 to read, 2 to write, 1 for a dropout mask.

- With `fuses_elementwise` each group that Megatron-LM fuses is one kernel: bias and GeLU; bias,
  dropout and residual; a norm; rotary embedding.
- Without it eager PyTorch runs each operation as a kernel. The matmul adds the bias. PyTorch's
  layer norm reads its inputs twice backward. A gated model writes its norm (RMS) out in 32 bits
  (pytorch/torchtitan @82f7387f torchtitan/models/norms.py RMSNorm).

The gate of a gated layer and copies of queries, keys and values are constants of each program.
Transformer Engine casts to 8 and 4 bits (module `formats`).

Elementwise kernels of PyTorch load several elements at once if all operands are contiguous and of
one type. A kernel that reads halves of rows, repeats a vector, swaps dimensions or changes the type
loads one at a time; so did `torch.cat` in 16 bits before release 2.8 (pytorch/pytorch
aten/src/ATen/native/cuda/CUDALoops.cuh gpu_kernel_impl; pull requests 71710, 137053, 150233). Such
kernels have too few bytes in flight to fill the memory's bandwidth. An element takes a
multiprocessor `unvectorized_seconds`, or longer if memory is slower:
``elements x max(unvectorized_seconds / num_sms - bytes of one / memory rate, 0)`` is the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import equals
from estimators.training_step.dispatch import moved_bytes
from estimators.training_step.formats import are_fused, casts
from estimators.training_step.gemm import stream_seconds

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Layout, Problem, Program, System
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real

RMS_FORWARD = (6, 8, 4, 8, 6, 4)
"""Bytes an element of a norm written out, kernel by kernel: cast to 32 bits, square, mean, product
with the inverse root, cast to 16 bits, product with the weight."""

RMS_BACKWARD = (4, 8, 6, 8, 16, 4, 28, 12, 6)
"""Bytes an element of its backward pass: gradient of the product with the weight 4, of the weight
8; cast to 32 bits 6; gradient of the product with the root 8, of the root 16, of the mean 4, of the
square 28 (a power of one, two products); sum of both 12; cast to 16 bits 6."""

JOINED_BYTES = 4.0
"""Bytes an element to join the gradients of queries, keys and values to that of their product;
`torch.cat` loads several elements at once since PyTorch 2.8 (NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/utils.py SplitAlongDim)."""

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
"""Bytes of an element in such kernels of a norm written out in 32 bits (`RMS_FORWARD`):
cast to 32 bits, product with the inverse root, product with the weight."""

NORM_BACKWARD = (4.0, 6.0, 8.0, 4.0)
"""Bytes of an element in its backward pass: product with the weight, cast to 32 bits, product with
the root, gradient of the mean."""

ROTARY = (6.0,)
"""Bytes of an element in rotary embedding written out in 32 bits, either pass: cast to 32 bits."""


class Bytes(NamedTuple):
    """Bytes of memory traffic of PyTorch's operations on one element in one pass.

    Attributes
    ----------
    streamed
        Bytes of kernels that load several elements at once.
    single
        Bytes of kernels that load elements one by one.
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

RESIDUAL = 6.0
"""Bytes an element to add to the residual stream: two read, one written."""


class Streams(NamedTuple):
    """Bytes or seconds of the forward and of the backward pass.

    `experts` is the part of `forward` that puts tokens in order and works between routed experts.
    """

    forward: Real
    backward: Real
    experts: Real = 0.0


class Work(NamedTuple):
    """Work in memory of some kernels in one pass.

    Attributes
    ----------
    moved
        Bytes read and written.
    lost_seconds
        Seconds by which kernels that load elements one by one take longer than memory does.
    """

    moved: Real = 0.0
    lost_seconds: Real = 0.0


class _Elements(NamedTuple):
    """Elements of a microbatch that kernels of a layer pass, on one GPU.

    Attributes
    ----------
    between
        Of the residual stream.
    inside, routed
        Of the feed-forward layers' widths, and the part of them in routed experts.
    heads, turned
        Of queries, keys and values; of those that a fused or eager kernel gives rotary positions.
    grouped
        Tokens whose queries are copied.
    """

    between: Real
    inside: Real
    routed: Real
    heads: Real
    turned: Real
    grouped: Real


def layer_seconds(size: Size, problem: Problem, layout: Layout) -> Streams:
    """Return the seconds of a layer's memory-bound work besides the core of attention."""
    system, mixed = problem.system, problem.shape.sparse_share
    elements, rare = _elements(size, problem), rare_work(size, problem)
    traffic = _traffic(size, elements, rare, problem)
    in_experts: Real = 0.0
    if np.any(mixed):
        # copies of tokens go to their experts and come back, weighted
        tokens = mixed * moved_bytes(size, problem, layout)
        traffic.append(Streams(tokens, tokens))
        activation = elements.routed * gate_bytes(problem).forward
        in_experts = tokens + activation + rare.experts.moved
    kernels = np.where(problem.program.fuses_elementwise, 7.0, 22.0)
    kernels = kernels + np.where(mixed > 0, 8.0, 0.0)
    backward_kernels = 1.5 * kernels
    if np.any(problem.formats.low_format):
        cast = casts(size, problem)
        traffic.append(Streams(cast.forward, cast.backward))
        kernels = kernels + cast.forward_kernels
        backward_kernels = backward_kernels + cast.backward_kernels
        in_experts = in_experts + cast.experts
    moved = Streams(*(reduce(np.add, volumes) for volumes in zip(*traffic, strict=True)))
    lost = _lost_seconds(size, elements, problem)
    of_queries = lost_seconds(elements.grouped * size.query, COPY_BYTES, system)
    experts = stream_seconds(in_experts, system) + rare.experts.lost_seconds
    return Streams(
        stream_seconds(moved.forward, system, kernels)
        + (lost.forward + of_queries + rare.forward.lost_seconds),
        stream_seconds(moved.backward, system, backward_kernels)
        + lost.backward
        + rare.backward.lost_seconds,
        experts if np.any(mixed) else 0.0,
    )


def _elements(size: Size, problem: Problem) -> _Elements:
    """Return the elements of an average layer."""
    sparse = problem.shape.sparse_share
    routed = sparse * size.experts * size.expert_tokens * size.expert_ffn
    routed = np.where(are_fused(problem), 0.0, routed)
    inside = (1 - sparse) * size.tokens * size.ffn + sparse * size.tokens * size.shared_ffn + routed
    turned = np.where(_turns_heads(size, problem.shape), size.tokens * (size.query + size.key), 0.0)
    return _Elements(
        size.rows * size.hidden,
        inside,
        routed,
        size.tokens * (size.query + size.key + size.value),
        np.where(turns_slowly(problem), 0.0, turned),
        np.where(_copies_queries(size, problem.program), size.tokens, 0.0),
    )


def _traffic(size: Size, elements: _Elements, rare: RareWork, problem: Problem) -> list[Streams]:
    """Return the bytes of a layer's kernels that do not depend on experts, in order."""
    shape, program = problem.shape, problem.program
    norms, gate = norm_bytes(problem), gate_bytes(problem)
    fuses = program.fuses_elementwise
    dropped = np.where(program.uses_dropout, 1.0, 0.0)
    masks = Streams(np.where(fuses, 1.0, 5.0), 5.0)
    biases = np.where(shape.uses_linear_bias, 2.0, 0.0)
    rotary = np.where(fuses, 4.0, 20.0)
    # each pass gathers the sequence before two matmuls and scatters it after two
    copied = np.where(size.rows < size.tokens, 4.0, 0.0) * size.tokens * size.hidden
    copies = copied * program.exchange_copy_bytes
    heads = elements.heads
    stream = 2 * elements.between
    return [
        # the residual stream forks before a norm: its two gradients are added up
        Streams(
            stream * (norms.forward + RESIDUAL + dropped * masks.forward),
            stream * (norms.backward + RESIDUAL + dropped * masks.backward + biases),
        ),
        Streams(elements.inside * gate.forward, elements.inside * gate.backward),
        Streams(elements.turned * rotary, elements.turned * rotary),
        latent_bytes(size, fuses),
        Streams(rare.forward.moved, rare.backward.moved),
        Streams(heads * program.forward_copy_bytes, heads * program.backward_copy_bytes),
        Streams(
            elements.grouped * size.query * COPY_BYTES,
            elements.grouped * (size.query + size.key + size.value) * JOINED_BYTES,
        ),
        Streams(copies, copies),
    ]


def norm_bytes(problem: Problem) -> Streams:
    """Return the bytes that a norm moves for an element."""
    fuses, gated = problem.program.fuses_elementwise, problem.shape.uses_glu
    forward = np.where(gated, sum(RMS_FORWARD), 4.0)
    backward = np.where(gated, sum(RMS_BACKWARD), 10.0)
    return Streams(np.where(fuses, 4.0, forward), np.where(fuses, 6.0, backward))


def gate_bytes(problem: Problem) -> Streams:
    """Return the bytes that an activation moves for an element of a layer's width."""
    gated, program = problem.shape.uses_glu, problem.program
    return Streams(
        np.where(gated, program.gate_forward_bytes, 4.0),
        np.where(gated, program.gate_backward_bytes, 8.0),
    )


def latent_bytes(size: Size, fuses: Flag) -> Streams:
    """Return the bytes that norms and rotary embedding of latents move.

    A fused norm reads 2 and writes 2 bytes an element; backward it reads 4 and writes 2. One kernel
    turns the rotary part of the queries in place. Another reads the matmul's result and the rotary
    part of the keys, and writes keys and values (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/fusions/fused_mla_yarn_rope_apply.py). Separate operations split, turn and join:
    20 bytes an element of the rotary part, as of other heads, and 4 an element of queries, keys and
    values.
    """
    if not np.any(size.key_latent):
        return Streams(0.0, 0.0)
    latents = size.rows * (size.query_latent + size.key_latent)
    turned = size.heads * size.rotary
    made = size.key - turned + size.value
    fused = 4.0 * turned + 2.0 * (made + size.rotary + size.key + size.value)
    separate = 20.0 * (turned + size.rotary) + 4.0 * (size.query + size.key + size.value)
    heads = size.tokens * np.where(fuses, fused, separate)
    has_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    return Streams(has_latent * (4.0 * latents + heads), has_latent * (6.0 * latents + heads))


def _turns_heads(size: Size, shape: Shape) -> Flag:
    """Return whether queries and keys have rotary positions, without latents.

    Gated models have rotary positions, and so have models in which groups of queries share a key:
    Nemotron-4 (arXiv 2402.16819 section 2), StarCoder2 (arXiv 2402.19173). A model with one key for
    all queries may have learned positions (StarCoder, arXiv 2305.06161).
    """
    heads = shape.num_kv_heads
    grouped = np.greater(heads, 1) & np.less(heads, shape.num_heads)
    return (shape.uses_glu | grouped) & np.equal(size.key_latent, 0)


def _copies_queries(size: Size, program: Program) -> Flag:
    """Return whether queries are copied because several share a key.

    The merged matmul makes queries, keys and values group by group. Queries are a view of it only
    if each has its own key (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/attention.py get_query_key_value_tensors, lines 1888 to 1918).
    """
    shares = np.less(size.key, size.query) & np.equal(size.key_latent, 0)
    return shares & program.copies_grouped_queries


# ---- kernels that load elements one by one ----


def lost_seconds(elements: Real, width: Real, system: System) -> Real:
    """Return the seconds by which these kernels take longer than memory does.

    Parameters
    ----------
    elements
        Number of elements that they load.
    width
        Bytes that they read and write for each.
    """
    longer = system.unvectorized_seconds / system.num_sms - stream_seconds(width, system)
    lost: Real = elements * np.maximum(longer, 0.0)
    return lost


def _lost_seconds(size: Size, elements: _Elements, problem: Problem) -> Streams:
    """Return the seconds lost in gates, copies, and norms and rotary embedding written out."""
    program, gated = problem.program, problem.shape.uses_glu
    inside = np.where(gated, elements.inside, 0.0)
    written_out = gated & ~program.fuses_elementwise
    gates = program.unvectorized_gate_forward, program.unvectorized_gate_backward
    copies = program.unvectorized_copy_forward, program.unvectorized_copy_backward

    def lost_in(widths: Iterable[float], elements: Real) -> Real:
        return reduce(np.add, (lost_seconds(elements, width, problem.system) for width in widths))

    passes = []
    for gate, copy, norm in zip(gates, copies, (NORM_FORWARD, NORM_BACKWARD), strict=True):
        lost: Real = 0.0
        if np.any(gate) or np.any(copy):
            lost = lost_seconds(gate * inside, GATE_BYTES, problem.system)
            lost = lost + lost_seconds(copy * elements.heads, COPY_BYTES, problem.system)
        if np.any(written_out):
            norms = lost_in(norm, 2 * size.rows * size.hidden)
            lost = lost + np.where(written_out, norms + lost_in(ROTARY, elements.turned), 0.0)
        passes.append(lost)
    return Streams(*passes)


# ---- parts that few models have ----


class RareWork(NamedTuple):
    """Work of norms of queries and keys, YaRN, biases of experts, and clamps of gates.

    `experts` is the part of `forward` inside experts.
    """

    forward: Work
    backward: Work
    experts: Work


def rare_work(size: Size, problem: Problem) -> RareWork:
    """Return the work of the parts that few models have."""
    forward, backward = (_of_heads(in_pass, size, problem) for in_pass in (0, 1))
    if not (np.any(problem.shape.sparse_share) and np.any(are_separate(problem))):
        return RareWork(forward, backward, Work())
    experts, backward_experts = (_of_experts(in_pass, size, problem) for in_pass in (0, 1))
    return RareWork(_sum(forward, experts), _sum(backward, backward_experts), experts)


def _of_heads(in_pass: int, size: Size, problem: Problem) -> Work:
    """Return the work of norms of queries and keys, and of YaRN; `in_pass` 0 is forward."""
    work, heads = Work(), size.tokens * (size.query + size.key)
    if np.any(problem.shape.uses_qk_norm):
        normed = np.where(problem.shape.uses_qk_norm, heads, 0.0)
        work = Work(norm_bytes(problem)[in_pass] * normed)
    slow = turns_slowly(problem)
    if np.any(slow):
        turned = np.where(slow & np.equal(size.key_latent, 0), heads, 0.0)
        work = _sum(work, _of(YARN[in_pass], turned, problem.system))
    return work


def _of_experts(in_pass: int, size: Size, problem: Problem) -> Work:
    """Return the work of experts' biases and clamps; `in_pass` 0 is forward."""
    shape, system = problem.shape, problem.system
    routed = shape.sparse_share * size.experts * size.expert_tokens
    routed = np.where(are_separate(problem), routed, 0.0)
    biased = np.where(shape.uses_linear_bias, routed * size.hidden, 0.0)
    clamped = np.where(shape.uses_gate_clamp, routed * size.expert_ffn, 0.0)
    is_wide = equals(problem.experts.dispatcher, "flex")
    bias = [
        np.where(is_wide, wide, narrow)
        for wide, narrow in zip(WIDE_BIAS[in_pass], BIAS[in_pass], strict=True)
    ]
    return _sum(_of(bias, biased, system), _of(CLAMP[in_pass], clamped, system))


def _of(of_element: Sequence[Real], elements: Real, system: System) -> Work:
    """Return the work of a number of elements, from the `Bytes` of one."""
    streamed, single, loads = of_element
    lost = lost_seconds(loads * elements, single / loads, system)
    return Work((streamed + single) * elements, lost)


def _sum(work: Work, other: Work) -> Work:
    return Work(work.moved + other.moved, work.lost_seconds + other.lost_seconds)


def turns_slowly(problem: Problem) -> Flag:
    """Return whether kernels of PyTorch turn queries and keys, not a fused one."""
    return problem.shape.uses_yarn & problem.program.fuses_elementwise


def clamp_work(width: Real, problem: Problem) -> Work:
    """Return the work of clamps forward; `width` is the rows of experts times their width."""
    clamped = np.where(problem.shape.uses_gate_clamp & are_separate(problem), width, 0.0)
    return _of(CLAMP[0], clamped, problem.system)


def are_separate(problem: Problem) -> Flag:
    """Return whether biases of experts or clamps of gates run as separate kernels."""
    has_any = problem.shape.uses_linear_bias | problem.shape.uses_gate_clamp
    return has_any & ~are_fused(problem)
