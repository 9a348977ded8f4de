"""Seconds of one layer and microbatch as a step needs them, and to add its gradients up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.training_step import network
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.network import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.decoder import Parameters
    from estimators.training_step.layer import Layer
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.replicas import LayerShare, Share
    from estimators.training_step.sizes import Size
    from estimators.values import Real


class Spent(NamedTuple):
    """Seconds of one layer and microbatch, and what else a step needs of it.

    Attributes
    ----------
    parts
        Part of the step -> seconds.
    seconds, forward
        Seconds of both passes, and of the forward pass.
    waits, forward_waits
        Seconds that the GPU waits for the host in both passes, and in the forward pass, if passes
        do not make up for each other.
    launched, forward_launched
        Seconds in which the host launches both passes, and the forward pass.
    launches, forward_launches
        Number of launches of both passes, and of the forward pass.
    clock, joules, weight_gradients
        See `layer.Layer`.
    sent_bytes
        Bytes that a GPU sends to the next stage.
    gathering
        Seconds to gather them there, where each GPU needs all tokens.
    """

    parts: dict[str, Real]
    seconds: Real
    forward: Real
    waits: Real
    forward_waits: Real
    launched: Real
    forward_launched: Real
    launches: Real
    forward_launches: Real
    clock: Real
    joules: Real
    weight_gradients: Real
    sent_bytes: Real
    gathering: Real


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


def spent_on(layer: Layer, size: Size, problem: Problem, layout: Layout) -> Spent:
    """Return the seconds of a layer as a step needs them."""
    forward, backward, again, host = layer.forward, layer.backward, layer.recompute, layer.host
    both = {name: forward[name] + backward[name] for name in forward}
    parts = {
        # hidden transfers take multiprocessors from the products that run meanwhile
        "gemm_seconds": both["gemm"] + both["hidden"],
        "attention_seconds": both["attention"],
        "elementwise_seconds": both["elementwise"],
        "recompute_seconds": again["gemm"]
        + again["attention"]
        + again["elementwise"]
        + again["hidden"],
        "host_seconds": both["host"],
        "tensor_comm_seconds": both["tensor_comm"] + again["tensor_comm"],
        "context_comm_seconds": both["context_comm"] + again["context_comm"],
        "expert_comm_seconds": both["expert_comm"] + again["expert_comm"],
    }
    volume = 2.0 * size.tokens * size.hidden
    group = Group(layout.tensor_parallel, problem.network.nvlink_size)
    whole = network.gather_seconds(group, volume, problem.network)
    return Spent(
        parts,
        seconds=layer.seconds,
        forward=layer.forward_seconds,
        waits=both["host"],
        forward_waits=forward["host"],
        launched=host.seconds,
        forward_launched=host.forward,
        launches=host.launches,
        forward_launches=host.forward_launches,
        clock=layer.clock,
        joules=layer.joules,
        weight_gradients=layer.weight_gradients,
        sent_bytes=volume / layout.tensor_parallel,
        gathering=np.where(layout.uses_sequence_parallel, 0.0, whole),
    )


def added_of(
    layers: Mapping[str, LayerShare],
    ends: Parameters,
    share: Share,
    problem: Problem,
    layout: Layout,
) -> Added:
    """Return the seconds to add gradients up.

    Parameters
    ----------
    layers, ends
        See `replicas.stage_shares`.
    share
        That of the rank with most parameters.
    """
    traffic, system = problem.sharding.accumulation_traffic_bytes, problem.system
    return Added(
        {
            name: stream_seconds(traffic * (layer.dense + layer.experts), system)
            for name, layer in layers.items()
        },
        stream_seconds(traffic * (ends.embedding / layout.tensor_parallel), system),
        stream_seconds(traffic * (share.dense + share.experts), system),
    )
