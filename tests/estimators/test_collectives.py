"""Collectives cost what a hand calculation says, tier by tier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.collectives import Network, ring

NETWORK = Network(
    nvlink_bytes_per_second=250e9,
    nvlink_efficiency=0.8,
    nvlink_latency_seconds=2e-6,
    network_bytes_per_second=25e9,
    network_efficiency=0.8,
    network_latency_seconds=5e-6,
    nics_per_gpu=1.0,
)
VOLUME = 1e9


@pytest.mark.parametrize(
    ("kind", "ranks", "in_domain", "seconds"),
    [
        ("all_gather", 1, 1, 0.0),
        # Each member in a domain of its own: 7 hops of 5 us, 7/8 of 1 GB over 20 GB/s.
        ("all_gather", 8, 1, 7 * 5e-6 + 7 / 8 / 20),
        # All in one domain: 7 hops of 2 us, 7/8 GB over 200 GB/s.
        ("reduce_scatter", 8, 8, 7 * 2e-6 + 7 / 8 / 200),
        # 4 domains of 2: two cards, 40 GB/s, are slower than NVLink; 3 slow and 4 fast hops.
        ("all_gather", 8, 2, 3 * 5e-6 + 4 * 2e-6 + 7 / 8 / 40),
        # 2 domains of 16: 16 cards, 320 GB/s, are faster than NVLink, which sets the pace.
        ("all_gather", 32, 16, 1 * 5e-6 + 30 * 2e-6 + 31 / 32 / 200),
        # A broadcast moves everything.
        ("broadcast", 8, 8, 7 * 2e-6 + 1 / 200),
        ("reduce", 8, 1, 7 * 5e-6 + 1 / 20),
        # The source counts an all-reduce's bytes twice across domains only (erratum R3).
        ("all_reduce", 8, 8, 7 * 2e-6 + 7 / 8 / 200),
        ("all_reduce", 8, 1, 7 * 5e-6 + 7 / 8 / 20),
        ("all_reduce", 8, 2, 3 * 5e-6 + 4 * 2e-6 + 2 * 7 / 8 / 40),
    ],
)
def test_a_collective_costs_what_a_hand_calculation_says(
    kind: str, ranks: int, in_domain: int, seconds: float
) -> None:
    assert ring(kind, ranks, in_domain).line(NETWORK).seconds(VOLUME) == pytest.approx(seconds)


@pytest.mark.parametrize("in_domain", [1, 2, 8])
def test_the_mended_all_reduce_counts_its_bytes_twice_everywhere(in_domain: int) -> None:
    gather = ring("all_gather", 8, in_domain).line(NETWORK)
    mended = ring("all_reduce", 8, in_domain, double_all_reduce=True).line(NETWORK)
    assert mended.seconds_per_byte == pytest.approx(2 * gather.seconds_per_byte)
    assert mended.latency == pytest.approx(gather.latency)


def test_no_bytes_cost_nothing() -> None:
    assert ring("all_gather", 8, 2).line(NETWORK).seconds(0.0) == 0.0


def test_a_network_card_shared_by_four_gpus_is_a_quarter_as_fast() -> None:
    shared = replace(NETWORK, nics_per_gpu=0.25)
    line = ring("all_gather", 8, 2).line(shared)
    assert line.seconds_per_byte == pytest.approx(7 / 8 / 10e9)


@given(st.sampled_from([2, 4, 8, 64]), st.sampled_from([1, 2, 4, 8]), st.floats(1, 1e12))
def test_more_bandwidth_never_costs_time(ranks: int, in_domain: int, volume: float) -> None:
    geometry = ring("all_gather", ranks, min(ranks, in_domain))
    before = geometry.line(NETWORK).seconds(volume)
    for name in ("nvlink_bytes_per_second", "network_bytes_per_second", "nics_per_gpu"):
        change = {name: 2 * getattr(NETWORK, name)}
        assert geometry.line(replace(NETWORK, **change)).seconds(volume) <= before


def test_columns_of_groups_are_costed_element_by_element() -> None:
    ranks, in_domain = np.array([1, 8, 8, 8]), np.array([1, 1, 8, 2])
    column = np.asarray(ring("all_gather", ranks, in_domain).line(NETWORK).seconds(VOLUME))
    single = [
        float(ring("all_gather", int(n), int(g)).line(NETWORK).seconds(VOLUME))
        for n, g in zip(ranks, in_domain, strict=True)
    ]
    assert column.tolist() == single
