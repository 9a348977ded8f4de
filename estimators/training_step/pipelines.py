"""The pipelines of many layouts: equal ones are placed and replayed once.

Most are simple: all layers are of one kind, and stages are even or the first ones have a layer
more. Closed forms cover them. Modules `placement` and `in_flight` compute the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Values
from estimators.factored import distinct
from estimators.training_step.in_flight import held_of, ranks_of
from estimators.training_step.placement import KINDS, Case

OPTIONS = (
    *("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage"),
    *("counts_embedding", "counts_loss"),
)
"""Choices that say where layers are."""


class Ranks(NamedTuple):
    """The ranks of each pipeline that may need most memory or time: [rank][row].

    Attributes
    ----------
    layers
        Kind of layer -> how many of them a rank has; only kinds that occur.
    embedding, output
        1 where a rank has the embedding, or the output layer; else 0.
    """

    layers: dict[str, Any]
    embedding: Any
    output: Any


class Held(NamedTuple):
    """Microbatches that those ranks keep at their peak: [rank][row].

    Attributes
    ----------
    layers
        Kind of layer -> layers times the microbatches that are kept of each.
    chunks
        Inputs of chunks that are kept.
    outputs
        Microbatches of which the output layer's part is kept.
    """

    layers: dict[str, Any]
    chunks: Any
    outputs: Any


class Cases(NamedTuple):
    """The distinct pipelines, and the place of each row's pipeline among them."""

    found: list[Any]
    place: Array


def number(value: Any, missing: float = 0.0) -> Any:
    """Return a number or a column of them; `missing` where there is none."""
    given = np.asarray(np.nan if value is None else value, dtype=np.float64)
    return np.where(np.isnan(given), missing, given)[()]


def flag(value: Any) -> Any:
    """Return a flag or a column of them; false where there is none."""
    return np.equal(value, True)


def has_text(value: Any) -> Any:
    """Return whether there is a text: one, or for each row of a column."""
    if value is None or isinstance(value, str):
        return value is not None
    return np.fromiter((each is not None for each in value), bool, len(value))


def is_placed(values: Values) -> Any:
    """Return whether a choice says where layers are."""
    layout = has_text(values["pipeline_layout"])
    ends = number(values["layers_in_first_stage"]) + number(values["layers_in_last_stage"]) > 0
    counts = flag(values["counts_embedding"]) | flag(values["counts_loss"])
    return layout | ends | counts


def is_mixture(values: Values) -> Any:
    """Return whether any layer has experts."""
    return np.greater(values["num_experts"], 1)


def runs_ahead(values: Values) -> Any:
    """Return whether the warm-up of a rank with interleaved chunks has one forward pass more.

    It has where the program hides the exchange of experts' tokens behind another microbatch
    (Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py
    `get_pp_rank_microbatches`).
    """
    return flag(values["overlaps_expert_comm"]) & is_mixture(values)


def is_simple(values: Values, layout: Values) -> Any:
    """Return for each row whether closed forms cover its pipeline; see the module."""
    ranks, chunks, layers = (
        layout["pipeline_parallel"],
        layout["virtual_pipeline"],
        values["num_layers"],
    )
    has_mtp = number(values["num_mtp_layers"]) > 0
    mixed = (values["sparse_share"] > 0) & (values["sparse_share"] < 1)
    special = is_placed(values) | has_mtp | mixed | np.not_equal(values["schedule"], "1f1b")
    if np.all(special):
        return np.broadcast_to(np.array(False), np.shape(ranks))
    plain = chunks == 1
    dense = plain & ~is_mixture(values)
    each = layers / (ranks * chunks)
    even = each == np.floor(each)
    if np.any(values["balances_stages"]):
        even = even & (plain | ~np.asarray(values["balances_stages"]))
    found = dense | even
    usual = np.isnan(number(values["microbatch_group"], np.nan))
    # a search has whole rounds of microbatches
    if np.ndim(values["seq_len"]) and np.any(chunks > 1):
        usual = usual & (np.remainder(microbatches_of(values, layout), ranks) == 0)
    return found & ~special & (plain | usual & np.logical_not(runs_ahead(values)))


def microbatches_of(values: Values, layout: Values) -> Any:
    """Return the microbatches of a step on one replica."""
    return values["global_batch_size"] / (layout["data_parallel"] * layout["microbatch_size"])


