"""Seconds of one layer for one microbatch on one GPU: forward, backward and recomputed.

They depend on the shape, the system and the layout columns that split a layer (`LAYER_KEYS`). A
search computes them once for all pipelines and replicas that split a layer alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.factored import distinct, take
from estimators.training_step import dispatch, elementwise, modules, power
from estimators.training_step.attention import Core, attention_core
from estimators.training_step.host import Host, forward_wait, host_of
from estimators.training_step.latent import head_products, latent_products
from estimators.training_step.products import PASSES, Product, seconds_of
from estimators.training_step.transfers import Transfers, pieces_of, shards_of, transfers_of, waits

if TYPE_CHECKING:
    from estimators.values import Real

LAYER_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("uses_sequence_parallel", "microbatch_size"),
)
"""Layout columns that a layer's time depends on."""


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


def size_of(values: Values, layout: Values) -> Size:
    """Return one GPU's part of a layer."""
    tensor = np.asarray(layout["tensor_parallel"], dtype=np.float64)
    tokens = layout["microbatch_size"] * values["seq_len"] / layout["context_parallel"]
    rows = np.where(layout["uses_sequence_parallel"], tokens / tensor, tokens)
    experts = values["num_experts"] / layout["expert_parallel"]
    heads = values["num_heads"] / tensor
    key_heads = np.where(
        np.greater(values["kv_lora_rank"], 0),
        heads,
        np.maximum(values["num_kv_heads"] / tensor, 1.0),
    )
    key_size = values["qk_head_size"] + values["qk_rotary_size"]
    # ranks that split the width of an expert gather each other's tokens
    expert_tensor = layout["expert_tensor_parallel"]
    own_tokens = tokens / tensor * expert_tensor * dispatch.load_ratio(values, layout)
    return Size(
        tokens=tokens,
        rows=rows,
        hidden=np.asarray(values["hidden_size"], dtype=np.float64),
        heads=heads,
        query=heads * key_size,
        key=key_heads * key_size,
        value=key_heads * values["v_head_size"],
        result=heads * values["v_head_size"],
        query_latent=np.asarray(values["q_lora_rank"], dtype=np.float64),
        key_latent=np.asarray(values["kv_lora_rank"], dtype=np.float64),
        rotary=np.asarray(values["qk_rotary_size"], dtype=np.float64),
        ffn=values["ffn_hidden_size"] / tensor,
        experts=experts,
        expert_tokens=own_tokens * values["experts_per_token"] / experts,
        expert_ffn=values["expert_ffn_hidden_size"] / expert_tensor,
        shared_ffn=values["shared_ffn_hidden_size"] / tensor,
        gates=np.where(values["uses_glu"], 2.0, 1.0),
    )


Way = dict[str, Any]
"""Seconds of one pass by part: gemm, attention, elementwise, tensor_comm, context_comm,
expert_comm, `hidden` (arithmetic lost to hidden transfers), and `host` (waits for launches)."""


@dataclass(frozen=True)
class Layer:
    """Seconds of a layer by part and pass; recomputation is a part of the backward pass.

    Attributes
    ----------
    host
        Seconds to launch the layer. Part `host` of a pass is the time that the GPU waits in it, if
        passes do not make up for each other.
    clock
        Clock of the products and of attention, relative to the full one.
    joules
        Energy of one GPU above idle, in joules.
    weight_gradients
        Seconds of the products that make the gradients of weights: a part of `backward`.
    """

    forward: Way
    backward: Way
    recompute: Way
    host: Host
    clock: Any = 1.0
    joules: Any = 0.0
    weight_gradients: Any = 0.0

    @property
    def seconds(self) -> Any:
        """Seconds of both passes."""
        return self.forward_seconds + sum(self.backward.values()) + sum(self.recompute.values())

    @property
    def forward_seconds(self) -> Any:
        """Seconds of the forward pass."""
        return sum(self.forward.values())


class Work(NamedTuple):
    """Seconds of a layer's work at full clock, before any of it is recomputed.

    Attributes
    ----------
    size
        One GPU's part of the layer.
    products
        Seconds of the products, by pass and by place; see `_products`.
    core
        Seconds of the core of attention.
    streams
        Seconds of memory-bound work besides the core.
    transfers
        Seconds of the transfers, hidden or not.
    parts
        Seconds of the streaming kernels of the parts that are recomputed one by one.
    flops
        FLOPs of the forward pass.
    """

    size: Size
    products: dict[str, Any]
    core: Core
    streams: elementwise.Ways
    transfers: Transfers
    parts: dict[str, Any]
    flops: power.Flops


def work_of(values: Values, layout: Values) -> Work:
    """Return the work of an average layer at full clock."""
    size = size_of(values, layout)
    return Work(
        size,
        _distinct_products(size, values, layout),
        attention_core(size, values, layout),
        elementwise.layer_seconds(size, values, layout),
        transfers_of(size, values, layout),
        modules.stream_parts(size, values, layout),
        power.flops_of(size, values, layout),
    )


