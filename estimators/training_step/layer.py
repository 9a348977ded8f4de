"""Seconds of one layer for one microbatch on one GPU: forward, backward and recomputed.

Everything here depends on the shape, the system and the part of a layout that splits layers
(`LAYER_KEYS`), so that a search computes it once for all pipelines and replicas around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import elementwise, network, power
from estimators.training_step.attention import Core, attention_core
from estimators.training_step.host import Host, host_of
from estimators.training_step.network import Group
from estimators.training_step.products import product_seconds, stream_seconds

LAYER_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_parallel"),
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
        Tokens between the products: a tensor-parallel share under sequence parallelism.
    query, key
        Widths of all queries, and of all keys (or values), on one GPU. A key-value head is
        copied where the tensor-parallel group is larger than there are such heads.
    ffn, experts, expert_tokens, expert_ffn, shared_ffn
        Widths of the dense layer; experts on one GPU, tokens of each, their width; the width
        of the experts that every token passes.
    """

    tokens: Any
    rows: Any
    hidden: Any
    query: Any
    key: Any
    ffn: Any
    experts: Any
    expert_tokens: Any
    expert_ffn: Any
    shared_ffn: Any
    gates: Any
    """2 where a gated layer has two products of its width, 1 otherwise."""


def size_of(values: Values, layout: Values) -> Size:
    """Return one GPU's part of a layer."""
    tensor = np.asarray(layout["tensor_parallel"], dtype=np.float64)
    tokens = layout["microbatch_size"] * values["seq_len"] / layout["context_parallel"]
    experts = values["num_experts"] / layout["expert_parallel"]
    return Size(
        tokens=tokens,
        rows=np.where(layout["uses_sequence_parallel"], tokens / tensor, tokens),
        hidden=np.asarray(values["hidden_size"], dtype=np.float64),
        query=values["num_heads"] * values["head_size"] / tensor,
        key=np.maximum(values["num_kv_heads"] / tensor, 1.0) * values["head_size"],
        ffn=values["ffn_hidden_size"] / tensor,
        experts=experts,
        expert_tokens=tokens * values["experts_per_token"] / experts,
        expert_ffn=values["expert_ffn_hidden_size"] / tensor,
        shared_ffn=values["num_shared_experts"] * values["expert_ffn_hidden_size"] / tensor,
        gates=np.where(values["uses_glu"], 2.0, 1.0),
    )


Way = dict[str, Any]
"""Seconds of one pass by part: gemm, attention, elementwise, tensor_comm, context_comm,
expert_comm, `hidden` (by which hidden transfers slow arithmetic down), and `host` (by which
launches take longer)."""


@dataclass(frozen=True)
class Layer:
    """Seconds of a layer by part and pass; recomputation is a part of the backward pass.

    Attributes
    ----------
    host
        Seconds to launch it. The passes' own `host` is what the GPU waits in each, alone.
    clock
        Clock of the products and of attention, relative to the full one.
    joules
        Energy of one GPU above idle.
    """

    forward: Way
    backward: Way
    recompute: Way
    host: Host
    clock: Any = 1.0
    joules: Any = 0.0

    @property
    def seconds(self) -> Any:
        """Seconds of both passes."""
        return self.forward_seconds + sum(self.backward.values()) + sum(self.recompute.values())

    @property
    def forward_seconds(self) -> Any:
        """Seconds of the forward pass."""
        return sum(self.forward.values())


def layer_of(values: Values, layout: Values) -> Layer:
    """Return the seconds of an average layer: of a mixture, over its dense layers too.

    Products and attention slow down to the clock that the power limit admits; transfers hide
    behind the slowed arithmetic.
    """
    size = size_of(values, layout)
    work = Work(
        _products(size, values, values["sparse_share"]),
        attention_core(size, values, layout),
        elementwise.layer_seconds(size, values, values["sparse_share"]),
    )
    layer = _at_clock(1.0, work, size, values, layout)
    load = power.load_of(layer, power.flops_of(size, values, layout), values)
    clock = power.clock_of(load, values)
    if np.any(clock < 1.0):
        layer = _at_clock(clock, work, size, values, layout)
    return replace(layer, clock=clock, joules=power.joules_of(load, clock, values))


