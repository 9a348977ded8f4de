"""Tables and places in them, against rows written out by hand."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import ArrayLike

from estimators.contract import Array
from estimators.factored import Gathered, distinct, distinct_rows, runs, stacked, take

TENSOR = np.array([1, 1, 2, 2, 1, 1])
DATA = np.array([8, 8, 4, 4, 8, 4])
ROWS = {"tensor_parallel": TENSOR, "data_parallel": DATA}


def test_successive_rows_that_agree_are_one() -> None:
    table, place = runs(ROWS, ("tensor_parallel", "data_parallel"))
    assert table["tensor_parallel"].tolist() == [1, 2, 1, 1]
    assert table["data_parallel"].tolist() == [8, 4, 8, 4]
    assert place.tolist() == [0, 0, 1, 1, 2, 3]


def test_equal_rows_are_one_at_any_place() -> None:
    table, place = distinct_rows(ROWS, ("tensor_parallel", "data_parallel"))
    found = list(zip(table["tensor_parallel"], table["data_parallel"], strict=True))
    assert sorted(found) == [(1, 4), (1, 8), (2, 4)]
    again = [found[n] for n in place]
    assert again == [(1, 8), (1, 8), (2, 4), (2, 4), (1, 8), (1, 4)]


@pytest.mark.parametrize("largest", [3, 2**20, 2**31 - 1])
def test_columns_of_any_size_are_distinguished(largest: int) -> None:
    # Three columns of 31 bits are 93: more than a code has. Only the last two rows are the same.
    rows = {
        "tensor_parallel": np.array([0, largest, 0, largest, largest], dtype=np.float64),
        "context_parallel": np.array([0, 0, largest, largest, largest], dtype=np.float64),
        "data_parallel": np.array([largest, 1, 1, 1, 1], dtype=np.float64),
    }
    table, place = distinct_rows(rows, tuple(rows))
    for name, column in rows.items():
        assert table[name][place].tolist() == column.tolist()
    assert len(set(place.tolist())) == 4
    assert place[3] == place[4]


@pytest.mark.parametrize(
    "place", [None, np.array([1, 1, 0])], ids=["rows of its own", "rows of a table"]
)
def test_a_column_is_written_as_it_is_read(place: Array | None) -> None:
    table = np.array([2.5, 7.5, 4.5])
    expected = [2.5, 7.5, 4.5] if place is None else [7.5, 7.5, 2.5]
    column = Gathered(table, place)
    assert column.rows.tolist() == expected
    for kind in (np.float64, np.float32):
        out = np.zeros(3, dtype=kind)
        column.write(out)
        assert out.tolist() == expected


def test_a_number_is_the_same_in_all_rows() -> None:
    out = np.zeros(2)
    Gathered(3.0, np.array([0, 5])).write(out)
    assert out.tolist() == [3.0, 3.0]
    assert take(3.0, np.array([0, 5])) == 3.0
    assert stacked([3.0, np.array([1.0, 2.0])], 2).tolist() == [3, 3, 1, 2]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [3, 1, 3, 2],
        [np.nan, 1.0, np.nan, 1.0, np.inf],
        np.int64(5),
        [[2, 1], [1, 0]],
        ["b", "a"],
    ],
    ids=str,
)
def test_distinct_values_are_those_that_numpy_finds(values: ArrayLike) -> None:
    assert distinct(values).tolist() == pytest.approx(
        np.unique(np.array(values)).tolist(), nan_ok=True
    )


def test_masked_arrays_are_not_imported() -> None:
    code = """if True:
        import sys
        from estimators.factored import distinct
        distinct([2, 1, 2])
        sys.exit("numpy.ma" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
