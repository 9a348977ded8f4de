"""One step of a pipeline of stages, put together from layers, vocabulary and replicas.

The rank that works longest works on every microbatch, and waits for others while the pipeline fills
and drains (module `schedule`): ``step = microbatches x rank + bubble + transfers + replicas``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import Gathered, stacked, take
from estimators.training_step import network
from estimators.training_step.layer import layer_of
from estimators.training_step.memory import (
    Microbatch,
    RankBytes,
    bytes_of_ranks,
    further_bytes,
    library_bytes,
    microbatch_of,
    needs_most,
    unused_bytes,
)
from estimators.training_step.pace import paced_by
from estimators.training_step.pipelines import microbatches_of, over_kinds
from estimators.training_step.replicas import Window, exchange_seconds
from estimators.training_step.sizes import average, kinds_of, of_last
from estimators.training_step.spent import Costs, Spent, spent_on
from estimators.training_step.vocabulary import (
    FurtherLayer,
    Vocabulary,
    vocabulary_of,
    with_further_tokens,
)

if TYPE_CHECKING:
    from estimators.training_step.pipelines import Pipelines
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.tables import Shared, Splits, ZeroStage
    from estimators.values import Array, Real

TIMES = (
    *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
    *("recompute_seconds", "host_seconds", "accumulation_seconds", "optimizer_seconds"),
    *("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds"),
    *("pipeline_comm_seconds", "data_comm_seconds", "bubble_seconds"),
)
"""Parts of a step: they add up to it."""


def figures_of(shared: Shared, problem: Problem, zero_stage: Array) -> dict[str, Gathered]:
    """Return every stored result by name, under the recomputation of `problem`.

    `zero_stage` is the ZeRO stage of each layout.
    """
    splits = shared.splits
    costs = costs_of(shared, problem)
    parts, window = passes(costs, shared.pipelines, problem, splits.split)
    stored = stored_bytes(shared, problem)
    ranks = bytes_of_ranks(stored, shared.flight, costs.layer, problem, splits.split)
    before = Before(reduce(np.add, parts.values()), window, ranks)
    by_stage = {
        stage: stage_figures(stage, figures, before, shared.end_seconds, problem)
        for stage, figures in shared.by_zero_stage.items()
    }
    parts["library_bytes"] = take(library_bytes(problem, splits.share), splits.to_share)
    parts["layer_joules"] = layer_joules(costs.layer, costs.vocabulary, problem, splits.split)
    parts["relative_clock"] = costs.layer.clock
    by_split = {name: Gathered(part, splits.to_split) for name, part in parts.items()}
    return by_split | of_layouts(zero_stage, by_stage, splits)


def costs_of(shared: Shared, problem: Problem) -> Costs:
    """Return the seconds of a microbatch; a layer is computed once for all splits that share it."""
    table, to_layer, size = shared.splits.layer, shared.splits.to_layer, shared.size
    kinds = kinds_of(problem)
    spent = [
        spent_on(layer_of(shared.work[kind.name], kind.problem, table), size, kind.problem, table)
        for kind in kinds
    ]
    of_average: Spent = average(kinds, spent)
    vocabulary = vocabulary_of(shared.vocabulary, problem, of_average.clock)
    if np.any(problem.shape.num_mtp_layers):
        figures = ([getattr(part, name) for part in spent] for name in FurtherLayer._fields)
        further = FurtherLayer(*(of_last(kinds, figure) for figure in figures))
        vocabulary = with_further_tokens(vocabulary, further, size, problem, table)
    layer = of_average.take(to_layer)
    by_kind = {kinds[0].name: layer}
    if len(kinds) > 1:
        by_kind = {
            kind.name: seconds.take(to_layer) for kind, seconds in zip(kinds, spent, strict=True)
        }
    vocabulary = Vocabulary(*(take(figure, to_layer) for figure in vocabulary))
    return Costs(layer, by_kind, vocabulary, shared.added)


def stored_bytes(shared: Shared, problem: Problem) -> dict[str, Microbatch]:
    """Return the bytes of a microbatch by kind of layer; `mtp` are layers of further tokens."""
    table, to_layer, size = shared.splits.layer, shared.splits.to_layer, shared.size
    kinds = kinds_of(problem)
    stored = {kind.name: microbatch_of(size, kind.problem, table).take(to_layer) for kind in kinds}
    if np.any(problem.shape.num_mtp_layers):
        last = kinds[-1]
        further = take(further_bytes(size, last.problem), to_layer)
        layer = stored[last.name]
        stored["mtp"] = layer._replace(kept=layer.kept + further)
    return stored


def passes(
    costs: Costs, pipelines: Pipelines, problem: Problem, layout: Layout
) -> tuple[dict[str, Real], Window]:
    """Return the seconds of a step by part, and the window in which transfers can hide.

    The optimizer and the exchange between replicas are not among the parts: they depend on the ZeRO
    stage.

    Parameters
    ----------
    costs
        One element a row of `layout`.
    """
    layer, kinds, ends = costs.layer, costs.by_kind, costs.vocabulary
    microbatches = microbatches_of(problem.run, layout)
    paced = paced_by(costs, pipelines, problem, layout)
    pace = paced.pace
    # layers that predict further tokens have their time in that of the output layer
    layers = {name: count for name, count in pace.layers.items() if name in kinds}
    parts = {
        name: microbatches
        * over_kinds(layers, {kind: spent.parts[name] for kind, spent in kinds.items()})
        for name in layer.parts
    }
    has_output, has_embedding = microbatches * pace.output, microbatches * pace.embedding
    parts["vocabulary_seconds"] = has_output * ends.output + has_embedding * ends.embedding
    parts["tensor_comm_seconds"] = (
        parts["tensor_comm_seconds"]
        + has_output * ends.output_comm
        + has_embedding * ends.embedding_comm
    )
    parts["host_seconds"] = np.maximum(parts["host_seconds"] - microbatches * paced.saved, 0.0)
    parts["accumulation_seconds"] = microbatches * paced.added
    parts["bubble_seconds"] = pace.bubble
    parts["pipeline_comm_seconds"] = _transfers(layer, problem, layout)
    return parts, Window(
        paced.forward,
        paced.backward,
        layer.forward,
        layer.seconds - layer.forward,
        microbatches,
        layout.pipeline_parallel,
        layout.virtual_pipeline,
    )


class Before(NamedTuple):
    """A step before its exchange over replicas and its optimizer, one element a split.

    Attributes
    ----------
    seconds
        The sum of its parts.
    window
        Arithmetic that an exchange may hide in.
    ranks
        Bytes of the ranks that may need most memory, without their state.
    """

    seconds: Real
    window: Window
    ranks: list[RankBytes]


class StageFigures(NamedTuple):
    """Figures under one ZeRO stage.

    Attributes
    ----------
    by_split
        Name -> figures with one element a split.
    by_share
        Name -> figures with one element a share, for each rank that may need most memory.
    rank
        For each split the place of the rank that needs most.
    """

    by_split: dict[str, Real]
    by_share: dict[str, list[Real]]
    rank: Array


def stage_figures(
    stage: int, figures: ZeroStage, before: Before, end_seconds: Real, problem: Problem
) -> StageFigures:
    """Return the figures under one ZeRO stage, of the rank that needs most memory then."""
    exchange = exchange_seconds(stage, figures.exchange, problem, before.window) + end_seconds
    rank, needed = needs_most(figures.state_of_split, before.ranks)
    place = rank * np.size(rank) + np.arange(np.size(rank))
    fullest = RankBytes(
        *(np.stack(of_ranks).take(place) for of_ranks in zip(*before.ranks, strict=True))
    )
    return StageFigures(
        {
            "step_seconds": before.seconds + exchange + figures.optimizer_of_split,
            "data_comm_seconds": exchange,
            "unused_bytes": unused_bytes(needed, fullest.besides, problem.kept.fragmentation),
            "activations_bytes": fullest.activations,
            "logits_bytes": fullest.logits,
        },
        {
            "optimizer_seconds": [figures.optimizer] * len(figures.state),
            **{name: [state[name] for state in figures.state] for name in figures.state[0]},
        },
        rank,
    )


def of_layouts(
    zero_stage: Array, by_stage: Mapping[int, StageFigures], splits: Splits
) -> dict[str, Gathered]:
    """Return the figures of each layout's ZeRO stage, for the rank that needs most memory."""
    stages = list(by_stage.values())
    num_splits, num_shares = len(stages[0].rank), np.size(splits.share.pipeline_parallel)
    num_ranks = len(next(iter(stages[0].by_share.values())))
    split = np.arange(num_splits) if splits.to_split is None else splits.to_split
    share = np.arange(num_splits) if splits.to_share is None else splits.to_share
    ordinal = np.zeros(max(by_stage) + 1, dtype=np.int64)
    ordinal[list(by_stage)] = np.arange(len(stages))
    # tables of all stages one below the other: a row is a stage and a split
    place = ordinal.take(zero_stage) * num_splits + split
    # or a stage, a rank and a share
    share_of = [
        share + (num_ranks * number + stage.rank) * num_shares
        for number, stage in enumerate(stages)
    ]
    share_place = np.concatenate(share_of).take(place)
    by_split = {
        name: Gathered(stacked([stage.by_split[name] for stage in stages], num_splits), place)
        for name in stages[0].by_split
    }
    return by_split | {
        name: Gathered(
            stacked([table for stage in stages for table in stage.by_share[name]], num_shares),
            share_place,
        )
        for name in stages[0].by_share
    }


