"""Seconds of collective operations on a two-tier network.

Every cost here is linear in the volume, so it is given as a `Line`: a latency and seconds per
byte. A search computes lines once per placement and applies them to all its volumes.

Source: arXiv 2410.00273 (ring collectives, one NVLink domain or several; the slow network
is as wide as the domain's network cards together).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values

WHOLE_VOLUME = frozenset({"broadcast", "reduce"})
"""Collectives that move the whole volume; the others move (n - 1)/n of it."""


class Line(NamedTuple):
    """Seconds of a transfer: ``latency + bytes * seconds_per_byte``, and nothing for no bytes."""

    latency: Any
    seconds_per_byte: Any

    def seconds(self, volume: Any) -> Any:
        """Return the seconds of `volume` bytes; zero where there is nothing to move."""
        return np.where(volume > 0, self.latency + volume * self.seconds_per_byte, 0.0)


class Network(NamedTuple):
    """The two tiers: effective bandwidths in bytes/s and latencies in seconds, of one GPU."""

    fast_bandwidth: Any
    fast_latency: Any
    slow_bandwidth: Any
    slow_latency: Any
    nics_per_gpu: Any

    @classmethod
    def of(cls, values: Values) -> Network:
        """Build it from a problem's values: bandwidth times efficiency on either tier."""
        return cls(
            fast_bandwidth=values["nvlink_bytes_per_second"] * values["nvlink_efficiency"],
            fast_latency=values["nvlink_latency_seconds"],
            slow_bandwidth=values["network_bytes_per_second"] * values["network_efficiency"],
            slow_latency=values["network_latency_seconds"],
            nics_per_gpu=values["nics_per_gpu"],
        )


def collective(
    kind: str, ranks: Any, in_domain: Any, network: Network, *, double_all_reduce: bool = False
) -> Line:
    """Return the cost of one collective over `ranks` GPUs, `in_domain` of them per fast domain.

    Parameters
    ----------
    kind
        ``all_gather``, ``reduce_scatter``, ``all_reduce``, ``broadcast`` or ``reduce``.
    ranks, in_domain
        Group size and its members in one domain (a divisor of the size).
    double_all_reduce
        Count the bandwidth term of an all-reduce twice in every case, as a ring does
        (mend R3); the source does so only across several domains.

    Returns
    -------
    Line
        Zero where the group has one member.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    share = 1.0 if kind in WHOLE_VOLUME else (ranks - 1) / ranks
    domains = ranks // in_domain
    rounds = 2.0 if kind == "all_reduce" else 1.0
    rounds_in_one_tier = rounds if double_all_reduce else 1.0
    slow, fast = share / network.slow_bandwidth, share / network.fast_bandwidth
    across = np.maximum(slow / (network.nics_per_gpu * in_domain), fast)
    all_slow, all_fast = np.equal(in_domain, 1), domains == 1
    latency = np.where(
        all_slow,
        network.slow_latency * (ranks - 1),
        np.where(
            all_fast,
            network.fast_latency * (ranks - 1),
            network.slow_latency * (domains - 1) + network.fast_latency * (ranks - domains),
        ),
    )
    per_byte = np.where(
        all_slow,
        rounds_in_one_tier * slow,
        np.where(all_fast, rounds_in_one_tier * fast, rounds * across),
    )
    alone = ranks <= 1
    return Line(np.where(alone, 0.0, latency), np.where(alone, 0.0, per_byte))


def point_to_point(in_domain: Any, network: Network) -> Line:
    """Return the cost of a transfer between two GPUs, of which `in_domain` share a domain."""
    fast = np.greater(in_domain, 1)
    return Line(
        np.where(fast, network.fast_latency, network.slow_latency),
        np.where(fast, 1 / network.fast_bandwidth, 1 / network.slow_bandwidth),
    )
