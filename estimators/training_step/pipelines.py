"""The pipelines of many layouts: equal ones are placed and replayed once.

Modules `placement` and `in_flight` compute one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from estimators.factored import distinct_rows
from estimators.structure import number
from estimators.training_step.in_flight import held_of, ranks_of
from estimators.training_step.placement import KINDS, NOT_BALANCED, Case

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Choices, Layout, Problem, Run
    from estimators.values import Array, Flag, Real, Text


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


class Pipeline(NamedTuple):
    """One pipeline, with the numbers that order its passes.

    Attributes
    ----------
    num_microbatches
        Microbatches of a step, reduced by `few_of`.
    group
        Microbatches that a chunk takes in a row.
    ahead
        Further forward passes in the warm-up of a rank with interleaved chunks: 1 where the program
        hides the exchange of experts' tokens behind another microbatch (Megatron-LM @d98e8a64
        megatron/core/pipeline_parallel/schedules.py `get_pp_rank_microbatches`).
    """

    case: Case
    num_microbatches: int
    group: int
    ahead: int


class Pipelines(NamedTuple):
    """The distinct pipelines of a table of layouts, and the place of each row among them."""

    distinct: list[Pipeline]
    place: Array


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


def pipelines_of(problem: Problem, layout: Layout) -> Pipelines:
    """Return the pipelines of a table of layouts."""
    choices, overlap = problem.choices, problem.overlap
    microbatches = microbatches_of(problem.run, layout)
    columns = case_columns(problem.shape, choices, layout, layers_of_output(problem)) | {
        "num_microbatches": few_of(microbatches, choices, layout),
        "group": number(choices.microbatch_group),
        "ahead": overlap.overlaps_expert_comm & (problem.shape.num_experts > 1),
    }
    cases, place = cases_of(columns, np.size(microbatches))
    pipelines = [
        Pipeline(case, count, group or usual_group(count, case.ranks), ahead)
        for case, (count, group, ahead) in cases
    ]
    return Pipelines(pipelines, place)


def case_columns(
    shape: Shape, choices: Choices, layout: Layout, output_layers: Real
) -> dict[str, Real | Flag | Text]:
    """Return the fields of `placement.Case` in order, as numbers or columns; texts stay texts.

    `output_layers` is the result of `layers_of_output`.
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


_KEPT_AS_THEY_ARE = ("layout", "output_layers", "schedule")
"""Fields of `placement.Case` that are no whole numbers."""


def cases_of(
    columns: Mapping[str, Any], size: int
) -> tuple[list[tuple[Case, tuple[int, ...]]], Array]:
    """Return the distinct pipelines, each with its further numbers, and the place of each row.

    Parameters
    ----------
    columns
        Columns of `case_columns`, then columns of further whole numbers.
    size
        Number of rows.
    """
    codes: dict[str, Array] = {}
    meaning: dict[str, list[Any]] = {}
    for name, column in columns.items():
        if np.ndim(column) and name in _KEPT_AS_THEY_ARE:
            numbers: dict[Any, int] = {}
            codes[name] = np.array([numbers.setdefault(v, len(numbers)) for v in column.tolist()])
            meaning[name] = list(numbers)
        elif np.ndim(column):
            codes[name] = column
    rows: dict[str, Array] = {}
    place = np.zeros(size, dtype=np.int64)
    if codes:
        rows, place = distinct_rows(codes, tuple(codes))
    count = len(next(iter(rows.values()))) if rows else 1
    fields = []
    for name, column in columns.items():
        if name in meaning:
            values = [meaning[name][code] for code in rows[name].tolist()]
        elif name in rows:
            values = rows[name].astype(np.int64).tolist()
        else:
            values = [column if name in _KEPT_AS_THEY_ARE else int(column)] * count
        fields.append(values)
    num_fields = len(Case._fields)
    pipelines = [(Case(*row[:num_fields]), row[num_fields:]) for row in zip(*fields, strict=True)]
    return pipelines, place


def layers_of_output(problem: Problem) -> Real:
    """Return the layers with as many products as the output layer, where stages are balanced."""
    shape, balances = problem.shape, problem.program.balances_stages
    if not np.any(balances):
        return NOT_BALANCED
    cost, _ = _balanced_products(shape)
    layers = np.where(balances, shape.vocab_size * shape.hidden_size / cost, NOT_BALANCED)
    return number(layers, NOT_BALANCED)


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


def ranks_at(pipelines: Pipelines) -> Ranks:
    """Return the ranks of each row's pipeline that may need most memory."""
    return Ranks(*_of_rows([ranks_of(of.case)[1:] for of in pipelines.distinct], pipelines.place))


def held_at(pipelines: Pipelines) -> Held:
    """Return the activations that the ranks of `ranks_at` hold at their peak."""
    return Held(*_of_rows([held_of(*of) for of in pipelines.distinct], pipelines.place))


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
