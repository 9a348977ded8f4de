"""The step operation by operation: those of a layer, and the transfers between layers.

The search's functions make every figure: they count and time an operation as a layer that has only
that operation.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from estimators.contract import PUBLISHED, Array, Columns, Relation
from estimators.roofline.inputs import KEYS
from estimators.roofline.layer import (
    Layer,
    bytes_of,
    count,
    flops_of,
    kept_bytes,
    passes_of,
)
from estimators.roofline.layouts import Layouts
from estimators.roofline.operations import Operation, Shard, Traffic
from estimators.roofline.step import Problem, transfer_seconds
from estimators.roofline.strategies import ATTENTIONS, LAYER_INPUT, Sizes, operations_of
from estimators.rules import Rule
from estimators.values import Flag

EXCHANGE = "data_parallel_exchange"
"""Weights are gathered before the pass, gradients scattered after it."""

STAGES = "pipeline_transfer"
"""Activations go to the next stage, their gradients to the one before."""

_DIRECTED = (
    *("flops", "hbm_bytes", "comm_bytes", "collectives"),
    *("seconds", "compute_seconds", "memory_seconds", "comm_seconds"),
)

RELATION_OPERATION = Relation(
    "roofline_operation",
    grain="one row per configuration and operation. Figures are of one GPU, one layer and one "
    "microbatch; the seconds of data_parallel_exchange and pipeline_transfer are of the whole "
    "step, their bytes of one layer and of one transfer",
    keys=(*KEYS, "operation"),
    measures=(
        *("operation_index", "part", "uses_matrix_units"),
        *(f"{direction}_{name}" for direction in ("forward", "backward") for name in _DIRECTED),
        *("comm_group_size", "nvlink_comm_group", "comm_group_size_2", "nvlink_comm_group_2"),
        *("weights_bytes", "activations_bytes", "step_seconds"),
    ),
)


@lru_cache(maxsize=16)
def operation_names(strategy: str, attention: str) -> tuple[str, ...]:
    """Return the operations of a step in order: those of a layer, then the transfers."""
    layer = operations_of(strategy, attention, Sizes(*[1.0] * 5), Shard(*[1.0] * 4), PUBLISHED)
    return (*(operation.name for operation in layer), EXCHANGE, STAGES)


OPERATION_RULE = Rule(
    "the layer has the operation",
    "operation",
    ("operation", "strategy", "attention"),
    lambda v: np.any(
        [
            np.equal(v["strategy"], strategy)
            & np.equal(v["attention"], attention)
            & np.isin(v["operation"], operation_names(strategy, attention))
            for strategy, known in ATTENTIONS.items()
            for attention in known
        ],
        axis=0,
    ),
    lambda row: f"is no operation with strategy {row['strategy']} and attention {row['attention']}",
    lambda row: f"use {', '.join(operation_names(row['strategy'], row['attention']))}",
)


def with_operations(configurations: Columns) -> dict[str, Array]:
    """Return each configuration once for each of its operations, with column ``operation``."""
    names = [
        operation_names(*kind)
        for kind in zip(configurations["strategy"], configurations["attention"], strict=True)
    ]
    rows = np.repeat(np.arange(len(names)), [len(each) for each in names])
    columns = {name: column[rows] for name, column in configurations.items()}
    return {**columns, "operation": np.array([n for each in names for n in each], dtype=object)}


def operation_figures(
    operation: str, problem: Problem, layouts: Layouts, layer: Layer
) -> dict[str, Any]:
    """Return the measures of `RELATION_OPERATION`, without the step.

    Parameters
    ----------
    layouts
        A batch of independent layouts.
    layer
        The whole layer of each.
    """
    names = operation_names(*problem.kind)
    index = names.index(operation)
    if operation == EXCHANGE:
        figures = _exchange(problem, layouts, layer)
    elif operation == STAGES:
        figures = _stages(problem, layouts, layer)
    else:
        figures = _of_layer(index, problem, layouts)
        figures["part"] = "attention" if index > names.index(LAYER_INPUT) else "feed_forward"
    return {"operation_index": index, **figures}


def _of_layer(index: int, problem: Problem, layouts: Layouts) -> dict[str, Any]:
    """Return the figures of one operation of a layer, by its place in the layer."""
    shard, mends = Shard.of(layouts.table.shards), problem.mends
    repeats = problem.run.repeats_forward
    operation = operations_of(*problem.kind, problem.sizes, shard, mends)[index]
    counts = count([operation], shard)
    passes = passes_of(counts, problem.system, repeats, layouts.table.layers, mends)
    return {
        "uses_matrix_units": operation.uses_matrix_units,
        **_both("flops", *flops_of(counts, problem.system, repeats, mends)),
        **_both("hbm_bytes", *bytes_of(counts, repeats, mends)),
        **_traffic(operation, repeats, layouts),
        **_both("seconds", passes.forward_seconds, passes.backward_seconds),
        **_both("compute_seconds", passes.forward[0], passes.backward[0]),
        **_both("memory_seconds", passes.forward[1], passes.backward[1]),
        **_both("comm_seconds", passes.forward[2], passes.backward[2]),
        "weights_bytes": counts.weights_bytes,
        "activations_bytes": kept_bytes(counts, repeats),
    }


def _both(name: str, forward: Any, backward: Any) -> dict[str, Any]:
    return {f"forward_{name}": forward, f"backward_{name}": backward}


def _traffic(operation: Operation, repeats: Flag, layouts: Layouts) -> dict[str, Any]:
    """Return bytes and kinds of an operation's collectives, and the groups they run over."""
    layers = layouts.table.layers
    size = len(layers["tensor_parallel"])
    forward = _sent(operation.forward.traffic, 1, size)
    backward = _sent(operation.forward.traffic, repeats, size)
    backward += _sent(operation.backward.traffic, 1, size)
    groups = {}
    for group, ending, axis in (("tensor", "", "tensor"), ("second", "_2", "second")):
        moves = _any(
            (volume > 0 for part, volume in (*forward, *backward) if part.group == group), size
        )
        for name, column in (
            (f"comm_group_size{ending}", f"{axis}_parallel"),
            (f"nvlink_comm_group{ending}", f"nvlink_{axis}_parallel"),
        ):
            groups[name] = np.where(moves, layers[column], 1)
    return {
        **_both("comm_bytes", *(_total(sent, size) for sent in (forward, backward))),
        **_both("collectives", *(_labels(sent, size) for sent in (forward, backward))),
        **groups,
    }


