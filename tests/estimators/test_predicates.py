"""Predicates on columns are those of Python, on scalars and on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.predicates import compiled

ROWS: list[dict[str, Any]] = [
    {"stages": 1, "zero": 3, "splits": True, "schedule": "1f1b"},
    {"stages": 4, "zero": 1, "splits": False, "schedule": "zbv"},
    {"stages": 4, "zero": 3, "splits": False, "schedule": "1f1b"},
    {"stages": 6, "zero": 0, "splits": True, "schedule": "dualpipe"},
]
PREDICATES = (
    "stages == 1 or zero < 2",
    "not splits and stages > 1",
    "splits",
    "schedule in ('1f1b', 'zbv')",
    "schedule != '1f1b' or stages % 4 == 0",
    "(stages + 2) // 2 * 2 - zero >= 4",
    "zero == 0 or stages % zero == 0",
)


@pytest.mark.parametrize("text", PREDICATES)
def test_a_predicate_is_that_of_python(text: str) -> None:
    expected = [bool(eval(text, {}, row)) for row in ROWS]
    holds = compiled(text).holds
    assert [bool(holds(row)) for row in ROWS] == expected
    columns = {
        name: np.array([row[name] for row in ROWS], dtype=object if name == "schedule" else None)
        for name in ROWS[0]
    }
    assert holds(columns).tolist() == expected
    assert 0 < sum(expected) < len(ROWS)


def test_names_are_in_order_and_once() -> None:
    assert compiled("b == 1 or not a or b < c % a").names == ("b", "a", "c")


def test_a_missing_number_is_0_and_a_missing_text_equals_none() -> None:
    assert compiled("group == 0").holds({"group": None})
    assert compiled("group == 0").holds({"group": np.array([np.nan, 2.0])}).tolist() == [
        True,
        False,
    ]
    assert not compiled("schedule == '1f1b'").holds({"schedule": None})


@pytest.mark.parametrize(
    "text",
    (
        "a + 1",
        "a < b < c",
        "f(a) == 1",
        "a.b == 1",
        "a in b",
        "a ==",
        "'a' == 'a' + 1",
        "a / 2 == 1",
    ),
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|is neither"):
        compiled(text)
