"""One GPU's part of a layer: tokens and widths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.kernels.loads import BALANCED
from estimators.structure import equals

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.values import Real


@dataclass(frozen=True)
class Size:
    """One GPU's part of a layer: tokens and widths.

    Attributes
    ----------
    tokens
        Tokens of a microbatch on one rank of the context-parallel group.
    rows
        Tokens of the tensors between products: divided by the tensor-parallel degree under
        sequence parallelism.
    hidden
        Width of the residual stream, not split.
    heads, query, key, value, result
        Heads on one GPU; widths of all their queries, keys and values, and of the result of
        attention. If there are fewer key-value heads than tensor-parallel ranks, ranks have copies
        of the same head.
    query_latent, key_latent, rotary
        Widths of the latents of queries, of keys and values, and of the rotary part that all heads
        of the keys share: 0 without latents.
    ffn
        Width of a dense feed-forward layer on one GPU.
    experts, expert_tokens, expert_ffn
        Routed experts on one GPU, tokens of each, and the width of one.
    shared_ffn
        Width of the experts that every token passes.
    """

    tokens: Real
    rows: Real
    hidden: Real
    heads: Real
    query: Real
    key: Real
    value: Real
    result: Real
    query_latent: Real
    key_latent: Real
    rotary: Real
    ffn: Real
    experts: Real
    expert_tokens: Real
    expert_ffn: Real
    shared_ffn: Real
    gates: Real
    """2 where a gated layer has two products of its width, 1 otherwise."""


def size_of(problem: Problem, layout: Layout) -> Size:
    """Return one GPU's part of a layer."""
    shape, tensor = problem.shape, layout.tensor_parallel
    tokens = layout.microbatch_size * shape.seq_len / layout.context_parallel
    rows = np.where(layout.uses_sequence_parallel, tokens / tensor, tokens)
    experts = shape.num_experts / layout.expert_parallel
    heads = shape.num_heads / tensor
    key_heads = np.where(
        np.greater(shape.kv_lora_rank, 0), heads, np.maximum(shape.num_kv_heads / tensor, 1.0)
    )
    key_size = shape.qk_head_size + shape.qk_rotary_size
    # ranks that split the width of an expert gather each other's tokens
    expert_tensor = layout.expert_tensor_parallel
    gathered_tokens = tokens / tensor * expert_tensor * load_ratio(problem, layout)
    return Size(
        tokens=tokens,
        rows=rows,
        hidden=shape.hidden_size,
        heads=heads,
        query=heads * key_size,
        key=key_heads * key_size,
        value=key_heads * shape.v_head_size,
        result=heads * shape.v_head_size,
        query_latent=shape.q_lora_rank,
        key_latent=shape.kv_lora_rank,
        rotary=shape.qk_rotary_size,
        ffn=shape.ffn_hidden_size / tensor,
        experts=experts,
        expert_tokens=gathered_tokens * shape.experts_per_token / experts,
        expert_ffn=shape.expert_ffn_hidden_size / expert_tensor,
        shared_ffn=shape.shared_ffn_hidden_size / tensor,
        gates=np.where(shape.uses_glu, 2.0, 1.0),
    )


def load_ratio(problem: Problem, layout: Layout) -> Real:
    """Return the tokens of the fullest rank of experts over the mean.

    It is `expert_load_ratio`, or the ratio of `expert_routing` where that is larger. It is at most
    the number of ranks (one rank has all copies), and at most experts / `experts_per_token` (each
    expert of the rank has every token).
    """
    shape, experts = problem.shape, problem.experts
    most = np.minimum(shape.num_experts / shape.experts_per_token, layout.expert_parallel)
    ratio, measured = experts.expert_load_ratio, problem.kernels.measured
    if measured is not None and not np.all(equals(experts.expert_routing, BALANCED)):
        by_law = measured.loads.ratio(
            experts.expert_routing, shape.num_experts, layout.expert_parallel
        )
        ratio = np.maximum(ratio, by_law)
    least: Real = np.minimum(ratio, most)
    return least