def layer_of(work: Work, values: Values, layout: Values) -> Layer:
    """Return the seconds of an average layer; `sparse_share` is the share of mixture layers.

    Products and attention slow down to the clock that the power limit admits; transfers hide
    behind the slowed arithmetic.

    Parameters
    ----------
    work
        Result of `work_of`. The recomputation of `values` may differ from that of its values.
    """
    host = host_of(work.size, values, layout)
    layer = _at_clock(1.0, work, host, values)
    load = power.load_of(layer, work.flops, values)
    clocks = power.clocks_of(load, values)
    if np.any(clocks.slowest < 1.0):
        layer = _at_clock(clocks.slowest, work, host, values)
    joules = power.joules_of(load, clocks.middle, values)
    return replace(layer, clock=clocks.slowest, joules=joules)


def _at_clock(clock: Any, work: Work, host: Host, values: Values) -> Layer:
    """Return the layer with its products and its attention at a clock."""
    products = {name: seconds / clock for name, seconds in work.products.items()}
    core, streams = Core(*(seconds / clock for seconds in work.core)), work.streams
    comm = waits(work.transfers, values, products, core)
    forward = {
        "gemm": products["forward"],
        "attention": core.forward,
        "elementwise": streams.forward,
        **comm["forward"],
    }
    backward = {
        "gemm": products["input_gradient"] + products["weight_gradient"],
        "attention": core.backward,
        "elementwise": streams.backward,
        **comm["backward"],
    }
    recompute = _again(values, forward, core.again, products["operations"])
    if modules.any_again(values):
        recompute = modules.added(recompute, forward, core.again, products, work.parts, values)
    spent = sum(backward.values()) + sum(recompute.values())
    expert_work = products["experts"] + streams.experts + forward["expert_comm"]
    forward["host"] = forward_wait(host, sum(forward.values()), expert_work, values)
    backward["host"] = np.maximum(host.backward - spent, 0.0)
    return Layer(forward, backward, recompute, host, weight_gradients=products["weight_gradient"])


def _again(values: Values, forward: Way, core: Any, operations: Any) -> Way:
    """Return the seconds of the work that a backward pass repeats.

    Full recomputation repeats the forward pass. Selective recomputation repeats the core of
    attention or, with `recomputes_operations`, the operations whose results torchtitan drops:
    every second product, norms, rotary embedding and activation. It keeps attention and
    reduce-scatters (pytorch/torchtitan @82f7387f torchtitan/parallelisms/parallelize_llama.py
    _get_custom_policy).

    Parameters
    ----------
    core, operations
        Seconds of the core of attention, and of the products whose results are dropped.
    """
    recompute, by_operation = values["activation_recompute"], values["recomputes_operations"]
    is_full, is_selective = np.equal(recompute, "full"), np.equal(recompute, "selective")
    again = {name: np.where(is_full, seconds, 0.0) for name, seconds in forward.items()}
    repeats = is_selective & by_operation
    again["attention"] = np.where(is_selective & ~repeats, core, again["attention"])
    again["gemm"] = np.where(repeats, operations, again["gemm"])
    again["elementwise"] = np.where(repeats, forward["elementwise"], again["elementwise"])
    return again


IN_PIECES = {
    **dict.fromkeys((0, 2), ("forward",)),
    **dict.fromkeys((1, 3), ("forward", "input_gradient")),
}
"""Place of a product -> its passes that a tensor-parallel exchange feeds or empties: products that
split columns gather before the forward pass; those that split rows scatter after the forward pass
and gather before the backward pass."""

BESIDE_GATHERING = {**dict.fromkeys((0, 2), "forward"), **dict.fromkeys((1, 3), "input_gradient")}
"""Place of a product -> the pass that gathers its rows: forward for products that split columns,
backward for products that split rows."""


OF_EXPERTS = (6, 7)
"""Places of the grouped products of experts."""

ROUTER = 8
"""Place of the router, whose product is never in 8 or 4 bits (NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer/moe/router.py)."""


def _distinct_products(size: Size, values: Values, layout: Values) -> dict[str, Any]:
    """Return the seconds of a layer's products; in a cell each size is computed once.

    The sizes depend only on tokens and on degrees of tensor and expert parallelism.
    """
    sparse = values["sparse_share"]
    if np.ndim(values["seq_len"]) or not np.ndim(size.tokens):
        cuts = (pieces_of(values, layout), shards_of(values, layout))
        return _products(size, values, sparse, *cuts)
    names = (
        *("tensor_parallel", "expert_tensor_parallel", "expert_parallel"),
        "uses_sequence_parallel",
    )
    keys = {"tokens": size.tokens, **{name: layout[name] for name in names}}
    table, place = distinct(keys, tuple(keys))
    of_tokens = {"microbatch_size": table["tokens"] / values["seq_len"], "context_parallel": 1}
    own = {**table, **of_tokens}
    cuts = (pieces_of(values, own), shards_of(values, own))
    found = _products(size_of(values, own), values, sparse, *cuts)
    return {name: take(seconds, place) for name, seconds in found.items()}


