"""Values of a study: scalars, lists and ranges against the data dictionary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.columns import COLUMNS, Column
from estimators.contract import Refusal, RefusedError
from estimators.inputs import LARGEST_WHOLE
from warehouse.studies.values import MAX_POINTS, expand

GPUS = COLUMNS["num_gpus"]
BYTES = COLUMNS["parameters"]
EFFICIENCY = COLUMNS["nvlink_efficiency"]
STRATEGY = COLUMNS["strategy"]
MODEL = COLUMNS["model"]
SHARDED = Column("is_sharded", "bool", "", "A flag")


def refusals(column: Column, given: object) -> Sequence[Refusal]:
    with pytest.raises(RefusedError) as caught:
        expand(column, given)
    return caught.value.refusals


@pytest.mark.parametrize(
    ("column", "given", "expected"),
    [
        (GPUS, 8, (8,)),
        (GPUS, 8.0, (8,)),
        (GPUS, [8, 2, 4], (8, 2, 4)),
        (GPUS, {"powers_of_two": [2, 5]}, (4, 8, 16, 32)),
        (GPUS, {"powers_of_two": [3, 3]}, (8,)),
        (GPUS, {"linear": [1, 9, 5]}, (1, 3, 5, 7, 9)),
        (GPUS, {"logarithmic": [1, 1000, 4]}, (1, 10, 100, 1000)),
        (BYTES, 80, (80.0,)),
        (BYTES, {"linear": [0.1, 0.5, 5]}, (0.1, 0.2, 0.3, 0.4, 0.5)),
        (BYTES, {"logarithmic": [1e9, 1e12, 4]}, (1e9, 1e10, 1e11, 1e12)),
        (BYTES, {"powers_of_two": [-1, 1]}, (0.5, 1.0, 2.0)),
        (EFFICIENCY, 1, (1.0,)),
        (STRATEGY, ["tensor_1d", "summa_2d"], ("tensor_1d", "summa_2d")),
        (SHARDED, [True, False], (True, False)),
    ],
)
def test_a_value_is_expanded_to_the_columns_type(
    column: Column,
    given: dict[str, list[float]] | float | list[bool | int | str],
    expected: tuple[bool | float | str, ...],
) -> None:
    values = expand(column, given)
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("column", "given", "reason"),
    [
        (GPUS, 2.5, "must be a whole number"),
        (GPUS, True, "must be a whole number"),
        (GPUS, "8", "must be a whole number"),
        (GPUS, math.nan, "not a finite number"),
        (GPUS, math.inf, "not a finite number"),
        (GPUS, 0, "must be at least 1"),
        (GPUS, -4, "must be at least 1"),
        (GPUS, 2**31, "must be at most 2147483647"),
        (GPUS, 10**400, "is too large"),
        (BYTES, 0, "must be more than 0"),
        (BYTES, math.nan, "not a finite number"),
        (BYTES, "80e9", "must be a number"),
        (BYTES, False, "must be a number"),
        (BYTES, 10**400, "is too large"),
        (EFFICIENCY, 1.01, "must be at most 1"),
        (STRATEGY, "tensor_3d", "is not known"),
        (STRATEGY, 1, "must be a text"),
        (MODEL, "", "printed on one line"),
        (MODEL, " ", "printed on one line"),
        (MODEL, "a\nb", "printed on one line"),
        (SHARDED, 1, "must be true or false"),
        (GPUS, [], "is empty"),
        (GPUS, [[8]], "must be a whole number"),
        (GPUS, [{"linear": [1, 2, 2]}], "must be a whole number"),
        (GPUS, [8, 8.0], "is given twice"),
        (GPUS, list(range(1, MAX_POINTS + 2)), "more than 100000 values"),
        (GPUS, {}, "is not a range"),
        (GPUS, {"powers_of_ten": [1, 2]}, "is not a range"),
        (GPUS, {"linear": [1, 9, 5], "powers_of_two": [1, 2]}, "is not a range"),
        (GPUS, {"linear": 5}, "is not a range"),
        (GPUS, {"linear": [1, 9]}, "is not a range"),
        (GPUS, {"linear": [1, "9", 5]}, "finite numbers only"),
        (GPUS, {"linear": [1, math.inf, 5]}, "finite numbers only"),
        (GPUS, {"linear": [math.nan, 5, 5]}, "finite numbers only"),
        (GPUS, {"linear": [1, 9, True]}, "finite numbers only"),
        (GPUS, {"linear": [1, 9, 4]}, "must be a whole number"),
        (GPUS, {"logarithmic": [1, 1000, 5]}, "must be a whole number"),
        (GPUS, {"linear": [9, 1, 5]}, "the smaller first"),
        (GPUS, {"linear": [1, 1, 2]}, "the smaller first"),
        (GPUS, {"linear": [1, 9, 1]}, "a whole n from 2"),
        (GPUS, {"linear": [1, 9, 2.5]}, "a whole n from 2"),
        (GPUS, {"linear": [1, 9, 10**9]}, "a whole n from 2"),
        (GPUS, {"linear": [0, 9, 10]}, "gives 0, which must be at least 1"),
        (GPUS, {"powers_of_two": [2, 1]}, "the smaller first"),
        (GPUS, {"powers_of_two": [1, 2.5]}, "whole exponents"),
        (GPUS, {"powers_of_two": [-1, 3]}, "exponents from 0 to 62"),
        (GPUS, {"powers_of_two": [2, 10**6]}, "exponents from 0 to 62"),
        (GPUS, {"powers_of_two": [2, 40]}, "gives 2147483648, which must be at most"),
        (BYTES, {"logarithmic": [0, 9, 3]}, "above zero"),
        (BYTES, {"logarithmic": [1e-300, 1e300, 3]}, "spans more"),
        (BYTES, {"linear": [1, 1 + 2**-52, 3]}, "is given twice"),
        (STRATEGY, {"linear": [1, 2, 2]}, "not a range"),
    ],
)
def test_a_faulty_value_is_refused_with_its_reason(
    column: Column, given: object, reason: str
) -> None:
    [refusal] = refusals(column, given)
    assert refusal.column == column.name
    assert reason in refusal.reason


def test_every_faulty_value_of_a_list_is_reported() -> None:
    found = refusals(GPUS, [8, 0, "x", 2.5])
    assert [refusal.value for refusal in found] == [0, "x", 2.5]


def test_a_range_that_misses_whole_numbers_says_how_to_mend_it() -> None:
    [refusal] = refusals(GPUS, {"linear": [1, 9, 4]})
    assert refusal.value == "{linear = [1, 9, 4]}"
    assert "choose n" in refusal.hint


def test_an_integer_that_a_float_cannot_hold_is_refused() -> None:
    big = Column("tokens", "int", "", "Tokens", storage="BIGINT")
    assert expand(big, LARGEST_WHOLE) == (2**53 - 1,)
    [refusal] = refusals(big, 2**53 + 1)
    assert "must be at most 9007199254740991" in refusal.reason


@given(st.integers(1, 2**30), st.integers(1, 10**6), st.integers(2, 200))
def test_linear_takes_both_ends_and_equal_steps(low: int, step: int, count: int) -> None:
    high = low + step * (count - 1)
    if high < 2**31:
        assert expand(GPUS, {"linear": [low, high, count]}) == tuple(range(low, high + 1, step))


@given(
    st.floats(1e-9, 1e15),
    st.floats(1.001, 1e9),
    st.integers(2, 50),
    st.sampled_from(["linear", "logarithmic"]),
)
def test_ranges_rise_from_one_end_to_the_other(
    low: float, factor: float, count: int, form: str
) -> None:
    values = [float(str(value)) for value in expand(BYTES, {form: [low, low * factor, count]})]
    assert len(values) == count
    assert values[0] == low
    assert values[-1] == low * factor
    assert values == sorted(set(values))
