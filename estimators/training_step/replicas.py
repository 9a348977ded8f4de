"""Seconds that replicas take of a step: exchanging gradients and weights, and the optimizer.

Volumes by ZeRO stage (arXiv 1910.02054): 0 reduces gradients to all; 1 scatters their sums and
gathers the weights; 2 scatters them for every microbatch; 3 gathers the weights for every pass
of every microbatch as well. What may run beside arithmetic is hidden by as much of it as there
is: gradients by the last backward pass, weights by the first forward pass; under stage 3 by
every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import network
from estimators.training_step.network import Group
from estimators.training_step.products import stream_seconds


class Share(NamedTuple):
    """Parameters of the stage that has most of them, on one GPU before ZeRO.

    `units` are the parts that are gathered on their own: layers, and the vocabulary.
    """

    dense: Any
    experts: Any
    units: Any


class Window(NamedTuple):
    """What transfers may run beside: seconds of one microbatch's passes through the stage."""

    forward: Any
    backward: Any
    microbatches: Any


def exchange_seconds(
    zero_stage: int,
    share: Share,
    group: Mapping[str, Group],
    values: Values,
    window: Window,
) -> Any:
    """Return what a step waits for the replicas under a ZeRO stage.

    With what hidden transfers take from the arithmetic beside them: the multiprocessors that
    they occupy.
    """
    every = zero_stage == 3
    calls = share.units if every else np.minimum(share.units, values["exchange_buckets"])
    reduced, weights = values["reduced_gradient_bytes"], values["gathered_weight_bytes"]
    if zero_stage == 0:
        after, before = _both(network.reduce_seconds, share, group, reduced, values, calls), 0.0
    else:
        after = _both(network.gather_seconds, share, group, reduced, values, calls)
        before = _both(network.gather_seconds, share, group, weights, values, calls)
    again = before if every else 0.0  # weights once more, beside a backward pass

    may_reduce = values["gradient_overlap_fraction"]
    may_gather = values["parameter_overlap_fraction"]
    # the first unit to be gathered and the last to be scattered have nothing beside them
    inner = 1 - 1 / np.maximum(calls, 1.0)
    hidden_before = np.minimum(may_gather * before * inner, window.forward)
    hidden_after = np.minimum((may_reduce * after + may_gather * again) * inner, window.backward)
    gathers = window.microbatches if every else 1.0
    reduces = window.microbatches if zero_stage >= 2 else 1.0
    exposed = gathers * (before - hidden_before) + reduces * (after + again - hidden_after)
    hidden = gathers * hidden_before + reduces * hidden_after
    return exposed + values["communication_sm_fraction"] * hidden


def _both(
    collective: Callable[..., Any],
    share: Share,
    group: Mapping[str, Group],
    size: Any,
    values: Values,
    calls: Any,
) -> Any:
    """Return the seconds of a collective over what every replica has, and over experts."""
    dense = collective(group["data"], size * share.dense, values, calls)
    if not np.any(share.experts):
        return dense
    experts = collective(group["expert_data"], size * share.experts, values, calls)
    return dense + np.where(share.experts > 0, experts, 0.0)


def kept(zero_stage: int, from_stage: int, share: Share, layout: Values) -> Any:
    """Return how many parameters one GPU keeps of a kind that ZeRO shards from a stage on."""
    if zero_stage < from_stage:
        return share.dense + share.experts
    replicas = layout["data_parallel"] * layout["context_parallel"]
    return share.dense / replicas + share.experts * layout["expert_parallel"] / replicas


def optimizer_seconds(zero_stage: int, share: Share, values: Values, layout: Values) -> Any:
    """Return the seconds of the optimizer on one GPU: its memory traffic."""
    owned = kept(zero_stage, 1, share, layout)
    return stream_seconds(values["optimizer_traffic_bytes"] * owned, values)


def tied_seconds(values: Values, layout: Values) -> Any:
    """Return the seconds to add up the gradients of a shared embedding on its two stages."""
    is_split = (layout["pipeline_parallel"] > 1) & np.asarray(values["ties_embedding"], dtype=bool)
    volume = values["reduced_gradient_bytes"] * values["vocab_size"] * values["hidden_size"]
    moved = volume / layout["tensor_parallel"] / network.card_bandwidth(values)
    return np.where(is_split, moved + values["collective_seconds"], 0.0)
