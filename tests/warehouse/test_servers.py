"""GPU counts as they are sold."""

from __future__ import annotations

import pytest

from warehouse.plan.servers import is_sold, next_sold


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