def layer_joules(layer: Spent, vocabulary: Vocabulary, problem: Problem, layout: Layout) -> Real:
    """Return the joules above idle that an average GPU spends on layers and vocabulary in a step.

    ``microbatches x (layers x joules of a layer + joules of the vocabulary) / stages``.

    Parameters
    ----------
    layer, vocabulary
        Figures of one microbatch, one element a row of `layout`.
    """
    microbatches = microbatches_of(problem.run, layout)
    of_all = problem.shape.num_layers * layer.joules + vocabulary.joules
    return microbatches * of_all / layout.pipeline_parallel


def _transfers(layer: Spent, problem: Problem, layout: Layout) -> Real:
    """Return the seconds of a step for activations and their gradients between stages.

    Each rank of a tensor-parallel group sends its share of the tokens. A stage that needs all
    tokens gathers them in its node (arXiv 2104.04473 section 4.1). Further messages of a program,
    and waits of its host, take `pipeline_hop_seconds`.

    With m microbatches, v chunks, p stages and the hidden share o (0 for one chunk) a step has
    ``v m (1 - o) + p - 1 + o p (v - 1)`` transfers each way.
    """
    microbatches = microbatches_of(problem.run, layout)
    group = network.pipeline_of(problem.network, layout)
    once = network.neighbour_seconds(group, layer.sent_bytes, problem.network) + layer.gathering
    once = once + problem.program.pipeline_hop_seconds
    stages, chunks = layout.pipeline_parallel, layout.virtual_pipeline
    # a stage with several chunks waits only while the pipeline fills and drains
    overlap = np.where(chunks > 1, problem.overlap.pipeline_overlap_fraction, 0.0)
    steady = chunks * microbatches * (1 - overlap)
    ends = stages - 1 + overlap * stages * (chunks - 1)
    return np.where(stages > 1, 2 * once * (steady + ends), 0.0)
