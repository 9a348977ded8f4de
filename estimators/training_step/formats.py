"""Bytes of operands in 8 and 4 bits: memory traffic of their casts, and what is kept and sent.

Their figures by recipe are those of table `recipe.csv`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.kernels.attention import IN_8_BITS
from estimators.structure import equals

if TYPE_CHECKING:
    from estimators.training_step.problem import Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real


class Casts(NamedTuple):
    """Bytes of memory traffic of a layer's casts for one microbatch, and their kernels.

    `experts` is the part of `forward` inside routed experts.
    """

    forward: Real
    backward: Real
    forward_kernels: Real
    backward_kernels: Real
    experts: Real


def low_share(problem: Problem) -> Real:
    """Return the share of the layers whose products run in 8 or 4 bits."""
    in_16_bits = problem.formats.num_bf16_layers_start + problem.formats.num_bf16_layers_end
    share: Real = np.maximum(1.0 - in_16_bits / problem.shape.num_layers, 0.0)
    return share


def are_fused(problem: Problem) -> Flag:
    """Return whether one kernel does the products of all of a rank's experts.

    If graphs hold whole steps, the host does not know how many rows an expert has. Recipes of
    Megatron-Bridge then use grouped products that read the numbers on the GPU. They add biases,
    apply the activation and its gradient with the probabilities, and write the operands of the next
    product in 8 or 4 bits (NVIDIA-NeMo/Megatron-Bridge @067f987d
    src/megatron/bridge/perf_recipes/qwen,
    deepseek and gpt_oss common.py, `use_transformer_engine_op_fuser`; NVIDIA/TransformerEngine
    @d0067d0d transformer_engine/pytorch/ops/fused/grouped_mlp.py `GroupedMLP_CuTeGEMMGLU`).
    """
    return problem.host.captures_whole_steps & (problem.formats.low_format > 0)


def casts(size: Size, problem: Problem) -> Casts:
    """Return the memory traffic of the casts of a layer, in addition to its traffic in 16 bits.

    A kernel reads 16 bits, and reads them before once more if it needs the largest value. It writes
    a copy by rows and, where that differs, one by columns. Transformer Engine's norm before a
    product casts its result if scales are those of the past, and finds the largest value if they
    are those of the present. Megatron-Core's kernels for activations write 16 bits. Weights are
    cast once a step (`weight_cast_bytes`).

    Under sequence parallelism inputs and gradients are cast before they are gathered. The
    transposed copy is made of the gathered tensor: read and written once.

    The result of attention is kept in 16 bits, and cast again in the backward pass unless scales
    are those of the past.

    Parameters
    ----------
    problem
        Of a kind of layers: `sparse_share` is 0 or 1.

    Notes
    -----
    Sources: NVIDIA/TransformerEngine @d0067d0d transformer_engine/pytorch/csrc/extensions
    (normalization.cpp, activation.cpp), csrc/quantizer.cpp,
    common/normalization/rmsnorm/rmsnorm_api.cpp (`Compute FP8 transpose if required`),
    docs/features/low_precision_training/performance_considerations; NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/mlp.py (`bias_swiglu_impl`), attention.py (`set_save_original_input`).
    """
    cast, part = _cast_of(size, problem), _elements(size, problem)
    share = np.where(problem.formats.low_format > 0, low_share(problem), 0.0)
    kernels = np.where(problem.recipe.amax_bytes > 0, 2.0, 1.0) * np.where(share > 0, 1.0, 0.0)
    forward_kernels = kernels * (2.0 + problem.shape.sparse_share + part.shared)
    # attention in 8 bits casts queries, keys and values, and the gradient of its result
    core = np.where(equals(problem.kernels.attention_program, IN_8_BITS), cast.whole, 0.0)
    return Casts(
        share * (_forward_bytes(size, cast, part) + core * part.heads),
        share * (_backward_bytes(size, cast, part) + core * part.core),
        forward_kernels + np.where(cast.is_delayed | (share == 0), 0.0, part.norms),
        kernels * np.where(cast.is_delayed, 4.0, 5.0),
        share * cast.whole * (part.behind + part.routed * size.hidden),
    )


def output_cast_bytes(tokens: Real, hidden: Real, logits: Real, problem: Problem) -> Real:
    """Return the memory traffic of the casts of an output layer in 8 or 4 bits, for a microbatch.

    Its input and the gradients of the logits are cast. The weight is cast once a step, which is
    little and left out. The traffic is 0 where the output layer stays in 16 bits.
    """
    is_low = problem.formats.quantizes_output_layer & (problem.formats.low_format > 0)
    if not np.any(is_low):
        return 0.0
    both = problem.recipe.makes_both_copies | problem.system.transposes_operands
    copies = problem.recipe.copy_bytes * np.where(both, 2.0, 1.0)
    element = problem.recipe.amax_bytes + 2.0 + copies
    return np.where(is_low, element * (tokens * hidden + logits), 0.0)


class _Cast(NamedTuple):
    """Memory traffic of casting one element, in bytes.

    Attributes
    ----------
    is_delayed
        Whether scales are those of the past.
    rows, whole
        Cast to a copy by rows alone, and to both copies where they differ.
    shard, later
        Cast before the element is gathered under sequence parallelism, and its transposed copy
        afterwards.
    norm
        Cast of a norm's result, in addition to the norm's traffic in 16 bits.
    """

    is_delayed: Flag
    rows: Real
    whole: Real
    shard: Real
    later: Real
    norm: Real


def _cast_of(size: Size, problem: Problem) -> _Cast:
    """Return the traffic of casting one element by the recipe of `values`."""
    is_delayed = problem.recipe.has_past_scales
    copy, amax = (
        problem.recipe.copy_bytes,
        problem.recipe.amax_bytes,
    )
    both = problem.recipe.makes_both_copies
    turns = ~both & problem.system.transposes_operands
    gathers = size.rows < size.tokens
    rows = amax + 2.0 + copy
    whole = rows + np.where(both | turns, copy, 0.0)
    # if rows are gathered afterwards, the transposed copy is made later
    shard = np.where(turns & gathers, rows, whole)
    later = np.where(turns & gathers, 2.0 * copy, 0.0)
    norm = shard - np.where(problem.recipe.norm_finds_amax, amax, 0.0)
    # 8 bits in place of 16; a separate kernel makes the transposed copy
    written = copy - 2.0 + np.where(turns & ~gathers, 2.0 * copy, 0.0)
    return _Cast(is_delayed, rows, whole, shard, later, np.where(is_delayed, written, norm))


class _Elements(NamedTuple):
    """Elements of a microbatch that are cast, and the number of norms and products that cast them.

    Attributes
    ----------
    between, gathered
        Elements of the residual stream on a rank, and on its tensor-parallel group.
    routed
        Tokens of the routed experts of a rank.
    inside, behind
        Elements between the two products of feed-forward layers; those of routed experts alone.
    core, heads, latents
        Elements of the result of attention; of queries, keys and values; of latents.
    is_latent, shared
        1 where attention has latents, and where a mixture has shared experts.
    norms, halves
        Norms before a product in few bits, and products whose input they are.
    """

    between: Real
    gathered: Real
    routed: Real
    inside: Real
    behind: Real
    core: Real
    heads: Real
    latents: Real
    is_latent: Real
    shared: Real
    norms: Real
    halves: Real


def _elements(size: Size, problem: Problem) -> _Elements:
    """Return the elements of an average layer."""
    sparse = problem.shape.sparse_share
    routed = sparse * size.experts * size.expert_tokens
    shared = sparse * np.where(size.shared_ffn > 0, 1.0, 0.0)
    inside = (1 - sparse) * size.tokens * size.ffn + sparse * size.tokens * size.shared_ffn
    behind = np.where(are_fused(problem), 0.0, routed * size.expert_ffn)
    is_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    return _Elements(
        between=size.rows * size.hidden,
        gathered=size.tokens * size.hidden,
        routed=routed,
        inside=inside + behind,
        behind=behind,
        core=size.tokens * size.result,
        heads=size.tokens * (size.query + size.key + size.value),
        latents=size.rows * (size.query_latent + size.key_latent),
        is_latent=is_latent,
        shared=shared,
        norms=2.0 - sparse - is_latent,
        halves=1.0 + (1 - sparse) + shared,
    )


def _forward_bytes(size: Size, cast: _Cast, part: _Elements) -> Real:
    """Return the bytes to cast inputs; the two products that make latents cast one copy each."""
    norms = cast.norm * part.norms * part.between
    forward = norms + cast.shard * (part.shared + 2.0 * part.is_latent) * part.between
    core = np.where(cast.is_delayed, cast.whole, cast.rows) * part.core
    forward = forward + cast.norm * part.latents + core
    return forward + cast.whole * (part.inside + part.routed * size.hidden)


def _backward_bytes(size: Size, cast: _Cast, part: _Elements) -> Real:
    """Return the bytes to cast gradients, and inputs that are gathered once more."""
    backward = (
        cast.shard * part.halves * part.between + cast.later * 2 * part.halves * part.gathered
    )
    backward = backward + np.where(cast.is_delayed, 0.0, cast.rows) * part.core
    latents = part.latents + size.rows * part.is_latent * size.rotary
    backward = backward + cast.whole * latents
    heads = part.heads + size.gates * part.inside + part.routed * size.hidden
    return backward + cast.whole * heads


def input_bytes(problem: Problem) -> Real:
    """Return the bytes kept of an element of a matmul's input, of an average layer.

    A tensor-parallel group gathers as many: inputs and gradients are cast before. Sums are
    scattered in 16 bits.
    """
    return _of_layers(problem.recipe.kept_bytes, 2.0, problem)


def core_bytes(problem: Problem) -> Real:
    """Return the bytes kept of an element of the result of attention, of an average layer."""
    return _of_layers(problem.recipe.core_bytes, 2.0, problem)


def weight_copies(problem: Problem, *, is_sharded: bool) -> Real:
    """Return the bytes of the copies of a product's weight in 8 or 4 bits, for one parameter.

    Parameters
    ----------
    is_sharded
        Whether weights are gathered for each layer: transposed copies are not kept then.
    """
    both = problem.recipe.makes_both_copies
    if not is_sharded:
        both = both | problem.system.transposes_operands
    return problem.recipe.weight_copy_bytes * np.where(both, 2.0, 1.0)


def stored_weight_bytes(problem: Problem, base: Real, *, is_sharded: bool) -> Real:
    """Return the bytes kept of a weight of a product, of an average layer.

    With `keeps_quantized_weights` the copies in 8 or 4 bits are the parameter. Else a parameter in
    16 bits is kept as well; programs without weights in 16 bits cast gathered weights.

    Parameters
    ----------
    base
        Bytes of the weight in 16 bits.
    """
    if not np.any(problem.formats.low_format):
        return base
    copies = weight_copies(problem, is_sharded=is_sharded)
    keeps = problem.formats.keeps_quantized_weights
    stored = np.where(keeps, copies, np.where(np.greater(base, 0), base + copies, base))
    return _of_layers(stored, base, problem)


def gathered_weight_bytes(problem: Problem) -> Real:
    """Return the bytes gathered over replicas of a weight of a product, of an average layer."""
    base = problem.sharding.gathered_weight_bytes
    if not np.any(problem.formats.low_format):
        return base
    keeps = problem.formats.keeps_quantized_weights
    return _of_layers(np.where(keeps, problem.recipe.gathered_bytes, base), base, problem)


def weight_cast_bytes(problem: Problem) -> Real:
    """Return the bytes of memory traffic of a step to cast a weight of a product, on average.

    Copies are made once a step for all microbatches. If the optimizer writes weights in 8 or 4
    bits, only the copy by columns is made of the gathered weight; MXFP8 makes both from 16 bits.
    """
    copy = problem.recipe.weight_copy_bytes
    both = problem.recipe.makes_both_copies | problem.system.transposes_operands
    made = 2.0 + copy * np.where(both, 2.0, 1.0)
    from_gathered = np.where(
        problem.recipe.gathers_16_bits,
        made,
        np.where(both, 2.0 * copy, 0.0),
    )
    keeps = problem.formats.keeps_quantized_weights
    moved = np.where(keeps, from_gathered, problem.recipe.amax_bytes + made)
    return _of_layers(moved, 0.0, problem)


def _of_layers(low: Real, high: Real, problem: Problem) -> Real:
    """Return a figure of the average layer, from those of a layer in 8 or 4 bits and in 16."""
    if not np.any(problem.formats.low_format):
        return high
    share = np.where(problem.formats.low_format > 0, low_share(problem), 0.0)
    return share * low + (1.0 - share) * high