class Work(NamedTuple):
    """Seconds of a layer's work at full clock: products by pass, attention, streaming kernels."""

    products: dict[str, Any]
    core: Core
    streams: elementwise.Ways


def _at_clock(clock: Any, work: Work, size: Size, values: Values, layout: Values) -> Layer:
    """Return the layer with its products and its attention at a clock."""
    group = network.groups(values, {**_NO_REPLICAS, **layout})
    products = {name: seconds / clock for name, seconds in work.products.items()}
    core, streams = Core(*(seconds / clock for seconds in work.core)), work.streams
    comm = _communication(size, values, layout, group, products, core)
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
    recompute = _again(values["activation_recompute"], forward, core.again)
    host = host_of(size, values, layout)
    spent = sum(backward.values()) + sum(recompute.values())
    forward["host"] = np.maximum(host.forward - sum(forward.values()), 0.0)
    backward["host"] = np.maximum(host.backward - spent, 0.0)
    return Layer(forward, backward, recompute, host)


_NO_REPLICAS = {"data_parallel": 1, "pipeline_parallel": 1}
"""The groups of a layer are those of its tensors, tokens and experts."""


def _again(recompute: Any, forward: Way, core: Any) -> Way:
    """Return the work that a backward pass repeats: none, the core of attention, or the layer."""
    is_full, is_selective = np.equal(recompute, "full"), np.equal(recompute, "selective")
    again = {name: np.where(is_full, seconds, 0.0) for name, seconds in forward.items()}
    again["attention"] = np.where(is_selective, core, again["attention"])
    return again


def _products(size: Size, values: Values, sparse: Any) -> dict[str, Any]:
    """Return the seconds of a layer's products: forward, and of either gradient.

    `column` is that of the weight gradients of the layers that split their columns, before
    and in the feed-forward layer: collectives hide behind them.
    """
    dense, mixed = 1.0 - sparse, sparse
    attention = (
        (size.tokens, size.query + 2 * size.key, size.hidden, 1.0, 1.0),
        (size.tokens, size.hidden, size.query, 1.0, 1.0),
    )
    feed_forward = [
        *_feed_forward(size.tokens, size.ffn, size, 1.0, dense),
        *_feed_forward(size.tokens, size.shared_ffn, size, 1.0, mixed),
        *_feed_forward(size.expert_tokens, size.expert_ffn, size, size.experts, mixed),
        (size.rows, values["num_experts"], size.hidden, 1.0, mixed),
    ]
    total = {"forward": 0.0, "input_gradient": 0.0, "weight_gradient": 0.0}
    column = []
    for rows, columns, depth, batch, share in (*attention, *feed_forward):
        if not np.any(share * columns):
            column.append(0.0)
            continue
        kept = np.where(share * columns > 0, share, 0.0)
        wide, deep = np.maximum(columns, 1e-9), np.maximum(depth, 1e-9)
        ways = {
            "forward": product_seconds(rows, wide, deep, values, batch),
            "input_gradient": product_seconds(rows, deep, wide, values, batch),
            "weight_gradient": product_seconds(deep, wide, rows, values, batch),
        }
        for name, seconds in ways.items():
            total[name] = total[name] + kept * seconds
        column.append(kept * ways["weight_gradient"])
    total["attention_column"] = column[0]
    total["ffn_column"] = column[2] + column[4] + column[6]
    return total


def _feed_forward(tokens: Any, width: Any, size: Size, batch: Any, share: Any) -> list[Any]:
    return [
        (tokens, size.gates * width, size.hidden, batch, share),
        (tokens, size.hidden, width, batch, share * (width > 0)),
    ]


