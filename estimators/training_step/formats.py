"""Bytes of operands in 8 and 4 bits: memory traffic of their casts, and what is kept and sent.

Their figures by recipe are those of table `recipe.csv`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from estimators.training_step.problem import Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real


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


class CastKernels(NamedTuple):
    """Kernels of a layer that cast, forward and backward."""

    forward: Real
    backward: Real


def cast_share(problem: Problem) -> Real:
    """Return the share of the layers whose operands are cast."""
    return np.where(problem.formats.low_format > 0, low_share(problem), 0.0)


def cast_kernels(size: Size, problem: Problem) -> CastKernels:
    """Return the number of kernels that cast operands of a layer's matmuls.

    A kernel more finds the largest values. Norms write what scales of the past need.
    """
    sparse, recipe = problem.shape.sparse_share, problem.recipe
    shared = sparse * np.where(size.shared_ffn > 0, 1.0, 0.0)
    norms = 2.0 - sparse - np.where(size.key_latent > 0, 1.0, 0.0)
    has_any = cast_share(problem) > 0
    kernels = np.where(recipe.amax_bytes > 0, 2.0, 1.0) * np.where(has_any, 1.0, 0.0)
    of_norms = np.where(has_any & ~recipe.has_past_scales, norms, 0.0)
    return CastKernels(
        kernels * (2.0 + sparse + shared) + of_norms,
        kernels * np.where(recipe.has_past_scales, 4.0, 5.0),
    )


def cast_bytes(size: Size, problem: Problem) -> dict[str, Real]:
    """Return the bytes to cast an element, in addition to its traffic in 16 bits.

    A kernel reads 16 bits, and reads them before once more if it needs the largest value. It writes
    a copy by rows and, where that differs, one by columns. Transformer Engine's norm before a
    matmul casts its result if scales are those of the past, and finds the largest value if they
    are those of the present. Weights are cast once a step (`weight_cast_bytes`).

    Under sequence parallelism inputs and gradients are cast before they are gathered. The
    transposed copy is made of the gathered tensor: read and written once.

    - ``cast_whole``: to copies by rows and by columns, where they differ.
    - ``cast_halves``: of the gradients of both halves of a gated layer.
    - ``cast_shard``, ``cast_later``: before an element is gathered, and its transposed copy behind.
    - ``cast_norm``: of the result of a norm.
    - ``cast_core_forward``, ``cast_core_backward``: of the result of attention. It is kept in 16
      bits, and cast again backward unless scales are those of the past.
    """
    recipe = problem.recipe
    copy, amax, is_delayed = recipe.copy_bytes, recipe.amax_bytes, recipe.has_past_scales
    turns = ~recipe.makes_both_copies & problem.system.transposes_operands
    gathers = size.rows < size.tokens
    rows = amax + 2.0 + copy
    whole = rows + np.where(recipe.makes_both_copies | turns, copy, 0.0)
    # if rows are gathered afterwards, the transposed copy is made later
    shard = np.where(turns & gathers, rows, whole)
    norm = shard - np.where(recipe.norm_finds_amax, amax, 0.0)
    # 8 bits in place of 16; a separate kernel makes the transposed copy
    written = copy - 2.0 + np.where(turns & ~gathers, 2.0 * copy, 0.0)
    return {
        "cast_whole": whole,
        "cast_halves": size.gates * whole,
        "cast_shard": shard,
        "cast_later": np.where(turns & gathers, 2.0 * copy, 0.0),
        "cast_norm": np.where(is_delayed, written, norm),
        "cast_core_forward": np.where(is_delayed, whole, rows),
        "cast_core_backward": np.where(is_delayed, 0.0, rows),
    }


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
