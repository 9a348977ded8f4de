"""The rank that sets the pace of a step, and its seconds for one microbatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.training_step.host import QUEUE
from estimators.training_step.pipelines import over_kinds
from estimators.training_step.schedule import Pace, pace_of

if TYPE_CHECKING:
    from estimators.training_step.pipelines import Pipelines
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.spent import Costs, Spent
    from estimators.values import Real


class Paced(NamedTuple):
    """The pace of a step, and seconds of one microbatch on the rank that sets it.

    Attributes
    ----------
    saved
        Seconds that a stage without a pipeline waits less for the host than separate passes would.
    added
        Seconds to add gradients to their buffers: a part of the backward pass.
    """

    pace: Pace
    saved: Real
    added: Real
    forward: Real
    backward: Real


def paced_by(costs: Costs, pipelines: Pipelines, problem: Problem, layout: Layout) -> Paced:
    """Return the pace of each row's step.

    A third of the time of embedding and output layer is forward. Of the output layer another third
    makes the gradient of its weights; of the embedding the whole backward pass does. The time of
    layers that predict further tokens is part of the time of the output layer.

    Parameters
    ----------
    costs
        One element a row of `layout`.
    """
    kinds, vocabulary, added = costs.by_kind, costs.vocabulary, costs.added
    embedding = vocabulary.embedding + vocabulary.embedding_comm
    output = vocabulary.output + vocabulary.output_comm
    work = {
        name: (
            spent.forward,
            spent.seconds - spent.forward + added.layers[name],
            spent.weight_gradients + added.layers[name],
        )
        for name, spent in kinds.items()
    }
    if "mtp" in added.layers:
        work["mtp"] = (0.0, added.layers["mtp"], added.layers["mtp"])
    gradient = embedding * 2 / 3 + added.vocabulary
    work["embedding"] = (embedding / 3, gradient, gradient)
    work["output"] = (output / 3, output * 2 / 3 + added.vocabulary, output / 3 + added.vocabulary)
    pace = pace_of(work, pipelines, problem, layout)

    is_single = layout.pipeline_parallel == 1
    adding = over_kinds(pace.layers, added.layers)
    adding = adding + (pace.embedding + pace.output) * added.vocabulary
    # one table may be both embedding and output layer
    adding = np.where(is_single, added.share, adding)
    ends = pace.embedding * embedding + pace.output * output
    layers = {name: count for name, count in pace.layers.items() if name in kinds}
    forward = over_kinds(layers, {name: spent.forward for name, spent in kinds.items()}) + ends / 3
    both = over_kinds(layers, {name: spent.seconds for name, spent in kinds.items()}) + ends
    num_layers = problem.shape.num_layers
    busy = both + adding - num_layers * costs.layer.waits
    saved = np.where(is_single, _saved_seconds(costs.layer, busy, num_layers, problem), 0.0)
    forward = forward - saved / 3
    return Paced(pace, saved, adding, forward, both + adding - saved - forward)


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