_Sent = list[tuple[Traffic, Array]]
"""Collectives, each with its bytes in every row."""


def _sent(traffic: tuple[Traffic, ...], times: Any, size: int) -> _Sent:
    return [(part, np.broadcast_to(times * part.volume, size)) for part in traffic]


def _total(sent: _Sent, size: int) -> Array:
    total: Array = np.sum([np.zeros(size), *(volume for _, volume in sent)], axis=0)
    return total


def _any(flags: Iterable[Array], size: int) -> Array:
    moves: Array = np.any([np.zeros(size, dtype=bool), *flags], axis=0)
    return moves


def _labels(sent: _Sent, size: int) -> Array:
    """Return the kinds that move anything, in order and each once: ``broadcast+reduce``."""
    moves = {
        kind: _any((volume > 0 for part, volume in sent if part.kind == kind), size)
        for kind in dict.fromkeys(part.kind for part, _ in sent)
    }
    labels = ["+".join(kind for kind in moves if moves[kind][row]) for row in range(size)]
    return np.array(labels, dtype=object)


def _exchange(problem: Problem, layouts: Layouts, layer: Layer) -> dict[str, Any]:
    """Return the figures of the exchange between replicas."""
    ranks = layouts["data_parallel"] * layouts["context_parallel"]
    members = layouts["nvlink_data_parallel"] * layouts["nvlink_context_parallel"]
    seconds = transfer_seconds(layouts, layer, problem)["exchange"]
    kinds = ("all_gather", "reduce_scatter")
    return _transfer("data", kinds, layer.weights_bytes, seconds, ranks, members)


def _stages(problem: Problem, layouts: Layouts, layer: Layer) -> dict[str, Any]:
    """Return the figures of the transfers between stages."""
    ranks, members = layouts["pipeline_parallel"], layouts["nvlink_pipeline_parallel"]
    seconds = transfer_seconds(layouts, layer, problem)["stages"]
    return _transfer("pipeline", ("send", "send"), layer.input_bytes, seconds, ranks, members)


def _transfer(
    part: str,
    kinds: tuple[str, str],
    volume: Array,
    seconds: tuple[Any, Any],
    ranks: Array,
    members: Array,
) -> dict[str, Any]:
    """Return the figures of an operation that only sends; a group of one sends nothing."""
    nothing = dict.fromkeys(
        [f"{way}_{name}" for way in ("forward", "backward") for name in _DIRECTED]
        + ["comm_group_size_2", "nvlink_comm_group_2", "weights_bytes", "activations_bytes"],
        0.0,
    )
    labels = (np.where(ranks > 1, kind, "").astype(object) for kind in kinds)
    return {
        **nothing,
        "part": part,
        "uses_matrix_units": False,
        **_both("comm_bytes", volume, volume),
        **_both("collectives", *labels),
        **_both("seconds", *seconds),
        **_both("comm_seconds", *seconds),
        "comm_group_size": ranks,
        "nvlink_comm_group": members,
        "comm_group_size_2": 1,
        "nvlink_comm_group_2": 1,
    }