GROUPS = 4
"""Groups of microbatches that show how a pipeline fills, runs and drains; further ones repeat."""


def few_of(microbatches: Any, values: Values, layout: Values) -> Any:
    """Return the microbatches of a step, reduced to as many as decide its ends and its peak.

    Pipelines that differ only in further microbatches are one case.
    """
    ranks, chunks = layout["pipeline_parallel"], layout["virtual_pipeline"]
    given = number(values["microbatch_group"])
    group = np.where(given > 0, given, ranks)
    whole = np.remainder(microbatches, group) == 0
    interleaved = np.where(whole, np.minimum(microbatches, GROUPS * group), microbatches)
    return np.where(chunks == 1, np.minimum(microbatches, 2 * ranks), interleaved)


@lru_cache(maxsize=65_536)
def usual_group(num_microbatches: int, ranks: int) -> int:
    """Return the least number of microbatches that a chunk can take in a row.

    It is the number of ranks, or the next larger one whose remainder is 0 or at least the number of
    ranks (Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py,
    forward_backward_pipelining_with_interleaving).
    """
    for group in range(min(ranks, num_microbatches), num_microbatches):
        rest = num_microbatches % group
        if rest == 0 or rest >= ranks:
            return group
    return num_microbatches


def case_columns(values: Values, layout: Values) -> dict[str, Any]:
    """Return the fields of `placement.Case` as numbers or columns; texts stay texts."""
    hidden, width = values["hidden_size"], values["num_heads"] * values["head_size"]
    balances = flag(values["balances_stages"])
    output: Any = np.nan
    if np.any(balances):
        cost = 4 * width * hidden + 3 * values["ffn_hidden_size"] * hidden
        output = np.where(balances, number(values["vocab_size"]) * hidden / cost, np.nan)
    return {
        "layers": values["num_layers"],
        "dense_layers": number(values["num_dense_layers"]),
        "moe_period": number(values["moe_period"], 1.0),
        "mtp_layers": number(values["num_mtp_layers"]),
        "ranks": layout["pipeline_parallel"],
        "chunks": layout["virtual_pipeline"],
        "first": number(values["layers_in_first_stage"]),
        "last": number(values["layers_in_last_stage"]),
        "counts_embedding": flag(values["counts_embedding"]),
        "counts_loss": flag(values["counts_loss"]),
        "layout": values["pipeline_layout"],
        "is_mixture": is_mixture(values),
        "output_layers": output,
        "schedule": values["schedule"],
    }


def cases_of(columns: dict[str, Any], size: int) -> Cases:
    """Return the distinct pipelines, each a `Case` with a tuple of its further numbers.

    Parameters
    ----------
    columns
        Columns of `case_columns`, then columns of further whole numbers.
    size
        Number of rows.
    """
    known: dict[str, list[Any]] = {}
    coded: dict[str, Array] = {}
    for name, column in columns.items():
        whole = np.asarray(column)
        if whole.ndim == 0:
            only = whole.item()
            known[name] = [None if only != only else only]
        elif name in _CODED:
            given = [None if each is None or each != each else each for each in whole.tolist()]
            known[name] = list(dict.fromkeys(given))
            codes = {each: code for code, each in enumerate(known[name])}
            coded[name] = np.fromiter((codes[each] for each in given), np.int64, size)
        else:
            coded[name] = whole
    table: dict[str, Array] = {}
    place = np.zeros(size, dtype=np.int64)
    if coded:
        table, place = distinct(coded, tuple(coded))
    count = max((len(each) for each in table.values()), default=1)
    lists = [
        [known[name][int(code)] for code in table.get(name, [0])]
        if name in known
        else table[name].tolist()
        for name in columns
    ]
    filled = [each * count if len(each) < count else each for each in lists]
    names = tuple(columns)
    return Cases([_case(names, row) for row in zip(*filled, strict=True)], place)


