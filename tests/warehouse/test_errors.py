"""Error messages: exit code, file, row, value, reason and hint."""

from __future__ import annotations

import pytest

from estimators.contract import Refusal
from warehouse.errors import (
    MAX_SHOWN,
    CheckError,
    DatabaseError,
    InputError,
    UsageError,
    WarehouseError,
)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(WarehouseError, 1), (UsageError, 2), (InputError, 3), (CheckError, 4), (DatabaseError, 5)],
)
def test_each_error_has_its_exit_code_and_keeps_its_hint(
    kind: type[WarehouseError], code: int
) -> None:
    error = kind("x.toml: is empty", "write something")

    assert kind.exit_code == code
    assert (error.message, error.hint) == ("x.toml: is empty", "write something")
    assert str(error) == "x.toml: is empty\nhint: write something"
    assert str(kind("x.toml: is empty")) == "x.toml: is empty"


def test_one_refusal_names_file_key_value_reason_and_hint() -> None:
    refusal = Refusal("tensor_parallel", 12, "does not divide `num_heads` 64", "use 1, 2 or 4")

    assert str(InputError.from_refusals([refusal], "studies/x.toml")) == (
        "studies/x.toml: `tensor_parallel` 12 does not divide `num_heads` 64\nhint: use 1, 2 or 4"
    )


def test_rows_are_counted_from_one_and_a_shared_hint_is_given_once() -> None:
    refusals = [
        Refusal("num_gpus", value, "is odd", "use 2", row) for row, value in ((0, 1), (4, 3))
    ]

    assert str(InputError.from_refusals(refusals, "a.csv")) == (
        "a.csv: row 1: `num_gpus` 1 is odd\na.csv: row 5: `num_gpus` 3 is odd\nhint: use 2"
    )


def test_differing_hints_follow_their_refusals() -> None:
    refusals = [Refusal("model", "gpt", "is not known", "use gpt3"), Refusal("num_gpus", 0, "is 0")]

    assert str(InputError.from_refusals(refusals, "a.toml")) == (
        'a.toml: `model` "gpt" is not known\nhint: use gpt3\na.toml: `num_gpus` 0 is 0'
    )


def test_a_long_list_is_cut_and_the_rest_counted() -> None:
    refusals = [Refusal("num_gpus", n, "is odd", row=n) for n in range(MAX_SHOWN + 7)]
    lines = str(InputError.from_refusals(refusals, "a.csv")).splitlines()

    assert len(lines) == MAX_SHOWN + 1
    assert lines[-1] == "... and 7 more"