def _products(
    size: Size, values: Values, sparse: Any, pieces: Any, shards: tuple[Any, ...]
) -> dict[str, Any]:
    """Return the seconds of a layer's products by name.

    - A name of `PASSES`: all products of that pass.
    - ``attention_column_forward`` and its like: a pass of the products that split columns (before
      attention, into the feed-forward layer) or rows (behind them); collectives hide behind these.
    - ``operations``: forward products that recomputation by operation repeats: of the keys, behind
      attention, and the second of a gated layer's two.
    - ``experts``, ``moe``, ``mlp`` and others: forward products of a part of the layer.

    A product of a dense layer with an exchange runs in `pieces` of its rows. A product during whose
    gathering the rank starts with its own rows runs in `shards` of them.
    """
    dense, mixed = 1.0 - sparse, sparse
    ratio = values["accumulating_product_ratio"]
    attention, latents = head_products(size), latent_products(size)
    feed_forward = [
        *_feed_forward(size.tokens, size.ffn, size, 1.0, dense),
        *_feed_forward(size.tokens, size.shared_ffn, size, 1.0, mixed),
        *_feed_forward(
            dispatch.padded_rows(size.expert_tokens, values),
            size.expert_ffn,
            size,
            size.experts,
            mixed,
        ),
        (size.rows, values["num_experts"], size.hidden, 1.0, mixed),
    ]
    runs = []
    layer = (*attention, *feed_forward, *latents)
    for place, (rows, columns, depth, batch, share) in enumerate(layer):
        if not np.any(share * columns):
            continue
        kept = np.where(share * columns > 0, share, 0.0)
        wide, deep = np.maximum(columns, 1e-9), np.maximum(depth, 1e-9)
        batch, calls = dispatch.kernels_of(batch, values) if place in OF_EXPERTS else (batch, 1.0)
        low = place != ROUTER
        forth, back = (pieces if way in IN_PIECES.get(place, ()) else 1.0 for way in PASSES[:2])
        for cut in shards if BESIDE_GATHERING.get(place) == PASSES[0] else (1.0,):
            part = Product(_cut(rows, cut) / forth, wide, deep, batch, low=low)
            runs.append((place, PASSES[0], kept, calls * np.where(cut > 0, forth, 0.0), part))
        for cut in shards if BESIDE_GATHERING.get(place) == PASSES[1] else (1.0,):
            part = Product(_cut(rows, cut) / back, deep, wide, batch, PASSES[1], low)
            runs.append((place, PASSES[1], kept, calls * np.where(cut > 0, back, 0.0), part))
        part = Product(deep, wide, rows, batch, PASSES[2], low)
        adding = calls if place in OF_EXPERTS else ratio
        runs.append((place, PASSES[2], kept, adding, part))
    places: list[dict[str, Any]] = [dict.fromkeys(PASSES, 0.0) for _ in layer]
    times_of = seconds_of([product for *_, product in runs], values)
    for (place, way, kept, times, _), seconds in zip(runs, times_of, strict=True):
        places[place][way] = places[place][way] + kept * (times * seconds)
    if np.any(mixed):
        for place in OF_EXPERTS:
            _, columns, depth, batch, share = layer[place]
            added = dispatch.sum_seconds(batch * columns * depth, values)
            places[place][PASSES[2]] = places[place][PASSES[2]] + share * added
    found = {name: sum(place[name] for place in places) for name in PASSES}
    once = [place["forward"] for place in places]
    second_of_gate = (1 - 1 / size.gates) * (once[2] + once[4] + once[6])
    key_share = size.key / (size.query + size.key + size.value)
    found["operations"] = key_share * once[0] + once[1] + second_of_gate
    up = len(layer) - len(latents)
    found["mlp"], found["shared_experts"] = once[2] + once[3], once[4] + once[5]
    found["shared_backward"] = sum(places[i][name] for i in (4, 5) for name in PASSES[1:])
    found["experts"] = once[6] + once[7]
    found["moe"] = found["shared_experts"] + found["experts"] + once[ROUTER]
    found["mla_up_proj"] = once[0] + once[up]
    for name in PASSES:
        found[f"attention_column_{name}"] = places[0][name] + places[up][name]
        found[f"attention_row_{name}"] = places[1][name]
        found[f"ffn_column_{name}"] = places[2][name]
        found[f"ffn_row_{name}"] = places[3][name]
    return found


def _cut(rows: Any, share: Any) -> Any:
    """Return a share of the rows; all rows where the share is 0: a product of no rows has no time.

    The caller takes such a product zero times.
    """
    return rows * np.where(np.greater(share, 0), share, 1.0)


def _feed_forward(tokens: Any, width: Any, size: Size, batch: Any, share: Any) -> list[Any]:
    """Return rows, columns, inner size, number and share of both products of a width."""
    return [
        (tokens, size.gates * width, size.hidden, batch, share),
        (tokens, size.hidden, width, batch, share * (width > 0)),
    ]


__all__ = [
    "LAYER_KEYS",
    "Layer",
    "Size",
    "Work",
    "layer_of",
    "size_of",
    "work_of",
]