@lru_cache(maxsize=65_536)
def _case(names: tuple[str, ...], row: tuple[Any, ...]) -> tuple[Case, tuple[int, ...]]:
    """Return a pipeline and its further numbers from their names and values."""
    own = dict(zip(names, row, strict=True))
    output, layout, schedule = (own.pop(name) for name in ("output_layers", "layout", "schedule"))
    flags = {name: bool(own.pop(name)) for name in _FLAGS}
    counts = {name: int(own.pop(name)) for name in _COUNTS}
    # NaN is no key of a cache
    output = None if output is None or np.isnan(output) else float(output)
    fields: dict[str, Any] = {**counts, **flags, "layout": layout or "", "schedule": schedule}
    return Case(**fields, output_layers=output), tuple(int(each) for each in own.values())


_CODED = ("layout", "output_layers", "schedule")
_FLAGS = ("counts_embedding", "counts_loss", "is_mixture")
_COUNTS = (
    *("layers", "dense_layers", "moe_period", "mtp_layers", "ranks", "chunks", "first", "last"),
)


def stage_layers(values: Values, layout: Values) -> tuple[Any, Any]:
    """Return the layers of the fullest stages and of the last stage of simple pipelines.

    Where stages cannot be even, the last one has a layer less, because it has the output layer. A
    program that balances stages counts the output layer as the number of layers with as many
    products.
    """
    stages = layout["pipeline_parallel"]
    most = np.ceil(values["num_layers"] / stages)
    last = np.floor(values["num_layers"] / stages)
    balances = values["balances_stages"]
    if not np.any(balances):
        return most, last
    fullest, behind = _balanced(values, stages)
    return np.where(balances, fullest, most), np.where(balances, behind, last)


def _balanced(values: Values, stages: Any) -> tuple[Any, Any]:
    """Return the layers of the first stage and of the one with the output layer, if balanced.

    A stage takes layers until its share of the products is exceeded (huggingface/nanotron
    @0e0a27ea src/nanotron/models/base.py build_model, models/llama.py get_block_compute_costs).
    """
    cost, total = _balanced_products(values)
    layers, each = values["num_layers"], total / (stages * cost)
    before = stages_before_output(values, stages)
    taken = np.where(before > 0, np.floor(before * total / (stages * cost)) + 1, 0.0)
    return np.minimum(np.floor(each) + 1, layers), np.maximum(layers - taken, 0.0)


def stages_before_output(values: Values, stages: Any) -> Any:
    """Return the number of stages before the one with the output layer, if balanced.

    It is one quotient of whole numbers. So a share of exactly n layers is exact, and n layers do
    not exceed it.
    """
    cost, total = _balanced_products(values)
    layers = np.maximum(number(values["num_layers"], 1.0), 1.0)
    return np.minimum(np.ceil(layers * stages * cost / total), stages) - 1


def _balanced_products(values: Values) -> tuple[Any, Any]:
    """Return the weights in a layer's products, and in those of all layers and the output layer.

    A layer has ``4 x heads x head size x hidden + 3 x ffn x hidden``; a shape that is not known
    counts as one weight a layer. Source: huggingface/nanotron @0e0a27ea
    src/nanotron/models/llama.py get_block_compute_costs.
    """
    hidden = number(values["hidden_size"])
    width = number(values["num_heads"]) * number(values["head_size"])
    cost = np.maximum(4 * width * hidden + 3 * number(values["ffn_hidden_size"]) * hidden, 1.0)
    layers = np.maximum(number(values["num_layers"], 1.0), 1.0)
    return cost, layers * cost + number(values["vocab_size"]) * hidden


def over_kinds(layers: Mapping[str, Any], figures: Mapping[str, Any]) -> Any:
    """Return the sum over kinds of layers: number of layers times the figure of one.

    The figure of a kind without layers is ignored: a batch may hold another model's figure there.
    """
    if len(layers) == 1:
        [(name, count)] = layers.items()
        return count * figures[name]
    return sum(np.where(count > 0, count * figures[name], 0.0) for name, count in layers.items())


def ranks_at(values: Values, layout: Values) -> Ranks:
    """Return the ranks of each row's pipeline that may need most memory: first and last, or more.

    A single stage counts as the first.
    """
    simple = is_simple(values, layout)
    most, last = stage_layers(values, layout)
    one = 1.0 * (layout["pipeline_parallel"] == 1)
    found = Ranks(
        by_kind(np.stack([most, last]), values),
        np.stack([np.ones_like(one), np.zeros_like(one)]),
        np.stack([one, np.ones_like(one)]),
    )
    if np.all(simple):
        return found
    others, cases = _others(case_columns(values, layout), simple, len(one))
    own = [ranks_of(case) for case, _ in cases.found]
    tables = [(each.layers, each.has_embedding, each.has_output) for each in own]
    return Ranks(*_with_others(found, tables, cases.place, others, len(one)))


