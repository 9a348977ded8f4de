"""The rank that sets the pace of a step: of simple pipelines, and of those placed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from estimators.factored import take
from estimators.training_step.host import saved_seconds
from estimators.training_step.pipelines import (
    by_kind,
    microbatches_of,
    over_kinds,
    stage_layers,
)
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.schedule import Pace, pace_of, work_of
from estimators.training_step.shares import Added
from estimators.training_step.spent import Spent
from estimators.training_step.vocabulary import Vocabulary


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
    saved: Any
    added: Any
    forward: Any
    backward: Any


def paced_by(
    kinds: Mapping[str, Spent],
    layer: Spent,
    words: Vocabulary,
    added: Added,
    values: Problem,
    layout: Layout,
    simple: Any,
) -> Paced:
    """Return the pace of each row's step.

    Parameters
    ----------
    kinds, layer, words
        Seconds of one microbatch, one element a row of `layout`: of a layer of each kind, of the
        average layer, and of the vocabulary.
    simple
        See `pipelines.is_simple`.
    """
    paced = _simple_pace(layer, words, added, values, layout)
    if np.all(simple):
        return paced
    return _with_placed(paced, simple, kinds, words, added, values, layout)


def _simple_pace(
    layer: Spent, words: Vocabulary, added: Added, values: Problem, layout: Layout
) -> Paced:
    """Return the pace of pipelines whose stages are even, or have their odd layers first."""
    microbatches = microbatches_of(values, layout)
    most, last = stage_layers(values, layout)
    several = layout["pipeline_parallel"] > 1
    ends = np.where(several, 0.0, words.embedding + words.embedding_comm)
    full = most * layer.seconds + added.share + words.embedding + words.embedding_comm
    final = last * layer.seconds + added.share + words.output + words.output_comm + ends
    work = final - last * layer.waits
    saved = saved_seconds(layer, work, last, values)
    saved = np.where(several, 0.0, saved)
    final = final - saved
    bubble, is_final = _bubble(full, final, layer, values, layout, microbatches)
    # the stage with most parameters is the first; a third of the time outside layers is forward
    first = np.where(several, full, final)
    forward = most * layer.forward + (first - most * layer.seconds) / 3
    pace = Pace(
        by_kind(np.where(is_final, last, most), values),
        np.where(several & is_final, 0.0, 1.0),
        1.0 * is_final,
        bubble,
    )
    return Paced(pace, saved, added.share, forward, first - forward)


def _with_placed(
    simple: Paced,
    is_simple_row: Any,
    kinds: Mapping[str, Spent],
    words: Vocabulary,
    added: Added,
    values: Problem,
    layout: Layout,
) -> Paced:
    """Return the pace of all rows: `simple`, replaced where pipelines are placed one by one."""
    size = len(layout["pipeline_parallel"])
    rows = np.flatnonzero(~np.broadcast_to(is_simple_row, size))
    if np.ndim(values["seq_len"]):
        values = values.take(rows)
    pace, own_added, forward, backward = _placed_pace(
        # their parts do not matter to the pace
        {name: each._replace(parts={}).take(rows) for name, each in kinds.items()},
        Vocabulary(*(take(part, rows) for part in words)),
        added.take(rows),
        values,
        layout.take(rows),
    )

    def merged(before: Any, placed: Any) -> Any:
        whole = np.array(np.broadcast_to(before, size), dtype=np.float64)
        whole[rows] = placed
        return whole

    names = dict.fromkeys((*simple.pace.layers, *pace.layers))
    layers = {
        name: merged(simple.pace.layers.get(name, 0.0), pace.layers.get(name, 0.0))
        for name in names
    }
    before = simple.pace
    return Paced(
        Pace(
            layers,
            merged(before.embedding, pace.embedding),
            merged(before.output, pace.output),
            merged(before.bubble, pace.bubble),
        ),
        merged(simple.saved, 0.0),
        merged(simple.added, own_added),
        merged(simple.forward, forward),
        merged(simple.backward, backward),
    )


def _placed_pace(
    kinds: Mapping[str, Spent], words: Vocabulary, added: Added, values: Problem, layout: Layout
) -> tuple[Pace, Any, Any, Any]:
    """Return the pace, and seconds to add gradients up, of the forward and of the backward pass.

    The time of layers that predict further tokens is part of the time of the output layer.
    """
    own = {
        name: (
            each.forward,
            each.seconds - each.forward + added.layers[name],
            each.weight_gradients + added.layers[name],
        )
        for name, each in kinds.items()
    }
    if "mtp" in added.layers:
        own["mtp"] = (0.0, added.layers["mtp"], added.layers["mtp"])
    embedding = words.embedding + words.embedding_comm + added.vocabulary
    output = words.output + words.output_comm + added.vocabulary
    work = work_of(own, embedding, output, len(layout["pipeline_parallel"]))
    pace = pace_of(work, values, layout)
    kept = over_kinds(pace.layers, added.layers)
    kept = kept + (pace.embedding + pace.output) * added.vocabulary
    forward = over_kinds(pace.layers, {name: each[0] for name, each in own.items()})
    backward = over_kinds(pace.layers, {name: each[1] for name, each in own.items()})
    ends = pace.embedding * embedding + pace.output * output
    return pace, kept, forward + ends / 3, backward + ends * 2 / 3


def _bubble(
    full: Any, final: Any, layer: Spent, values: Problem, layout: Layout, microbatches: Any
) -> tuple[Any, Any]:
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
    stages, chunks = layout["pipeline_parallel"], layout["virtual_pipeline"]
    odd = np.remainder(values["num_layers"], stages)
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
    balances = values["balances_stages"]
    if not np.any(balances):
        return bubble, is_final
    most, last = stage_layers(values, layout)
    between = (values["num_layers"] - most - last) * layer.seconds
    others = np.maximum(between, 0.0) + np.minimum(full, final)
    others = np.where(stages > 1, others, 0.0)
    is_final = np.where(balances, (final >= full) | (stages == 1), is_final)
    return np.where(balances, others, bubble), is_final
