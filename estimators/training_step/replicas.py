"""Seconds of a step for its replicas: exchange of gradients and weights, and the optimizer.

Volumes by ZeRO stage (arXiv 1910.02054): 0 reduces gradients to all; 1 scatters their sums and
gathers the weights; 2 scatters them for every microbatch; 3 gathers the weights for every pass
of every microbatch as well. Transfers hide behind arithmetic as far as it lasts: gradients behind
the last backward pass, weights behind the first forward pass; under stage 3 behind every pass.
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

    `units` are the parts that are gathered one by one: layers, and the vocabulary.
    """

    dense: Any
    experts: Any
    units: Any


class Window(NamedTuple):
    """Room to hide transfers: seconds of one microbatch's passes through the stage."""

    forward: Any
    backward: Any
    microbatches: Any


class Exchange(NamedTuple):
    """Seconds of one exchange of a stage's parameters: gradients summed, or scattered; weights."""

    reduced: Any
    scattered: Any
    gathered: Any
    inner: Any
    """Share that may hide behind arithmetic: not the first unit to be gathered, and not the last
    to be scattered."""


def exchanges(
    share: Share, group: Mapping[str, Group], values: Values, *, by_unit: bool
) -> Exchange:
    """Return the seconds of the exchanges, in buckets, or unit by unit as ZeRO stage 3 does."""
    calls = share.units if by_unit else np.minimum(share.units, values["exchange_buckets"])
    gradients, weights = values["reduced_gradient_bytes"], values["gathered_weight_bytes"]
    return Exchange(
        0.0 if by_unit else _both(network.reduce_seconds, share, group, gradients, values, calls),
        _both(network.gather_seconds, share, group, gradients, values, calls),
        _both(network.gather_seconds, share, group, weights, values, calls),
        1 - 1 / np.maximum(calls, 1.0),
    )


def exchange_seconds(zero_stage: int, exchange: Exchange, values: Values, window: Window) -> Any:
    """Return the seconds that a step waits for its replicas under a ZeRO stage.

    Hidden transfers occupy multiprocessors: the time that arithmetic loses to them is included.

    Parameters
    ----------
    exchange
        By unit for stage 3, else in buckets.
    """
    may_reduce = values["gradient_overlap_fraction"] * exchange.inner
    may_gather = values["parameter_overlap_fraction"] * exchange.inner
    taken = 1 - values["communication_sm_fraction"]
    after = exchange.scattered if zero_stage else exchange.reduced
    if zero_stage == 1:
        after = np.where(values["reduces_all_gradients"], exchange.reduced, after)
    if zero_stage < 3:
        hidden = np.minimum(may_reduce * after, window.backward)
        reduces = window.microbatches if zero_stage == 2 else 1.0
        waits = reduces * (after - taken * hidden)
        if zero_stage == 0:
            return waits
        return (
            waits
            + exchange.gathered
            - taken * np.minimum(may_gather * exchange.gathered, window.forward)
        )
    # weights once for the forward pass, and once more with the gradients of the backward pass
    ahead = may_gather * exchange.gathered
    hidden = np.minimum(ahead, window.forward) + np.minimum(
        may_reduce * after + ahead, window.backward
    )
    return window.microbatches * (after + 2 * exchange.gathered - taken * hidden)


def _both(
    collective: Callable[..., Any],
    share: Share,
    group: Mapping[str, Group],
    size: Any,
    values: Values,
    calls: Any,
) -> Any:
    """Return the seconds of a collective over the dense parameters, and over experts."""
    dense = collective(group["data"], size * share.dense, values, calls)
    if not np.any(share.experts):
        return dense
    experts = collective(group["expert_data"], size * share.experts, values, calls)
    return dense + np.where(share.experts > 0, experts, 0.0)


def kept(zero_stage: int, from_stage: int, share: Share, layout: Values) -> Any:
    """Return the parameters of a kind on one GPU; ZeRO shards the kind from `first` stage on."""
    if zero_stage < from_stage:
        return share.dense + share.experts
    replicas = layout["data_parallel"] * layout["context_parallel"]
    return share.dense / replicas + share.experts * layout["expert_parallel"] / replicas


def optimizer_seconds(zero_stage: int, share: Share, values: Values, layout: Values) -> Any:
    """Return the seconds of the optimizer on one GPU: its memory traffic."""
    owned, whole = (kept(zero_stage, stage, share, layout) for stage in (1, 2))
    volume = values["optimizer_traffic_bytes"] * owned + values["buffer_traffic_bytes"] * whole
    return stream_seconds(volume, values)


def tied_seconds(values: Values, layout: Values) -> Any:
    """Return the seconds to add up the gradients of a shared embedding on its two stages."""
    is_split = (layout["pipeline_parallel"] > 1) & np.asarray(values["ties_embedding"], dtype=bool)
    volume = values["reduced_gradient_bytes"] * values["vocab_size"] * values["hidden_size"]
    moved = volume / layout["tensor_parallel"] / network.card_bandwidth(values)
    return np.where(is_split, moved + values["collective_seconds"], 0.0)