def held_at(values: Values, layout: Values, simple: Any = None) -> Held:
    """Return the activations that the ranks of `ranks_at` hold at their peak.

    Parameters
    ----------
    simple
        See `is_simple`; None: not known yet.
    """
    simple = is_simple(values, layout) if simple is None else simple
    ranks, chunks = layout["pipeline_parallel"], layout["virtual_pipeline"]
    microbatches = microbatches_of(values, layout)
    most, last = stage_layers(values, layout)
    # interleaved: (ranks - 1)/chunks more than the pipeline is deep (arXiv 2205.05198)
    under_way = np.where(chunks > 1, ranks + (ranks - 1) / chunks, ranks)
    first = np.minimum(under_way, microbatches)
    behind = np.minimum(((chunks - 1) * ranks + 1) / chunks, microbatches)
    behind = np.where(ranks > 1, behind, 0.0)
    found = Held(
        by_kind(np.stack([most * first, last * behind]), values),
        np.stack([chunks * first, chunks * behind]),
        np.stack([1.0 * (ranks == 1), np.ones_like(behind)]),
    )
    if np.all(simple):
        return found
    columns = case_columns(values, layout) | {
        "microbatches": few_of(microbatches, values, layout),
        "group": number(values["microbatch_group"]),
        "ahead": runs_ahead(values),
    }
    others, cases = _others(columns, simple, len(microbatches))
    own = [
        held_of(case, count, in_a_row or usual_group(count, case.ranks), ahead)
        for case, (count, in_a_row, ahead) in cases.found
    ]
    return Held(*_with_others(found, own, cases.place, others, len(microbatches)))


def by_kind(layers: Array, values: Values) -> dict[str, Any]:
    """Return layers by kind, for pipelines whose layers are all of one kind."""
    mixed = values["sparse_share"]
    if not np.any(mixed):
        return {"dense": layers}
    if np.all(mixed == 1):
        return {"mixture": layers}
    return {"dense": layers * (1 - mixed), "mixture": layers * mixed}


def _others(columns: dict[str, Any], is_simple_row: Any, size: int) -> tuple[Array, Cases]:
    """Return the rows that are not simple, and their pipelines."""
    rows = np.flatnonzero(~np.broadcast_to(is_simple_row, size))
    if len(rows) < size:
        columns = {
            name: column[rows] if np.ndim(column) else column for name, column in columns.items()
        }
    return rows, cases_of(columns, len(rows))


def _with_others(
    simple: tuple[dict[str, Any], Any, Any],
    found: Sequence[tuple[Array, Array, Array]],
    place: Array,
    rows: Array,
    size: int,
) -> tuple[dict[str, Any], Any, Any]:
    """Return layers by kind and two further figures of all rows: [rank][row].

    A pipeline with fewer ranks than another repeats its last rank.

    Parameters
    ----------
    simple
        The figures of two ranks, computed as if all rows were simple.
    found
        Figures of each pipeline that is not simple, layers as [kind][rank].
    place, rows
        Place in `found` of each of the rows that are not simple, and the numbers of these rows.
    """
    height = max(2, *(len(each[1]) for each in found))
    table = np.empty((len(KINDS) + 2, height, len(found)))
    for pipeline, (layers, *further) in enumerate(found):
        count = layers.shape[1]
        table[: len(KINDS), :count, pipeline] = layers
        table[len(KINDS) :, :count, pipeline] = further
        table[:, count:, pipeline] = table[:, count - 1 : count, pipeline]

    def whole(before: Any, other: Array) -> Array:
        of_others = other.take(place, axis=1)
        if len(rows) == size:
            return of_others
        every = np.empty((height, size))
        every[:2] = before
        every[2:] = every[1]
        every[:, rows] = of_others
        return every

    layers_before, *before = simple
    kinds = {
        name: whole(layers_before.get(name, 0.0), table[kind])
        for kind, name in enumerate(KINDS)
        if table[kind].any() or (name in layers_before and len(rows) < size)
    }
    first, second = map(whole, before, table[len(KINDS) :])
    return kinds, first, second
