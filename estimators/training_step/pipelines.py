"""The pipelines of many layouts: those that are alike are placed and replayed once.

Most are simple: stages of one kind of layer that are even, or that have an odd layer each at the
start. Closed forms cover them. Others are looked up in `placement` and `in_flight`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """What those ranks keep of microbatches at their peak: [rank][row].

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
    """Pipelines that differ, and which of them each row has."""

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
    """Return whether a rank of interleaved chunks runs one pass forward more before its first back.

    A program that hides the exchange of experts' tokens behind another microbatch does
    (Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py
    `get_pp_rank_microbatches`).
    """
    return flag(values["overlaps_expert_comm"]) & is_mixture(values)


def is_simple(values: Values, layout: Values) -> Any:
    """Return for each row whether the closed forms of even stages hold, or of odd layers first."""
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
    if "microbatch_size" in layout and np.ndim(values["seq_len"]) and np.any(chunks > 1):
        usual = usual & (np.remainder(microbatches_of(values, layout), ranks) == 0)
    return found & ~special & (plain | usual & np.logical_not(runs_ahead(values)))


def microbatches_of(values: Values, layout: Values) -> Any:
    """Return the microbatches of a step and replica."""
    return values["global_batch_size"] / (layout["data_parallel"] * layout["microbatch_size"])


GROUPS = 4
"""Groups of microbatches in which a pipeline fills, runs and drains: further ones repeat that."""


def few_of(microbatches: Any, values: Values, layout: Values) -> Any:
    """Return the microbatches of a step, those left out that change neither its ends nor its peak.

    Pipelines that differ in these alone are one case.
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

    As many as there are ranks, or more where a smaller rest of them would be left than ranks
    (Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py,
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
    """Return the pipelines that differ.

    Parameters
    ----------
    columns
        As of `case_columns`, and further whole numbers: each pipeline is a `Case` with a tuple of
        them.
    size
        Rows.
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
    """Return the layers of the stages that have most, and of the last stage, of simple pipelines.

    Where stages cannot be even, the last one has one layer less: it has the output layer. A
    program that balances stages weighs the output layer by its products: as many layers as have
    the same.
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
    layers, hidden = values["num_layers"], values["hidden_size"]
    width = values["num_heads"] * values["head_size"]
    cost = 4 * width * hidden + 3 * values["ffn_hidden_size"] * hidden
    each = (layers + values["vocab_size"] * hidden / cost) / stages
    # stages before the one that takes the last layer
    before = np.minimum(np.ceil(layers / each), stages) - 1
    taken = np.where(before > 0, np.floor(before * each) + 1, 0.0)
    return np.minimum(np.floor(each) + 1, layers), np.maximum(layers - taken, 0.0)


def over_kinds(layers: Mapping[str, Any], figures: Mapping[str, Any]) -> Any:
    """Return the sum over kinds of layers of their number times a figure of one.

    Where there is none of a kind its figure does not count: it may be that of another model.
    """
    if len(layers) == 1:
        [(name, count)] = layers.items()
        return count * figures[name]
    return sum(np.where(count > 0, count * figures[name], 0.0) for name, count in layers.items())


def ranks_at(values: Values, layout: Values) -> Ranks:
    """Return the ranks of each row's pipeline that may need most memory: first and last, or more.

    One stage alone is the first.
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
    cases = cases_of(case_columns(values, layout), len(one))
    own = [ranks_of(case) for case, _ in cases.found]
    return Ranks(
        {
            name: _merged(found.layers.get(name), _gathered(counts, cases.place), simple)
            for name, counts in _kinds([each.layers for each in own]).items()
        },
        _merged(found.embedding, _gathered([e.has_embedding for e in own], cases.place), simple),
        _merged(found.output, _gathered([e.has_output for e in own], cases.place), simple),
    )


def held_at(values: Values, layout: Values) -> Held:
    """Return what the ranks of `ranks_at` keep of microbatches at their peak."""
    simple = is_simple(values, layout)
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
    cases = cases_of(columns, len(microbatches))
    own = [
        held_of(case, count, in_a_row or usual_group(count, case.ranks), ahead)
        for case, (count, in_a_row, ahead) in cases.found
    ]
    return Held(
        {
            name: _merged(found.layers.get(name), _gathered(counts, cases.place), simple)
            for name, counts in _kinds([each.layers for each in own]).items()
        },
        _merged(found.chunks, _gathered([each.chunks for each in own], cases.place), simple),
        _merged(found.outputs, _gathered([each.outputs for each in own], cases.place), simple),
    )


def by_kind(layers: Array, values: Values) -> dict[str, Any]:
    """Return layers by kind, of pipelines with one kind each."""
    mixed = values["sparse_share"]
    if not np.any(mixed):
        return {"dense": layers}
    if np.all(mixed == 1):
        return {"mixture": layers}
    return {"dense": layers * (1 - mixed), "mixture": layers * mixed}


def _kinds(layers: list[Array]) -> dict[str, list[Array]]:
    """Return layers by kind and pipeline, without kinds that none has."""
    return {
        name: [each[kind] for each in layers]
        for kind, name in enumerate(KINDS)
        if any(each[kind].any() for each in layers)
    }


def _gathered(found: list[Array], place: Array) -> Array:
    """Return figures of several ranks for each row, [rank][row]; the last rank fills the rest."""
    height = max(2, *(len(each) for each in found))
    ranks = np.arange(height)
    filled = np.stack([each[np.minimum(ranks, len(each) - 1)] for each in found], axis=1)
    return filled[:, place]


def _merged(simple: Any, other: Array, is_simple_row: Any) -> Any:
    """Return one table: simple rows with two ranks, others with more."""
    if not np.any(is_simple_row):
        return other
    if simple is None:
        simple = np.zeros_like(other[:2])
    simple = np.broadcast_to(simple, (2, other.shape[1]))
    filled = np.concatenate([simple, np.repeat(simple[1:], len(other) - 2, axis=0)])
    return np.where(is_simple_row, filled, other)
