"""The matrix products of a layer on one GPU, and their seconds.

A layer has up to twelve matmuls with weights: those around attention, of the dense feed-forward
layer, of the experts that every token passes, of routed experts, the router, and those of latents.

Two matmuls of multi-head latent attention lead from the residual stream down to the latents: of
queries, and of keys and values. Norms follow, then two matmuls up to heads. A tensor-parallel rank
has the weights of the first two whole; under sequence parallelism it multiplies its rows of the
sequence. So ranks gather latents, not the stream. Only matmuls of heads are split
(NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/multi_latent_attention.py, `TELinear` with
`parallel_mode` duplicated).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.factored import distinct_rows, take
from estimators.training_step import dispatch
from estimators.training_step.gemm import (
    FORWARD,
    INPUT_GRADIENT,
    PASSES,
    WEIGHT_GRADIENT,
    Gemm,
    seconds_of,
)
from estimators.training_step.problem import Layout
from estimators.training_step.sizes import size_of
from estimators.training_step.transfers import pieces_of, shards_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from estimators.training_step.problem import Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Real


@dataclass(frozen=True)
class Matmul:
    """``number`` products (rows x depth) by (depth x columns) of a layer, by their forward pass.

    Attributes
    ----------
    share
        Share of the layers that have it.
    gathers
        Pass in which a tensor-parallel group gathers its rows, where the collectives of the group
        may run during it; else empty. Matmuls whose weight is split by columns gather before the
        forward pass. Those whose weight is split by rows scatter after the forward pass, and gather
        before the backward pass.
    of_experts
        Whether it is the grouped product of routed experts.
    low
        Whether it may run in 8 or 4 bits.
    """

    rows: Real
    columns: Real
    depth: Real
    share: Real = 1.0
    number: Real = 1.0
    gathers: str = ""
    of_experts: bool = False
    low: bool = True

    @property
    def in_pieces(self) -> tuple[str, ...]:
        """Passes that a collective of the tensor-parallel group feeds or empties."""
        passes = {FORWARD: (FORWARD,), INPUT_GRADIENT: (FORWARD, INPUT_GRADIENT)}
        return passes.get(self.gathers, ())


def attention_matmuls(size: Size) -> dict[str, Matmul]:
    """Return the matmuls before and behind attention: up from the latent of queries, or merged."""
    has_latent = size.key_latent > 0
    merged = size.query + np.where(has_latent, 0.0, size.key + size.value)
    depth = np.where(has_latent & (size.query_latent > 0), size.query_latent, size.hidden)
    return {
        "attention_in": Matmul(size.tokens, merged, depth, gathers=FORWARD),
        "attention_out": Matmul(size.tokens, size.hidden, size.result, gathers=INPUT_GRADIENT),
    }


def latent_matmuls(size: Size) -> dict[str, Matmul]:
    """Return the other matmuls of latents; their share is 0 where there are no latents."""
    has_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    of_queries = np.where(size.query_latent > 0, has_latent, 0.0)
    up = size.key - size.heads * size.rotary + size.value
    down = size.key_latent + size.rotary
    return {
        "keys_up": Matmul(size.tokens, up, size.key_latent, has_latent),
        "queries_down": Matmul(size.rows, size.query_latent, size.hidden, of_queries),
        "keys_down": Matmul(size.rows, down, size.hidden, has_latent),
    }


def matmuls_of(size: Size, problem: Problem) -> dict[str, Matmul]:
    """Return the matmuls of a layer by name.

    The matmul of the router is never in 8 or 4 bits (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/moe/router.py).
    """
    mixed = problem.shape.sparse_share
    dense = 1.0 - mixed
    tokens, hidden, gates = size.tokens, size.hidden, size.gates
    padded = dispatch.padded_rows(size.expert_tokens, problem.recipe)
    ffn_out = np.where(size.ffn > 0, dense, 0.0)
    shared_out = np.where(size.shared_ffn > 0, mixed, 0.0)
    experts_out = np.where(size.expert_ffn > 0, mixed, 0.0)

    def of_experts(columns: Real, depth: Real, share: Real) -> Matmul:
        return Matmul(padded, columns, depth, share, size.experts, of_experts=True)

    return {
        **attention_matmuls(size),
        "ffn_in": Matmul(tokens, gates * size.ffn, hidden, dense, gathers=FORWARD),
        "ffn_out": Matmul(tokens, hidden, size.ffn, ffn_out, gathers=INPUT_GRADIENT),
        "shared_in": Matmul(tokens, gates * size.shared_ffn, hidden, mixed),
        "shared_out": Matmul(tokens, hidden, size.shared_ffn, shared_out),
        "experts_in": of_experts(gates * size.expert_ffn, hidden, mixed),
        "experts_out": of_experts(hidden, size.expert_ffn, experts_out),
        "router": Matmul(size.rows, problem.shape.num_experts, hidden, mixed, low=False),
        **latent_matmuls(size),
    }


def attention_flops(size: Size) -> Real:
    """Return the FLOPs of the matmuls around attention, forward."""
    latents = latent_matmuls(size) if np.any(size.key_latent) else {}
    flops: Real = 0.0
    for matmul in (attention_matmuls(size) | latents).values():
        flops = flops + 2.0 * matmul.share * matmul.rows * matmul.columns * matmul.depth
    return flops


def matmul_seconds(size: Size, problem: Problem, layout: Layout) -> dict[str, Real]:
    """Return the seconds of a layer's matmuls; in a cell each size is computed once.

    The sizes depend only on tokens and on degrees of tensor and expert parallelism.
    """
    if np.ndim(problem.shape.seq_len) or not np.ndim(size.tokens):
        return _seconds(size, problem, layout)
    names = (
        *("tensor_parallel", "expert_tensor_parallel", "expert_parallel"),
        "uses_sequence_parallel",
    )
    columns = {"tokens": size.tokens} | {name: getattr(layout, name) for name in names}
    table, place = distinct_rows(columns, tuple(columns))
    of_tokens = {
        "microbatch_size": table["tokens"] / problem.shape.seq_len,
        "context_parallel": np.ones_like(table["tokens"]),
    }
    sizes = Layout.of(table | of_tokens)
    seconds = _seconds(size_of(problem, sizes), problem, sizes)
    return {name: take(part, place) for name, part in seconds.items()}


def _seconds(size: Size, problem: Problem, layout: Layout) -> dict[str, Real]:
    """Return the seconds of a layer's matmuls by name.

    - A name of `PASSES`: all matmuls of that pass.
    - ``attention_column_forward`` and its like: a pass of the matmuls whose weight is split by
      columns (before attention, into the feed-forward layer) or by rows (behind them); collectives
      hide behind these.
    - ``operations``: forward matmuls that recomputation by operation repeats: of the keys, behind
      attention, and the second of a gated layer's two.
    - ``experts``, ``moe``, ``mlp`` and others: forward matmuls of a part of the layer.
    """
    by_pass = _by_pass(matmuls_of(size, problem), problem, layout)
    forward, back, weight = (by_pass[name] for name in PASSES)
    second_of_gate = (1 - 1 / size.gates) * (
        forward["ffn_in"] + forward["shared_in"] + forward["experts_in"]
    )
    key_share = size.key / (size.query + size.key + size.value)
    shared = forward["shared_in"] + forward["shared_out"]
    experts = forward["experts_in"] + forward["experts_out"]
    seconds = {name: sum(parts.values()) for name, parts in by_pass.items()}
    seconds |= {
        "operations": key_share * forward["attention_in"]
        + forward["attention_out"]
        + second_of_gate,
        "mlp": forward["ffn_in"] + forward["ffn_out"],
        "shared_experts": shared,
        "shared_backward": back["shared_in"]
        + weight["shared_in"]
        + back["shared_out"]
        + weight["shared_out"],
        "experts": experts,
        "moe": shared + experts + forward["router"],
        "mla_up_proj": forward["attention_in"] + forward["keys_up"],
    }
    for name, parts in by_pass.items():
        seconds[f"attention_column_{name}"] = parts["attention_in"] + parts["keys_up"]
        seconds[f"attention_row_{name}"] = parts["attention_out"]
        seconds[f"ffn_column_{name}"] = parts["ffn_in"]
        seconds[f"ffn_row_{name}"] = parts["ffn_out"]
    return seconds


def _by_pass(
    matmuls: dict[str, Matmul], problem: Problem, layout: Layout
) -> dict[str, dict[str, Real]]:
    """Return the seconds of each matmul in each pass, of an average layer."""
    seconds: dict[str, dict[str, Real]] = {name: dict.fromkeys(matmuls, 0.0) for name in PASSES}
    splits = pieces_of(problem, layout), shards_of(problem, layout)
    runs = [run for name in matmuls for run in _runs(name, matmuls[name], problem, *splits)]
    times = seconds_of([run.gemm for run in runs], problem)
    for run, of_gemm in zip(runs, times, strict=True):
        of_pass = seconds[run.gemm.in_pass]
        of_pass[run.name] = of_pass[run.name] + run.share * (run.calls * of_gemm)
    weight_gradients = seconds[WEIGHT_GRADIENT]
    for name, matmul in matmuls.items():
        if matmul.of_experts and np.any(problem.shape.sparse_share):
            weights = matmul.number * matmul.columns * matmul.depth
            added = dispatch.sum_seconds(weights, problem)
            weight_gradients[name] = weight_gradients[name] + matmul.share * added
    return seconds


@dataclass(frozen=True)
class _Run:
    """A GEMM that a matmul calls a number of times in a pass, in a share of the layers."""

    name: str
    share: Real
    calls: Real
    gemm: Gemm


def _runs(
    name: str, matmul: Matmul, problem: Problem, pieces: Real, shards: tuple[Real, ...]
) -> Iterator[_Run]:
    """Yield the GEMMs of a matmul in each pass.

    A matmul of a dense layer with a collective runs in `pieces` of its rows. A matmul during whose
    gathering the rank starts with its own rows runs in `shards` of them.
    """
    if not np.any(matmul.share * matmul.columns):
        return
    share = np.where(matmul.share * matmul.columns > 0, matmul.share, 0.0)
    columns, depth = np.maximum(matmul.columns, 1e-9), np.maximum(matmul.depth, 1e-9)
    batch, low = matmul.number, matmul.low
    calls: Real = 1.0
    if matmul.of_experts:
        batch, calls = dispatch.kernels_of(matmul.number, problem)
    for in_pass, wide, deep in ((FORWARD, columns, depth), (INPUT_GRADIENT, depth, columns)):
        number = pieces if in_pass in matmul.in_pieces else 1.0
        for shard in shards if matmul.gathers == in_pass else (1.0,):
            # a GEMM of no rows would have no time; it is called zero times
            rows = matmul.rows * np.where(np.greater(shard, 0), shard, 1.0)
            gemm = Gemm(rows / number, wide, deep, batch, in_pass, low)
            yield _Run(name, share, calls * np.where(np.greater(shard, 0), number, 0.0), gemm)
    adding = calls if matmul.of_experts else problem.kernels.accumulating_product_ratio
    yield _Run(name, share, adding, Gemm(depth, columns, matmul.rows, batch, WEIGHT_GRADIENT, low))
