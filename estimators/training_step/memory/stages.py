"""Bytes on the GPU that needs most, of all ranks of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from estimators.contract import Array
from estimators.training_step.memory.activations import Microbatch
from estimators.training_step.memory.queue import queued_passes
from estimators.training_step.pipelines import Held, over_kinds
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.spent import Spent

PARTS = (
    *("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
    *("logits_bytes", "gathered_bytes"),
)
"""Parts of the allocated memory."""

BESIDES = ("unused_bytes", "library_bytes")
"""Parts of a device's memory that are not allocated; `framework_bytes`, the same in all layouts,
is the third."""


def held(
    each: Mapping[str, Microbatch], flight: Held, layer: Spent, values: Problem, layout: Layout
) -> list[dict[str, Any]]:
    """Return the bytes of activations, of logits and besides, for each rank that may need most.

    The logits of a microbatch peak before the backward pass of a rank, the gradients of a layer
    during it: the larger one counts. The last norm keeps one microbatch. ``besides`` are holes that
    logits leave, and results that wait for an exchange.

    Parameters
    ----------
    each
        Kind of layer -> the bytes of one microbatch in a layer of this kind.
    flight
        Result of `pipelines.held_at`; its first rank has the embedding.
    layer
        One microbatch of an average layer, for `queue.queued_passes`.
    """
    ends = next(iter(each.values()))
    kept_of = {name: one.kept for name, one in each.items()}
    waits = np.any(ends.waiting)
    found = []
    for number in range(len(flight.chunks)):
        layers = {name: of_kind[number] for name, of_kind in flight.layers.items()}
        logits = flight.outputs[number] * ends.logits
        working = reduce(
            np.maximum, (np.where(n > 0, each[name].working, 0.0) for name, n in layers.items())
        )
        activations = over_kinds(layers, kept_of) + np.maximum(working - logits, 0.0)
        activations = activations + flight.outputs[number] * ends.exit + ends.buffers
        if number == 0:
            inputs = flight.chunks[number] / layout["virtual_pipeline"]
            activations = activations + inputs * ends.entry
        besides = flight.outputs[number] * ends.logit_holes
        if waits and number == 0:
            queued = queued_passes(layer, values, layout)
            besides = besides + queued * ends.waiting
        found.append({"activations_bytes": activations, "logits_bytes": logits, "besides": besides})
    return found


def needs_most(state: Sequence[Any], others: Sequence[dict[str, Any]]) -> tuple[Array, Any]:
    """Return the place of the rank that needs most (of equal ones the first), and its bytes.

    Parameters
    ----------
    state
        For each rank, bytes of weights, gradients and optimizer, and of gathered parameters.
    others
        For each rank, the result of `held`.
    """
    needed = [
        each + other["activations_bytes"] + other["logits_bytes"]
        for each, other in zip(state, others, strict=True)
    ]
    most, place = needed[0], np.zeros(np.shape(needed[0]), dtype=np.int64)
    for number, more in enumerate(needed[1:], start=1):
        place[more > most] = number
        most = np.where(more > most, more, most)
    return place, most
