"""The pipelines of many layouts: equal ones are placed and replayed once.

Modules `placement` and `in_flight` compute one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from estimators.factored import distinct_rows
from estimators.structure import number
from estimators.training_step.in_flight import held_of, ranks_of
from estimators.training_step.placement import KINDS, Case

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Choices, Layout, Problem, Run
    from estimators.values import Array, Flag, Real, Text

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

    layers: dict[str, Array]
    embedding: Array
    output: Array


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

    layers: dict[str, Array]
    chunks: Array
    outputs: Array


class Cases(NamedTuple):
    """The distinct pipelines with their further numbers, and the place of each row among them."""

    pipelines: list[tuple[Case, tuple[int, ...]]]
    place: Array


def has_text(value: Text) -> Flag:
    """Return whether there is a text: one, or for each row of a column."""
    if value is None or isinstance(value, str):
        return np.bool_(value is not None)
    return np.fromiter((text is not None for text in value), bool, len(value))


def is_placed(choices: Choices) -> Flag:
    """Return whether a choice says where layers are."""
    ends = number(choices.layers_in_first_stage) + number(choices.layers_in_last_stage) > 0
    counts = choices.counts_embedding | choices.counts_loss
    return has_text(choices.pipeline_layout) | ends | counts


def runs_ahead(problem: Problem) -> Flag:
    """Return whether the warm-up of a rank with interleaved chunks has one forward pass more.

    It has where the program hides the exchange of experts' tokens behind another microbatch
    (Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py
    `get_pp_rank_microbatches`).
    """
    return problem.overlap.overlaps_expert_comm & (problem.shape.num_experts > 1)


def microbatches_of(run: Run, layout: Layout) -> Real:
    """Return the microbatches of a step on one replica."""
    return run.global_batch_size / (layout.data_parallel * layout.microbatch_size)


GROUPS = 4
"""Groups of microbatches that show how a pipeline fills, runs and drains; further ones repeat."""


def few_of(microbatches: Real, choices: Choices, layout: Layout) -> Real:
    """Return the microbatches of a step, reduced to as many as decide its ends and its peak.

    Pipelines that differ only in further microbatches are one case.
    """
    ranks, chunks = layout.pipeline_parallel, layout.virtual_pipeline
    group = np.where(choices.microbatch_group > 0, choices.microbatch_group, ranks)
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


def case_columns(
    shape: Shape, choices: Choices, layout: Layout, output_layers: Real
) -> dict[str, Real | Flag | Text]:
    """Return the fields of `placement.Case` as numbers or columns; texts stay texts.

    `output_layers` is the result of `layers_of_output`; NaN where stages are not balanced.
    """
    return {
        "layers": shape.num_layers,
        "dense_layers": number(shape.num_dense_layers),
        "moe_period": number(shape.moe_period, 1.0),
        "mtp_layers": number(shape.num_mtp_layers),
        "ranks": layout.pipeline_parallel,
        "chunks": layout.virtual_pipeline,
        "first": number(choices.layers_in_first_stage),
        "last": number(choices.layers_in_last_stage),
        "counts_embedding": choices.counts_embedding,
        "counts_loss": choices.counts_loss,
        "layout": choices.pipeline_layout,
        "is_mixture": shape.num_experts > 1,
        "output_layers": output_layers,
        "schedule": choices.schedule,
    }


def layers_of_output(problem: Problem) -> Real:
    """Return the layers with as many products as the output layer; NaN: not balanced."""
    shape, balances = problem.shape, problem.program.balances_stages
    if not np.any(balances):
        return np.nan
    cost, _ = _balanced_products(shape)
    return np.where(balances, shape.vocab_size * shape.hidden_size / cost, np.nan)


def cases_of(columns: Mapping[str, Real | Flag | Text], size: int) -> Cases:
    """Return the distinct pipelines, each a `Case` with a tuple of its further numbers.

    Parameters
    ----------
    columns
        Columns of `case_columns`, then columns of further whole numbers.
    size
        Number of rows.
    """
    same: dict[str, Any] = {}
    coded: dict[str, Array] = {}
    meaning: dict[str, list[Any]] = {}
    for name, column in columns.items():
        table = np.asarray(column)
        if table.ndim == 0:
            [same[name]], _ = _codes(table.reshape(1))
        elif name in _CODED:
            meaning[name], coded[name] = _codes(table)
        else:
            coded[name] = table
    rows: dict[str, Array] = {}
    place = np.zeros(size, dtype=np.int64)
    if coded:
        rows, place = distinct_rows(coded, tuple(coded))
    count = max((len(column) for column in rows.values()), default=1)
    lists = {name: [value] * count for name, value in same.items()}
    for name, column in rows.items():
        values = column.tolist()
        lists[name] = [meaning[name][code] for code in values] if name in meaning else values
    names = tuple(columns)
    pipelines = zip(*(lists[name] for name in names), strict=True)
    return Cases([_case(names, row) for row in pipelines], place)


def _codes(column: Array) -> tuple[list[Any], Array]:
    """Return the distinct values of a column, and the place of each row's; NaN is None."""
    values = [None if value is None or value != value else value for value in column.tolist()]
    distinct_values = list(dict.fromkeys(values))
    code = {value: number for number, value in enumerate(distinct_values)}
    return distinct_values, np.fromiter((code[value] for value in values), np.int64, len(values))


