"""Seconds of collective operations on a two-tier network.

Every cost here is linear in the volume, so it is a `Line`: a latency, and seconds per byte. A
search computes lines once per placement and applies them to all of its volumes.

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


class Ring(NamedTuple):
    """The geometry of a collective over a group: the factors of rates and latencies in its cost.

    It depends on no rate, so a search keeps it while systems change.
    """

    share: Any
    """Share of the volume that passes a GPU, times the number of rounds."""

    slow_hops: Any
    fast_hops: Any
    slow_alone: Any
    """1 where no two members share a domain: the network card of one GPU carries the volume."""

    slow_shared: Any
    """1/members where domains have several members: the cards of a domain share the volume."""

    uses_fast: Any

    def line(self, network: Network) -> Line:
        """Return the cost on a network."""
        slow = self.slow_alone + self.slow_shared / network.nics_per_gpu
        return Line(
            self.slow_hops * network.slow_latency + self.fast_hops * network.fast_latency,
            self.share
            * np.maximum(slow / network.slow_bandwidth, self.uses_fast / network.fast_bandwidth),
        )


def ring(kind: str, ranks: Any, in_domain: Any, *, double_all_reduce: bool = False) -> Ring:
    """Return the geometry of one collective over `ranks` GPUs, `in_domain` of them a domain.

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
    Ring
        All zero where the group has one member.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    several = ranks > 1
    domains = ranks // in_domain
    alone = several & np.equal(in_domain, 1)
    inside = several & ~alone & (domains == 1)
    mixed = several & ~alone & ~inside
    rounds: Any = 1.0
    if kind == "all_reduce":
        rounds = np.where(mixed | double_all_reduce, 2.0, 1.0)
    return Ring(
        share=rounds * (1.0 if kind in WHOLE_VOLUME else (ranks - 1) / ranks),
        slow_hops=alone * (ranks - 1) + mixed * (domains - 1),
        fast_hops=inside * (ranks - 1) + mixed * (ranks - domains),
        slow_alone=alone.astype(np.float64),
        slow_shared=mixed / in_domain,
        uses_fast=(inside | mixed).astype(np.float64),
    )
