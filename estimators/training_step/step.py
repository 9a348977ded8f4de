"""One step of a pipeline of stages, put together from layers, vocabulary and replicas.

The rank that works longest works on every microbatch, and waits for others while the pipeline fills
and drains (module `schedule`)::

    step = microbatches x (layers + vocabulary + adding of gradients) + bubble
           + transfers between stages + exchange between replicas + optimizer
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.decoder import attention_weights, attention_widths, ffn_width
from estimators.factored import Gathered, stacked, take
from estimators.training_step import network
from estimators.training_step.host import QUEUE
from estimators.training_step.kinds import kinds_of, of_last, over_kinds
from estimators.training_step.layer import layer_of
from estimators.training_step.memory import (
    bytes_of_ranks,
    library_bytes,
    peak_of,
    stored_bytes,
)
from estimators.training_step.pipelines import Pipelines, microbatches_of
from estimators.training_step.replicas import Window, exchange_seconds
from estimators.training_step.schedule import pace_of
from estimators.training_step.spent import Added, Spent, spent_on
from estimators.training_step.vocabulary import (
    FurtherLayer,
    Vocabulary,
    vocabulary_of,
    with_further_tokens,
)

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.tables import Shared, Splits
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
    splits, layout = shared.splits, shared.splits.split
    costs = costs_of(shared, problem)
    parts, window = passes(costs, shared.pipelines, problem, layout)
    before_exchange = reduce(np.add, parts.values())
    stored = take(stored_bytes(shared.size, problem, splits.layer), splits.to_layer)
    ranks = bytes_of_ranks(stored, shared.flight, costs.layer, problem, layout)
    by_stage = {}
    for stage, zero in shared.by_zero_stage.items():
        exchange = exchange_seconds(stage, zero.exchange, problem, window) + shared.end_seconds
        fullest, memory = peak_of(zero.state_of_split, ranks, problem.kept.fragmentation)
        by_split = {
            "step_seconds": before_exchange + exchange + zero.optimizer_of_split,
            "data_comm_seconds": exchange,
            **memory,
        }
        by_stage[stage] = StageFigures(by_split, zero.by_share, fullest)
    parts["library_bytes"] = take(library_bytes(problem, splits.share), splits.to_share)
    # joules above idle of an average GPU
    of_all = problem.shape.num_layers * costs.layer.joules + costs.vocabulary.joules
    parts["layer_joules"] = window.microbatches * of_all / layout.pipeline_parallel
    parts["relative_clock"] = costs.layer.clock
    by_name = {name: Gathered(part, splits.to_split) for name, part in parts.items()}
    return by_name | of_layouts(zero_stage, by_stage, splits)


# ---- one microbatch ----


class Costs(NamedTuple):
    """Seconds and joules of a microbatch in each split.

    Attributes
    ----------
    layer
        Those of an average layer.
    by_kind
        Kind of layer -> those of one.
    vocabulary
        Those of embedding and output layer.
    added
        Seconds to add gradients up.
    """

    layer: Spent
    by_kind: dict[str, Spent]
    vocabulary: Vocabulary
    added: Added


def costs_of(shared: Shared, problem: Problem) -> Costs:
    """Return the seconds of a microbatch; a layer is computed once for all splits that share it."""
    table, to_layer, size = shared.splits.layer, shared.splits.to_layer, shared.size
    kinds = kinds_of(problem)
    spent = {
        kind.name: spent_on(
            layer_of(shared.work[kind.name], kind.problem, table), size, kind.problem, table
        )
        for kind in kinds
    }
    average = over_kinds({kind.name: kind.share for kind in kinds}, spent)
    vocabulary = vocabulary_of(shared.vocabulary, problem)
    if np.any(problem.shape.num_mtp_layers):
        seconds, joules = (
            of_last(kinds, [getattr(of_kind, name) for of_kind in spent.values()])
            for name in FurtherLayer._fields
        )
        further = FurtherLayer(seconds, joules)
        vocabulary = with_further_tokens(vocabulary, further, size, problem, table)
    layer = take(average, to_layer)
    by_kind = take(spent, to_layer) if len(kinds) > 1 else {kinds[0].name: layer}
    return Costs(layer, by_kind, take(vocabulary, to_layer), shared.added)


# ---- all microbatches ----


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
    layer, kinds, ends, added = costs
    pace = pace_of(work_of(costs), pipelines, problem, layout)
    # layers that predict further tokens have their time in that of the output layer
    layers = {name: count for name, count in pace.layers.items() if name in kinds}
    once = over_kinds(layers, {name: spent.parts for name, spent in kinds.items()})
    forward = over_kinds(layers, {name: spent.forward for name, spent in kinds.items()})
    both = over_kinds(layers, {name: spent.seconds for name, spent in kinds.items()})
    of_ends = pace.embedding * (ends.embedding + ends.embedding_comm)
    of_ends = of_ends + pace.output * (ends.output + ends.output_comm)
    forward, both = forward + of_ends / 3, both + of_ends
    is_single, num_layers = layout.pipeline_parallel == 1, problem.shape.num_layers
    adding = over_kinds(pace.layers, added.layers)
    adding = adding + (pace.embedding + pace.output) * added.vocabulary
    # one table may be both embedding and output layer
    adding = np.where(is_single, added.share, adding)
    busy = both + adding - num_layers * layer.waits
    saved = np.where(is_single, saved_seconds(layer, busy, num_layers, problem), 0.0)
    busy_layer = layer.forward - layer.forward_waits
    busy_forward = forward - num_layers * layer.forward_waits
    evened = forward_seconds(layer, busy_forward, busy, num_layers, problem)
    runs_ahead = is_single & (problem.shape.sparse_share == 0)
    forward = np.where(runs_ahead, evened, forward)
    # the host's waits in a layer, less those that the stage saves
    of_layer = np.maximum((forward - of_ends / 3) / num_layers, busy_layer)
    of_layer = np.where(runs_ahead, of_layer, layer.forward)

    microbatches = microbatches_of(problem.run, layout)
    parts = {name: microbatches * part for name, part in once.items()}
    has_output, has_embedding = microbatches * pace.output, microbatches * pace.embedding
    parts["vocabulary_seconds"] = has_output * ends.output + has_embedding * ends.embedding
    parts["tensor_comm_seconds"] = (
        parts["tensor_comm_seconds"]
        + has_output * ends.output_comm
        + has_embedding * ends.embedding_comm
    )
    parts["host_seconds"] = np.maximum(parts["host_seconds"] - microbatches * saved, 0.0)
    parts["accumulation_seconds"] = microbatches * adding
    parts["bubble_seconds"] = pace.bubble
    parts["pipeline_comm_seconds"] = transfers(layer, microbatches, problem, layout)
    return parts, Window(
        forward,
        both + adding - saved - forward,
        of_layer,
        layer.seconds - saved / num_layers - of_layer,
        microbatches,
        layout.pipeline_parallel,
        layout.virtual_pipeline,
    )


def work_of(costs: Costs) -> dict[str, tuple[Real, Real, Real]]:
    """Return the seconds of a microbatch by kind of work, as `schedule.pace_of` takes them.

    A third of the time of embedding and output layer is forward. Of the output layer another third
    makes the gradient of its weights; of the embedding the whole backward pass does. The time of
    layers that predict further tokens is part of the time of the output layer.
    """
    vocabulary, added = costs.vocabulary, costs.added
    work: dict[str, tuple[Real, Real, Real]] = {}
    for name, spent in costs.by_kind.items():
        adding = added.layers[name]
        backward = spent.seconds - spent.forward + adding
        work[name] = (spent.forward, backward, spent.weight_gradients + adding)
    if "mtp" in added.layers:
        work["mtp"] = (0.0, added.layers["mtp"], added.layers["mtp"])
    embedding = vocabulary.embedding + vocabulary.embedding_comm
    gradient = embedding * 2 / 3 + added.vocabulary
    work["embedding"] = (embedding / 3, gradient, gradient)
    output = vocabulary.output + vocabulary.output_comm
    work["output"] = (output / 3, output * 2 / 3 + added.vocabulary, output / 3 + added.vocabulary)
    return work


def saved_seconds(layer: Spent, work: Real, layers: Real, problem: Problem) -> Real:
    """Return the seconds of waiting that a single stage saves in a microbatch.

    A stage of a pipeline synchronizes between passes and saves nothing. A single stage does not
    synchronize: during passes that keep the GPU busy for longer, and during the output layer, the
    host runs ahead, as far as the queue is long. At best the longer of all launches and all work
    remains. A mixture saves nothing, because the host waits for the GPU in each layer.

    Parameters
    ----------
    layer
        One layer and microbatch.
    work
        Seconds of the GPU for the microbatch: layers, vocabulary and gradients.
    layers
        Layers of the stage.
    """
    launched = layers * layer.launched + vocabulary_launched(problem)
    together = np.maximum(launched - work, 0.0)
    saved = (layers * layer.waits - together) * queued_share(layer, layers)
    return np.where(problem.shape.sparse_share > 0, 0.0, saved)


def forward_seconds(
    layer: Spent, forward: Real, work: Real, layers: Real, problem: Problem
) -> Real:
    """Return the seconds of the forward pass of a single stage.

    A pass lasts as long as its launches, if these take longer. The other pass, during which the
    host runs ahead, makes up for that.

    Parameters
    ----------
    forward, work
        Seconds of the GPU for the forward pass of a microbatch, and for both.
    """
    # a third of the launches of the vocabulary are forward, as of its time
    vocabulary = vocabulary_launched(problem)
    launched = layers * layer.forward_launched + vocabulary / 3
    others = layers * (layer.launched - layer.forward_launched) + vocabulary * 2 / 3
    ahead = np.maximum(forward - launched, 0.0)
    behind = np.maximum(others - (work - forward), 0.0)
    return np.maximum(forward, launched) - np.minimum(ahead, behind) * queued_share(layer, layers)


def queued_share(layer: Spent, layers: Real) -> Real:
    """Return the share of its launches that the host can be ahead by, of half of both passes'."""
    room = 2.0 * QUEUE
    return room / np.maximum(layers * layer.launches, room)


