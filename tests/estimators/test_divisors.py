"""Divisors, expansion and placements agree with a count by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.divisors import divisors, each_divisor, expand
from estimators.roofline.search import placements

DEGREES = st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12, 16, 35])] * 3)


@given(st.integers(1, 20_000))
def test_divisors_are_all_divisors_in_order(number: int) -> None:
    assert divisors(number).tolist() == [d for d in range(1, number + 1) if number % d == 0]


def test_expansion_repeats_parents_and_numbers_their_children() -> None:
    parent, place = expand(np.array([2, 0, 3]))
    assert parent.tolist() == [0, 0, 2, 2, 2]
    assert place.tolist() == [0, 1, 0, 1, 2]


def test_each_divisor_knows_the_next_larger_one() -> None:
    child = each_divisor(np.array([6, 1]))
    assert child.parent.tolist() == [0, 0, 0, 0, 1]
    assert child.value.tolist() == [1, 2, 3, 6, 1]
    assert child.following[:3].tolist() == [2, 3, 6]
    assert (child.following[3:] > 1_000_000).all()


@given(st.lists(DEGREES, min_size=1, max_size=5), st.sampled_from([1, 2, 4, 6, 8, 64, 72]))
def test_exact_placements_fill_the_domain_or_hold_everything(
    splits: list[tuple[int, ...]], domain: int
) -> None:
    found = _found(splits, domain, exact=True)
    for split, members in zip(splits, found, strict=True):
        target = min(math.prod(split), domain)
        assert members == [m for m in _all(split) if math.prod(m) == target]


@given(st.lists(DEGREES, min_size=1, max_size=5), st.sampled_from([1, 2, 4, 6, 8, 64, 72]))
def test_maximal_placements_are_those_in_which_no_degree_can_grow(
    splits: list[tuple[int, ...]], domain: int
) -> None:
    found = _found(splits, domain, exact=False)
    for split, members in zip(splits, found, strict=True):
        assert members == [m for m in _all(split) if _is_maximal(m, split, domain)]
        assert members, "every split has a maximal placement"


@given(
    st.tuples(*[st.sampled_from([1, 2, 4, 8, 16, 32])] * 3), st.sampled_from([1, 2, 4, 8, 16, 64])
)
def test_both_rules_agree_on_powers_of_two(split: tuple[int, ...], domain: int) -> None:
    assert _found([split], domain, exact=True) == _found([split], domain, exact=False)


def test_a_domain_of_72_has_placements_only_under_the_mended_rule() -> None:
    split = (8, 64, 4)
    assert _found([split], 72, exact=True) == [[]]
    assert (8, 8, 1) in _found([split], 72, exact=False)[0]


@pytest.mark.parametrize("exact", [True, False])
def test_no_splits_have_no_placements(exact: bool) -> None:
    none = np.empty(0, dtype=np.int64)
    assert len(placements([none, none], 8, exact=exact).parent) == 0


def _found(
    splits: list[tuple[int, ...]], domain: int, *, exact: bool
) -> list[list[tuple[int, ...]]]:
    columns = [np.array(column, dtype=np.int64) for column in zip(*splits, strict=True)]
    found = placements(columns, domain, exact=exact)
    assert (np.diff(found.parent) >= 0).all()
    rows = list(zip(*(column.tolist() for column in found.members), strict=True))
    return [
        [row for row, parent in zip(rows, found.parent.tolist(), strict=True) if parent == split]
        for split in range(len(splits))
    ]


def _all(split: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(divisors(degree).tolist() for degree in split)))


def _is_maximal(members: tuple[int, ...], split: tuple[int, ...], domain: int) -> bool:
    if math.prod(members) > domain:
        return False
    return not any(
        math.prod(members) // member * larger <= domain
        for member, degree in zip(members, split, strict=True)
        for larger in divisors(degree).tolist()
        if larger > member
    )