@lru_cache(maxsize=65_536)
def _case(names: tuple[str, ...], row: tuple[Any, ...]) -> tuple[Case, tuple[int, ...]]:
    """Return a pipeline and its further numbers from their names and values."""
    values = dict(zip(names, row, strict=True))
    output, layout, schedule = (values.pop(name) for name in _CODED)
    flags = {name: bool(values.pop(name)) for name in _FLAGS}
    counts: dict[str, Any] = {name: int(values.pop(name)) for name in _COUNTS}
    case = Case(**counts, **flags, layout=layout or "", schedule=schedule, output_layers=output)
    return case, tuple(int(value) for value in values.values())


_CODED = ("output_layers", "layout", "schedule")
_FLAGS = ("counts_embedding", "counts_loss", "is_mixture")
_COUNTS = (
    *("layers", "dense_layers", "moe_period", "mtp_layers", "ranks", "chunks", "first", "last"),
)


def stages_before_output(shape: Shape, stages: Real) -> Real:
    """Return the number of stages before the one with the output layer, if balanced.

    It is one quotient of whole numbers. So a share of exactly n layers is exact, and n layers do
    not exceed it.
    """
    cost, total = _balanced_products(shape)
    layers = np.maximum(number(shape.num_layers, 1.0), 1.0)
    return np.minimum(np.ceil(layers * stages * cost / total), stages) - 1


def _balanced_products(shape: Shape) -> tuple[Real, Real]:
    """Return the weights in a layer's products, and in those of all layers and the output layer.

    A layer has ``4 x heads x head size x hidden + 3 x ffn x hidden``; a shape that is not known
    counts as one weight a layer. Source: huggingface/nanotron @0e0a27ea
    src/nanotron/models/llama.py get_block_compute_costs.
    """
    hidden = number(shape.hidden_size)
    width = number(shape.num_heads) * number(shape.head_size)
    cost = np.maximum(4 * width * hidden + 3 * number(shape.ffn_hidden_size) * hidden, 1.0)
    layers = np.maximum(number(shape.num_layers, 1.0), 1.0)
    return cost, layers * cost + shape.vocab_size * hidden


def over_kinds(layers: Mapping[str, Real], figures: Mapping[str, Real]) -> Real:
    """Return the sum over kinds of layers: number of layers times the figure of one.

    The figure of a kind without layers is ignored: a batch may hold another model's figure there.
    """
    if len(layers) == 1:
        [(name, count)] = layers.items()
        return count * figures[name]
    parts = (np.where(count > 0, count * figures[name], 0.0) for name, count in layers.items())
    return reduce(np.add, parts)


def ranks_at(problem: Problem, layout: Layout) -> Ranks:
    """Return the ranks of each row's pipeline that may need most memory."""
    columns = case_columns(problem.shape, problem.choices, layout, layers_of_output(problem))
    cases = cases_of(columns, np.size(layout.pipeline_parallel))
    tables = [
        (candidates.layers, candidates.has_embedding, candidates.has_output)
        for candidates in (ranks_of(case) for case, _ in cases.pipelines)
    ]
    return Ranks(*_of_rows(tables, cases.place))


def held_at(problem: Problem, layout: Layout) -> Held:
    """Return the activations that the ranks of `ranks_at` hold at their peak."""
    microbatches = microbatches_of(problem.run, layout)
    cases = cases_of(scheduled_columns(problem, layout, microbatches), np.size(microbatches))
    tables = [
        held_of(case, count, in_a_row or usual_group(count, case.ranks), ahead)
        for case, (count, in_a_row, ahead) in cases.pipelines
    ]
    return Held(*_of_rows(tables, cases.place))


def scheduled_columns(
    problem: Problem, layout: Layout, microbatches: Real
) -> dict[str, Real | Flag | Text]:
    """Return the columns of `case_columns`, and three whole numbers that order the passes.

    They are the microbatches, those that a chunk takes in a row (0: as many as usual), and the
    passes that a rank runs ahead.
    """
    choices = problem.choices
    return case_columns(problem.shape, choices, layout, layers_of_output(problem)) | {
        "microbatches": few_of(microbatches, choices, layout),
        "group": number(choices.microbatch_group),
        "ahead": runs_ahead(problem),
    }


def _of_rows(
    pipelines: Sequence[tuple[Array, Array, Array]], place: Array
) -> tuple[dict[str, Array], Array, Array]:
    """Return layers by kind and two further figures of each row: [rank][row].

    A pipeline with fewer ranks than another repeats its last rank.

    Parameters
    ----------
    pipelines
        Figures of each pipeline, layers as [kind][rank].
    place
        The pipeline of each row.
    """
    height = max(len(figures[1]) for figures in pipelines)
    table = np.empty((len(KINDS) + 2, height, len(pipelines)))
    for pipeline, (layers, *further) in enumerate(pipelines):
        count = layers.shape[1]
        table[: len(KINDS), :count, pipeline] = layers
        table[len(KINDS) :, :count, pipeline] = further
        table[:, count:, pipeline] = table[:, count - 1 : count, pipeline]
    rows = table.take(place, axis=2)
    kinds = {name: rows[kind] for kind, name in enumerate(KINDS) if table[kind].any()}
    return kinds, rows[-2], rows[-1]