def vocabulary_launched(problem: Problem) -> Real:
    """Return the seconds in which the host launches embedding, output layer and loss."""
    return problem.host.vocabulary_launches * problem.host.host_seconds_per_launch


def transfers(layer: Spent, microbatches: Real, problem: Problem, layout: Layout) -> Real:
    """Return the seconds of a step for activations and their gradients between stages.

    Each rank of a tensor-parallel group sends its share of the tokens. A stage that needs all
    tokens gathers them in its node (arXiv 2104.04473 section 4.1). Further messages of a program,
    and waits of its host, take `pipeline_hop_seconds`.

    With m microbatches, v chunks, p stages and the hidden share o (0 for one chunk) a step has
    ``v m (1 - o) + p - 1 + o min(p, m) (v - 1)`` transfers each way.
    """
    group = network.pipeline_of(problem.network, layout)
    once = network.neighbour_seconds(group, layer.sent_bytes, problem.network) + layer.gathering
    once = once + problem.program.pipeline_hop_seconds
    stages, chunks = layout.pipeline_parallel, layout.virtual_pipeline
    # a stage with several chunks waits only while the pipeline fills and drains
    overlap = np.where(chunks > 1, problem.overlap.pipeline_overlap_fraction, 0.0)
    steady = chunks * microbatches * (1 - overlap)
    ends = stages - 1 + overlap * np.minimum(stages, microbatches) * (chunks - 1)
    return np.where(stages > 1, 2 * once * (steady + ends), 0.0)


