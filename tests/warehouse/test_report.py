"""Tables for people: units, headings, and columns that say nothing."""

from __future__ import annotations

from datetime import datetime

import pytest

from estimators.columns import COLUMNS, LAYOUT_COLUMNS, names_in
from warehouse.show.units import for_people, in_words, informative_columns, with_digits


@pytest.mark.parametrize(
    ("column", "value", "heading", "text"),
    [
        ("memory_bytes", 80e9, "memory GB", "80.0"),
        ("hbm_bytes_per_second", 3.35e12, "hbm GB/s", "3,350.0"),
        ("matrix_flops_per_second", 989.4e12, "matrix TFLOP/s", "989.4"),
        ("published_flops_per_second_per_gpu", 163e12, "published TFLOP/s per GPU", "163.0"),
        ("step_seconds", 0.00123456, "step s", "0.001235"),
        ("step_seconds", 21.9, "step s", "21.90"),
        ("step_seconds", 123456.7, "step s", "123,457"),
        ("training_seconds", 14660765.0, "training days", "169.7"),
        ("best_training_seconds", 432.0, "best training minutes", "7.2"),
        ("tokens_per_second", 118518.3, "tokens/s", "118,518"),
        ("mfu", 0.568, "MFU %", "56.8"),
        ("bubble_fraction", 0.05, "bubble %", "5.0"),
        ("relative_error", 0.336, "error %", "+33.6"),
        ("mean_absolute_relative_error", 0.336, "mean |error| %", "33.6"),
        ("bias", -0.01, "bias %", "-1.0"),
        ("num_gpus", 16384, "GPUs", "16,384"),
        ("best_tensor_parallel", 8, "best TP", "8"),
        ("fits_memory", True, "fits memory", "yes"),
        ("problem_id", 1234567, "problem id", 1234567),
        ("evaluated_at", datetime(2024, 5, 31, 12, 0, 0, 7), "evaluated at", "2024-05-31 12:00:00"),
        ("model", "gpt3_1T", "model", "gpt3_1T"),
        ("step_seconds", None, "step s", None),
    ],
)
def test_a_column_takes_the_unit_and_heading_of_people(
    column: str, value: object, heading: str, text: int | str | None
) -> None:
    assert for_people((column,), [(value,)]) == ([heading], [[text]])


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (2.0, 3, "2.00"),
        (2.02, 3, "2.02"),
        (0.852, 3, "0.852"),
        (99.96, 3, "100"),
        (1234.4, 3, "1,234"),
        (5.0, 2, "5.0"),
        (9.96, 2, "10"),
        (0.0, 3, "0"),
    ],
)
def test_figures_keep_the_zeros_at_their_end(value: float, digits: int, text: str) -> None:
    assert with_digits(value, digits) == text
    assert with_digits(value, digits, "+") == f"+{text}"


def test_columns_that_are_unused_in_all_rows_are_left_out() -> None:
    columns = ("tensor_parallel_2", "virtual_pipeline", "activation_recompute", "num_gpus")
    unused = [(1, 1, "none", 8), (1, None, "none", 8)]
    assert informative_columns(columns, unused) == [3]
    used = [(1, 1, "none", 8), (2, 3, "full", 8)]
    assert informative_columns(columns, used) == [0, 1, 2, 3]
    assert for_people(columns, used) == (
        ["TP2", "VP", "recompute", "GPUs"],
        [["1", "1", "none", "8"], ["2", "3", "full", "8"]],
    )


def test_columns_to_drop_are_dropped() -> None:
    assert informative_columns(("model", "num_gpus"), [("gpt3", 8)], drop=["model"]) == [1]


def test_bytes_of_one_element_are_bytes() -> None:
    assert in_words("stored_weight_bytes", 2.0) == "2 bytes"
    assert in_words("dispatch_element_bytes", 0.5) == "0.5 bytes"
    assert in_words("framework_bytes", 0.55e9) == "0.6 GB"


def test_the_share_of_published_hours_is_a_percentage() -> None:
    assert for_people(("planned_share",), [(0.89876,)]) == (["planned %"], [["89.9"]])


def test_a_table_without_rows_keeps_its_headings() -> None:
    assert for_people(("model", "virtual_pipeline"), []) == (["model", "VP"], [])


def test_no_two_columns_of_the_dictionary_share_a_heading() -> None:
    headings = for_people(list(COLUMNS), [])[0]
    assert len(set(headings)) == len(headings)


def test_columns_that_a_query_makes_up_follow_from_their_names() -> None:
    columns = ("waiting_seconds", "kept_bytes", "best_hbm_bytes", "any_id", "layouts")
    assert not COLUMNS.keys() & set(columns)
    assert for_people(columns, [(2.5, 3e9, 4e9, 1234567, 1234)]) == (
        ["waiting s", "kept GB", "best hbm GB", "any id", "layouts"],
        [["2.500", "3.0", "4.0", 1234567, "1,234"]],
    )


def test_a_column_knows_how_people_read_it() -> None:
    step, degree, mfu = (COLUMNS[name] for name in ("step_seconds", "tensor_parallel_2", "mfu"))
    assert (step.heading, step.form.unit, step.better) == ("step s", "s", "lower")
    assert (degree.heading, degree.neutral, degree.in_layout) == ("TP2", 1, True)
    assert (mfu.heading, mfu.better, mfu.in_layout) == ("MFU %", "higher", False)
    assert (*names_in("Layout"), *names_in("Schedule of a pipeline")) == LAYOUT_COLUMNS
