"""Seconds of one layer and microbatch as a step needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import take
from estimators.training_step import network
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.layer import Layer
from estimators.training_step.network import Group
from estimators.training_step.replicas import Share, layer_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.decoder import Parameters
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.sizes import Size
    from estimators.training_step.vocabulary import Vocabulary
    from estimators.values import Array, Real


class Spent(NamedTuple):
    """Seconds of one layer and microbatch, and what else a step needs of it.

    Attributes
    ----------
    parts
        Part of the step -> seconds.
    seconds, forward
        Seconds of both passes, and of the forward pass.
    waits
        Seconds that the GPU waits for the host, if passes do not make up for each other.
    launched
        Seconds in which the host launches both passes.
    launches, forward_launches
        Number of launches of both passes, and of the forward pass.
    clock, joules
        See `layer.Layer`.
    sent_bytes
        Bytes that a GPU sends to the next stage.
    gathering
        Seconds to gather them there, where each GPU needs all tokens.
    weight_gradients
        See `layer.Layer`.
    """

    parts: dict[str, Real]
    seconds: Real
    forward: Real
    waits: Real
    launched: Real
    launches: Real
    forward_launches: Real
    clock: Real
    joules: Real
    sent_bytes: Real
    gathering: Real
    weight_gradients: Real

    def take(self, index: Array | None) -> Spent:
        """Return one element a place of `index`; None: as it is."""
        parts = {name: take(part, index) for name, part in self.parts.items()}
        return Spent(parts, *(take(figure, index) for figure in self[1:]))


class Added(NamedTuple):
    """Seconds of a microbatch to add the gradients of parameters to their buffers.

    Attributes
    ----------
    layers
        Kind of layer -> seconds of one layer.
    vocabulary
        Seconds of the embedding, or of the output layer.
    share
        Seconds of the rank with most parameters.
    """

    layers: dict[str, Real]
    vocabulary: Real
    share: Real

    def take(self, index: Array | None) -> Added:
        """Return one element a place of `index`; None: as it is."""
        layers = {name: take(seconds, index) for name, seconds in self.layers.items()}
        return Added(layers, take(self.vocabulary, index), take(self.share, index))


def added_of(
    counts: Mapping[str, Parameters], share: Share, problem: Problem, layout: Layout
) -> Added:
    """Return the seconds to add gradients up; `share` is that with most parameters."""
    of_layer = layer_shares(counts, problem.shape, layout)
    vocabulary = next(iter(counts.values())).embedding / layout.tensor_parallel

    def seconds(parameters: Real) -> Real:
        traffic = problem.sharding.accumulation_traffic_bytes * parameters
        return stream_seconds(traffic, problem.system)

    return Added(
        {name: seconds(dense + experts) for name, (dense, experts) in of_layer.items()},
        seconds(vocabulary),
        seconds(share.dense + share.experts),
    )


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


def spent_on(layer: Layer, size: Size, problem: Problem, layout: Layout) -> Spent:
    """Return the seconds of a layer as a step needs them."""
    tensor, volume = layout.tensor_parallel, 2.0 * size.tokens * size.hidden
    group = Group(tensor, problem.network.nvlink_size)
    whole = network.gather_seconds(group, volume, problem.network)
    waits = layer.forward["host"] + layer.backward["host"]
    return Spent(
        of_layers(layer),
        layer.seconds,
        layer.forward_seconds,
        waits,
        layer.host.seconds,
        layer.host.launches,
        layer.host.forward_launches,
        layer.clock,
        layer.joules,
        volume / tensor,
        np.where(layout.uses_sequence_parallel, 0.0, whole),
        layer.weight_gradients,
    )


def of_layers(layer: Layer) -> dict[str, Real]:
    """Return the seconds of one layer and microbatch by part of the step."""
    forward, backward, again = layer.forward, layer.backward, layer.recompute
    both = {name: forward[name] + backward[name] for name in forward}
    comm = {
        f"{name}_seconds": both[name] + again[name]
        for name in ("tensor_comm", "context_comm", "expert_comm")
    }
    # hidden transfers take multiprocessors from the products that run meanwhile
    return {
        "gemm_seconds": both["gemm"] + both["hidden"],
        "attention_seconds": both["attention"],
        "elementwise_seconds": both["elementwise"],
        "recompute_seconds": again["gemm"]
        + again["attention"]
        + again["elementwise"]
        + again["hidden"],
        "host_seconds": both["host"],
        **comm,
    }
