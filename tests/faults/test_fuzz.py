"""Odd input of each kind is taken, or refused in words, soon and with nothing half written.

`python -m tests.faults.fuzzing` runs thousands of such cases, `python -m tests.faults.guided` those
that coverage finds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from tests.examples import examples
from tests.faults.fuzz import INCOMPLETE, KINDS, STORING, Case, check, forget, is_small

NUMBERS = {"study": 40, "configurations": 30, "runs": 25, "reference": 60, "words": 10}
NUMBERS |= {"settings": 30, "typed": 30, "manifest": 25}
"""Kind of input -> its examples; a run that is taken costs a second."""


@pytest.fixture
def checked(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Case], int]:
    """Run a case next to an empty warehouse; return its exit code."""
    database, place = tmp_path / "warehouse.duckdb", tmp_path / "place"
    monkeypatch.chdir(tmp_path)

    def checked(case: Case) -> int:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        os.chdir(place)
        if not database.exists():
            shutil.copyfile(empty_warehouse, database)
        code = check(case, place, database)
        if code in (0, INCOMPLETE) and case.kind in STORING:
            forget(database)
        return code

    return checked


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.long if kind in STORING or kind == "words" else [])
        for kind in NUMBERS
    ],
)
def test_odd_input_is_taken_or_refused_in_words(kind: str, checked: Callable[[Case], int]) -> None:
    codes = set()

    @examples(NUMBERS[kind])
    @given(KINDS[kind]().filter(is_small))
    def run(case: Case) -> None:
        codes.add(checked(case))

    run()
    assert codes & {2, 3}, "no case was odd"
