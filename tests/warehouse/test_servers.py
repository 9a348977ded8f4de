"""GPU counts as they are sold."""

from __future__ import annotations

import pytest

from warehouse.plan.search import is_sold, next_sold, sold_between


@pytest.mark.parametrize(
    ("num_gpus", "server", "expected"),
    [
        *((8, 8, True), (64, 8, True), (63, 8, False), (4, 8, True), (6, 8, False), (1, 8, True)),
        *((68, 4, True), (70, 4, False), (2, 4, True), (7, 1, True)),
    ],
)
def test_whole_servers_and_powers_of_two_below_one_are_sold(
    num_gpus: int, server: int, expected: bool
) -> None:
    assert is_sold(num_gpus, server) is expected


@pytest.mark.parametrize(
    ("num_gpus", "server", "expected"),
    [
        *((63, 8, (56, 64)), (70, 4, (68, 72)), (12, 8, (8, 16)), (16, 8, (8, 24))),
        *(
            (6, 8, (4, 8)),
            (3, 8, (2, 4)),
            (2, 8, (1, 4)),
            (1, 8, (None, 2)),
            (8, 8, (4, 16)),
            (1, 1, (None, 2)),
        ),
    ],
)
def test_the_next_counts_are_sold(
    num_gpus: int, server: int, expected: tuple[int | None, int]
) -> None:
    assert next_sold(num_gpus, server) == expected


@pytest.mark.parametrize("server", [1, 2, 4, 8])
def test_the_counts_between_two_are_those_that_are_sold(server: int) -> None:
    for least in range(1, 20):
        for most in range(least - 1, 40):
            expected = [n for n in range(least, most + 1) if is_sold(n, server)]
            assert list(sold_between(least, most, server)) == expected


def test_the_counts_between_two_large_ones_are_not_listed() -> None:
    counts = sold_between(100_000_001, 200_000_000, 8)
    assert isinstance(counts, range)
    assert (len(counts), counts[0], counts[-1]) == (12_500_000, 100_000_008, 200_000_000)