# ---- figures by ZeRO stage ----


class StageFigures(NamedTuple):
    """Figures under one ZeRO stage.

    Attributes
    ----------
    by_split
        Name -> figures with one element a split.
    by_share
        Name -> figures with one element a share, for each rank that may need most memory.
    fullest
        For each split the place of the rank that needs most.
    """

    by_split: dict[str, Real]
    by_share: dict[str, list[Real]]
    fullest: Array


def of_layouts(
    zero_stage: Array, by_stage: Mapping[int, StageFigures], splits: Splits
) -> dict[str, Gathered]:
    """Return the figures of each layout's ZeRO stage, for the rank that needs most memory."""
    stages = list(by_stage.values())
    num_splits, num_shares = len(stages[0].fullest), np.size(splits.share.pipeline_parallel)
    num_ranks = len(next(iter(stages[0].by_share.values())))
    split = np.arange(num_splits) if splits.to_split is None else splits.to_split
    share = np.arange(num_splits) if splits.to_share is None else splits.to_share
    ordinal = np.zeros(max(by_stage) + 1, dtype=np.int64)
    ordinal[list(by_stage)] = np.arange(len(stages))
    # tables of all stages one below the other: a row is a stage and a split
    place = ordinal.take(zero_stage) * num_splits + split
    figures = {
        name: Gathered(stacked([stage.by_split[name] for stage in stages], num_splits), place)
        for name in stages[0].by_split
    }
    # or a stage, a rank and a share
    fullest = np.stack([stage.fullest for stage in stages])
    rank = num_ranks * np.arange(len(stages))[:, np.newaxis] + fullest
    share_place = (rank * num_shares + share).take(place)
    for name in stages[0].by_share:
        tables = [table for stage in stages for table in stage.by_share[name]]
        figures[name] = Gathered(stacked(tables, num_shares), share_place)
    return figures


# ---- independent errors ----

PASSES = 3
"""Products with a weight in a step: forward, gradient of the input, gradient of the weight."""


def independent_share(shape: Shape, gemm: Real, vocabulary: Real, step: Real) -> Array:
    """Return the root of the summed squares of the products' shares of a step.

    Products whose errors are independent with the same deviation e make the step err by e times
    this root. A layer has four products: queries, keys and values; the output of attention; into
    and out of the feed-forward layer. Each takes time in proportion to its FLOPs, a third in each
    pass. The output layer has one product.

    Parameters
    ----------
    gemm, vocabulary, step
        Seconds of the layers' products, of the vocabulary, and of the step.
    """
    # products of latents count by their weights
    down, up = attention_weights(shape)
    result = attention_widths(shape).result
    merged = (down + up) / shape.hidden_size - result
    wide = ffn_width(shape, shape.sparse_share)
    gates = np.where(shape.uses_glu, 2.0, 1.0)
    widths = [merged, result, gates * wide, wide]
    spread = sum(np.square(width) for width in widths) / np.square(sum(widths))
    squares = np.square(gemm / step) * spread + np.square(vocabulary / step)
    root: Array = np.sqrt(squares / PASSES)
    return root
