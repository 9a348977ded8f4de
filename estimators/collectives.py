"""Seconds of collective operations on a two-tier network.

Every cost here is linear in the volume, so it is a `Line`: a latency, and seconds per byte. A
search computes lines once per placement and applies them to all of its volumes.

Source: arXiv 2410.00273 (ring collectives, one NVLink domain or several; the slow network
is as wide as the domain's network cards together).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import Structure

if TYPE_CHECKING:
    from estimators.values import Real

WHOLE_VOLUME = frozenset({"broadcast", "reduce"})
"""Collectives that move the whole volume; the others move (n - 1)/n of it."""


class Line(NamedTuple):
    """Seconds of a transfer: ``latency + bytes * seconds_per_byte``, and nothing for no bytes."""

    latency: Real
    seconds_per_byte: Real

    def seconds(self, volume: Real) -> Real:
        """Return the seconds of `volume` bytes; zero where there is nothing to move."""
        return np.where(volume > 0, self.latency + volume * self.seconds_per_byte, 0.0)


@dataclass(frozen=True)
class Network(Structure):
    """The two tiers of one GPU: NVLink in a domain, and the network between domains."""

    nvlink_bytes_per_second: Real
    nvlink_efficiency: Real
    nvlink_latency_seconds: Real
    network_bytes_per_second: Real
    network_efficiency: Real
    network_latency_seconds: Real
    nics_per_gpu: Real

    @property
    def fast_bandwidth(self) -> Real:
        """Bytes/s in a domain."""
        return self.nvlink_bytes_per_second * self.nvlink_efficiency

    @property
    def slow_bandwidth(self) -> Real:
        """Bytes/s between domains."""
        return self.network_bytes_per_second * self.network_efficiency


class Ring(NamedTuple):
    """The geometry of a collective over a group: the factors of rates and latencies in its cost.

    It depends on no rate, so a search keeps it while systems change.
    """

    share: Real
    """Share of the volume that passes a GPU, times the number of rounds."""

    slow_hops: Real
    fast_hops: Real
    slow_alone: Real
    """1 where no two members share a domain: the network card of one GPU carries the volume."""

    slow_shared: Real
    """1/members where domains have several members: the cards of a domain share the volume."""

    uses_fast: Real

    def line(self, network: Network) -> Line:
        """Return the cost on a network."""
        slow = self.slow_alone + self.slow_shared / network.nics_per_gpu
        hops = self.slow_hops * network.network_latency_seconds
        return Line(
            hops + self.fast_hops * network.nvlink_latency_seconds,
            self.share
            * np.maximum(slow / network.slow_bandwidth, self.uses_fast / network.fast_bandwidth),
        )


def ring(kind: str, ranks: Real, in_domain: Real, *, double_all_reduce: bool = False) -> Ring:
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
    rounds: Real = 1.0
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
