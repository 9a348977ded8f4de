"""The rank that sets the pace of a step: of simple pipelines, and of those placed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import take
from estimators.training_step.host import QUEUE
from estimators.training_step.pipelines import (
    by_kind,
    microbatches_of,
    over_kinds,
    stage_layers,
)
from estimators.training_step.schedule import Pace, pace_of, seconds_of
from estimators.training_step.vocabulary import Vocabulary

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.spent import Added, Costs, Spent
    from estimators.values import Array, Flag, Real


class Paced(NamedTuple):
    """The pace of a step, and seconds of one microbatch on a rank.

    Attributes
    ----------
    pace
        The rank that works longest.
    saved
        Seconds that a stage without a pipeline waits less for the host than separate passes would.
    added
        Seconds to add gradients to their buffers.
    forward, backward
        Seconds of either pass on the rank that has most parameters.
    """

    pace: Pace
    saved: Real
    added: Real
    forward: Real
    backward: Real


def paced_by(costs: Costs, problem: Problem, layout: Layout, simple: Flag) -> Paced:
    """Return the pace of each row's step.

    Parameters
    ----------
    costs
        One element a row of `layout`.
    simple
        See `pipelines.is_simple`.
    """
    paced = _simple_pace(costs, problem, layout)
    if np.all(simple):
        return paced
    return _with_placed(paced, simple, costs, problem, layout)


def _simple_pace(costs: Costs, problem: Problem, layout: Layout) -> Paced:
    """Return the pace of pipelines whose stages are even, or have their odd layers first."""
    most, last = stage_layers(problem.shape, problem.program.balances_stages, layout)
    layer, vocabulary, added = costs.layer, costs.vocabulary, costs.added
    several = layout.pipeline_parallel > 1
    ends = np.where(several, 0.0, vocabulary.embedding + vocabulary.embedding_comm)
    full = most * layer.seconds + added.share + vocabulary.embedding + vocabulary.embedding_comm
    final = last * layer.seconds + added.share + vocabulary.output + vocabulary.output_comm + ends
    work = final - last * layer.waits
    saved = _saved_seconds(layer, work, last, problem)
    saved = np.where(several, 0.0, saved)
    final = final - saved
    bubble, is_final = _bubble(full, final, layer, problem, layout)
    # the stage with most parameters is the first; a third of the time outside layers is forward
    first = np.where(several, full, final)
    forward = most * layer.forward + (first - most * layer.seconds) / 3
    pace = Pace(
        by_kind(np.where(is_final, last, most), problem.shape),
        np.where(several & is_final, 0.0, 1.0),
        np.where(is_final, 1.0, 0.0),
        bubble,
    )
    return Paced(pace, saved, added.share, forward, first - forward)


def _with_placed(
    simple: Paced, is_simple_row: Flag, costs: Costs, problem: Problem, layout: Layout
) -> Paced:
    """Return the pace of all rows: `simple`, replaced where pipelines are placed one by one."""
    size = np.size(layout.pipeline_parallel)
    rows = np.flatnonzero(~np.broadcast_to(is_simple_row, size))
    if np.ndim(problem.shape.seq_len):
        problem = problem.take(rows)
    placed = _placed_pace(
        # their parts do not matter to the pace
        {name: layer._replace(parts={}).take(rows) for name, layer in costs.by_kind.items()},
        Vocabulary(*(take(figure, rows) for figure in costs.vocabulary)),
        costs.added.take(rows),
        problem,
        layout.take(rows),
    )

    def merged(before: Real, placed: Real) -> Array:
        whole = np.array(np.broadcast_to(before, size), dtype=np.float64)
        whole[rows] = placed
        return whole

    names = dict.fromkeys((*simple.pace.layers, *placed.pace.layers))
    layers = {
        name: merged(simple.pace.layers.get(name, 0.0), placed.pace.layers.get(name, 0.0))
        for name in names
    }
    others = zip(simple.pace[1:], placed.pace[1:], strict=True)
    pace = Pace(layers, *(merged(before, figure) for before, figure in others))
    return Paced(
        pace,
        *(merged(before, figure) for before, figure in zip(simple[1:], placed[1:], strict=True)),
    )


def _placed_pace(
    kinds: Mapping[str, Spent],
    vocabulary: Vocabulary,
    added: Added,
    problem: Problem,
    layout: Layout,
) -> Paced:
    """Return the pace of pipelines that are placed one by one.

    The time of layers that predict further tokens is part of the time of the output layer.
    """
    by_pass = {
        name: (
            layer.forward,
            layer.seconds - layer.forward + added.layers[name],
            layer.weight_gradients + added.layers[name],
        )
        for name, layer in kinds.items()
    }
    if "mtp" in added.layers:
        by_pass["mtp"] = (0.0, added.layers["mtp"], added.layers["mtp"])
    embedding = vocabulary.embedding + vocabulary.embedding_comm + added.vocabulary
    output = vocabulary.output + vocabulary.output_comm + added.vocabulary
    work = seconds_of(by_pass, embedding, output, np.size(layout.pipeline_parallel))
    pace = pace_of(work, problem, layout)
    adding = over_kinds(pace.layers, added.layers)
    adding = adding + (pace.embedding + pace.output) * added.vocabulary
    forward = over_kinds(pace.layers, {name: seconds for name, (seconds, *_) in by_pass.items()})
    backward = over_kinds(pace.layers, {name: seconds for name, (_, seconds, _) in by_pass.items()})
    ends = pace.embedding * embedding + pace.output * output
    return Paced(pace, 0.0, adding, forward + ends / 3, backward + ends * 2 / 3)


def _bubble(
    full: Real, final: Real, layer: Spent, problem: Problem, layout: Layout
) -> tuple[Real, Flag]:
    """Return the bubble of a step, and whether the last stage sets the pace.

    - Even stages wait for each other stage once, divided by the chunks:
      ``(stages - 1) x stage / chunks`` (arXiv 2104.04473 section 2.2).
    - Uneven stages: the first ones have a layer more. The last of these waits for the faster stages
      behind it. The slowest stage is either that one or the last of all.
    - Stages that a program balances wait for each other stage once.

    The first two agree with a simulation of the schedule.

    Parameters
    ----------
    full, final
        Seconds of one microbatch in a stage with most layers, and in the last.
    """
    shape, balances = problem.shape, problem.program.balances_stages
    stages, chunks = layout.pipeline_parallel, layout.virtual_pipeline
    microbatches = microbatches_of(problem.run, layout)
    odd = np.remainder(shape.num_layers, stages)
    behind = stages - odd
    lesser = full - layer.seconds
    even = (stages - 1) * full / chunks
    paced_by_final = np.where(odd > 0, odd * full + (behind - 1) * lesser, even)

    after = (behind - 1) * lesser + final
    forward = layer.forward / layer.seconds * full
    backward = full - forward
    waits = np.where(
        microbatches > behind,
        np.maximum(after - behind * forward, 0.0) + np.maximum(after - behind * backward, 0.0),
        np.maximum(after - (microbatches - 1) * np.minimum(forward, backward), 0.0),
    )
    paced_by_full = (odd - 1) * full + waits
    is_final = (odd == 0) | (
        microbatches * final + paced_by_final >= microbatches * full + paced_by_full
    )
    bubble = np.where(is_final, paced_by_final, paced_by_full)
    if not np.any(balances):
        return bubble, is_final
    most, last = stage_layers(shape, balances, layout)
    between = (shape.num_layers - most - last) * layer.seconds
    others = np.maximum(between, 0.0) + np.minimum(full, final)
    others = np.where(stages > 1, others, 0.0)
    is_final = np.where(balances, (final >= full) | (stages == 1), is_final)
    return np.where(balances, others, bubble), is_final


def _saved_seconds(layer: Spent, work: Real, layers: Real, problem: Problem) -> Real:
    """Return the seconds of waiting that a single stage saves in a microbatch.

    A stage of a pipeline synchronizes between passes and saves nothing. A single stage does not
    synchronize: during passes that keep the GPU busy for longer, and during the output layer, the
    host runs ahead, as far as the queue is long. At best the longer of all launches and all work
    remains. A mixture saves nothing, because the host waits for the GPU in each layer.

    Parameters
    ----------
    layer
        One layer and microbatch, a `spent.Spent`.
    work
        Seconds of the GPU for the microbatch: layers, vocabulary and gradients.
    layers
        Layers of the stage.
    """
    host = problem.host
    vocabulary = host.vocabulary_launches * host.host_seconds_per_launch
    together = np.maximum(layers * layer.launched + vocabulary - work, 0.0)
    # the launches of a pass are about half of those of both
    room = 2 * QUEUE
    saved = (layers * layer.waits - together) * (room / np.maximum(layers * layer.launches, room))
    return np.where(problem.shape.sparse_share > 0, 0.0, saved)