def _communication(
    size: Size,
    values: Values,
    layout: Values,
    group: dict[str, Group],
    products: dict[str, Any],
    core: Any,
) -> dict[str, Way]:
    """Return the transfers that a pass waits for: of tensors, keys and values, experts."""
    tensor = _tensor(size, values, layout, group["tensor"], products)
    context = _context(size, values, group["context"], core)
    volume = 2.0 * size.rows * size.hidden * values["experts_per_token"]
    way = values["sparse_share"] * network.exchange_seconds(group["expert"], volume, values)
    taken, found = values["communication_sm_fraction"], {}
    backward = products["input_gradient"] + products["weight_gradient"]
    # expert transfers hide behind arithmetic that hides no other transfer
    free = {"forward": products["forward"], "backward": backward - tensor["backward"]["hidden"]}
    for name in ("forward", "backward"):
        behind = values["expert_overlap_fraction"] * np.minimum(2 * way, free[name])
        seconds = tensor[name]["hidden"] + context[name]["hidden"] + behind
        expert = {"expert_comm": 2 * way - behind, "hidden": taken * seconds}
        found[name] = {**tensor[name], **context[name], **expert}
    return found


def _tensor(
    size: Size, values: Values, layout: Values, group: Group, products: dict[str, Any]
) -> dict[str, Way]:
    """Return the collectives around the attention and the feed-forward layer.

    One all-reduce each and way, or a reduce-scatter and an all-gather of the same volume under
    sequence parallelism, which in the backward pass gathers the products' inputs once more,
    at the same time as the gradient of the input (arXiv 2205.05198 section 4.2.2). A mixture
    exchanges a copy of a token for each of its experts.
    """
    volume = 2.0 * size.tokens * size.hidden
    sparse = values["sparse_share"]
    copies = 1.0 - sparse + sparse * (values["experts_per_token"] + (size.shared_ffn > 0))
    splits = layout["uses_sequence_parallel"]
    found: dict[str, Way] = {"forward": {}, "backward": {}}
    whole = {}
    for name, share in (("attention", 1.0), ("ffn", copies)):
        both = network.gather_seconds(group, 2 * share * volume, values, 2.0)
        once = network.reduce_seconds(group, share * volume, values)
        whole[name] = np.where(splits, both, once)
    forward = whole["attention"] + whole["ffn"]
    found["forward"] = {"tensor_comm": forward, "hidden": 0.0}

    overlap = values["tensor_overlap_fraction"]
    exposed, hidden = forward, 0.0
    for name in ("attention", "ffn"):
        share = np.where(splits, 0.5, 1.0) * whole[name]
        behind = overlap * np.minimum(share, products[f"{name}_column"])
        again = np.where(splits, 0.5, 0.0) * whole[name]
        exposed = exposed - behind + np.maximum(again - products["input_gradient"] / 2, 0.0)
        hidden = hidden + behind + np.minimum(again, products["input_gradient"] / 2)
    found["backward"] = {"tensor_comm": exposed, "hidden": hidden}
    return found


def _context(size: Size, values: Values, group: Group, core: Any) -> dict[str, Way]:
    """Return the exchange of keys and values around the ring, and of their gradients back."""
    volume = 2.0 * 2.0 * size.tokens * size.key
    once = (group.size - 1) * network.neighbour_seconds(group, volume, values)
    found: dict[str, Way] = {}
    for name, rounds, room in (("forward", 1.0, core.forward), ("backward", 2.0, core.backward)):
        hidden = values["context_overlap_fraction"] * np.minimum(rounds * once, room)
        found[name] = {
            "context_comm": rounds * once - hidden,
            "hidden": hidden,
        }
    return found


__all__ = ["LAYER_KEYS", "Layer", "Size", "layer_of", "size_of", "stream_seconds"]
