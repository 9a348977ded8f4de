"""Columns as the fields of a frozen dataclass: missing values, rows, comparison of texts."""

from __future__ import annotations

import numpy as np

from estimators.structure import equals, flag, number, real
from estimators.training_step.problem import Choices, Layout


def test_a_value_that_is_missing_is_nan_false_or_no_text() -> None:
    layout = Layout.of({"tensor_parallel": 4})
    assert layout.tensor_parallel == 4.0
    assert np.isnan(layout.data_parallel)
    assert not layout.uses_sequence_parallel
    assert Choices.of({}).schedule is None


def test_a_column_with_gaps_has_one_type() -> None:
    gaps = np.array([2, None], dtype=object)
    assert np.array_equal(real(gaps), [2.0, np.nan], equal_nan=True)
    assert np.array_equal(number(gaps, 1.0), [2.0, 1.0])
    assert number(None) == 0.0
    assert np.asarray(flag(np.array([True, None], dtype=object))).tolist() == [True, False]


def test_a_text_that_is_missing_equals_no_word() -> None:
    assert equals("1f1b", "1f1b")
    assert not equals(None, "1f1b")
    texts = np.array(["zbv", None, "1f1b"], dtype=object)
    assert np.asarray(equals(texts, "1f1b")).tolist() == [False, False, True]


def test_some_rows_of_a_batch_are_a_structure_again() -> None:
    layout = Layout.of({"tensor_parallel": np.array([1, 2, 4]), "pipeline_parallel": 8})
    rows = layout.take(np.array([2, 0]))
    assert np.asarray(rows.tensor_parallel).tolist() == [4.0, 1.0]
    assert rows.pipeline_parallel == 8.0


def test_a_flag_that_is_missing_in_a_batch_is_false() -> None:
    assert flag(np.array([np.nan, 1.0, 0.0])).tolist() == [False, True, False]
    assert flag(np.array([None, True, np.nan], dtype=object)).tolist() == [False, True, False]
