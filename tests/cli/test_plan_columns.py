"""`warehouse plan --columns`: wrong names are refused before anything is evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.planning import QUESTION
from tests.shared import Command
from warehouse.cli import display
from warehouse.cli.plan_columns import LAYOUTS, OTHERS, check_columns
from warehouse.errors import UsageError
from warehouse.show.formats import Format

pytestmark = pytest.mark.usefixtures("same_answers")


def test_an_unknown_column_is_refused_before_anything_is_evaluated(
    warehouse: Command, database: Path
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--columns", "rank,foo", "--db", database)
    code, out, err = warehouse(*asked)
    assert (code, out) == (2, "")
    assert "`--columns` foo: the result has no such column" in err
    assert "rank, " in err
    assert "slow_training_seconds" in err
    assert "sweep" not in err
    assert not database.exists()


@pytest.mark.parametrize("columns", ["rank", "foo"])
def test_json_has_no_columns_to_choose_and_says_so_before_anything_is_evaluated(
    warehouse: Command, database: Path, columns: str
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--json", "--columns", columns, "--db", database)
    code, out, err = warehouse(*asked)
    assert (code, out) == (2, "")
    assert "`--columns` chooses columns of tables, and this JSON is a document" in err
    assert "sweep" not in err
    assert not database.exists()


def test_the_stages_of_a_dry_run_have_columns_in_json_too(
    warehouse: Command, planned: tuple[Path, dict[str, Any], str]
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--dry-run", "--json", "--db", planned[0])
    code, out, err = warehouse(*asked, "--columns", "stage")
    assert code == 0, err
    assert {tuple(row) for row in json.loads(out)} == {("stage",)}
    code, out, err = warehouse(*asked, "--columns", "rank")
    assert (code, out) == (2, "")
    assert "use stage, action" in err


@pytest.mark.parametrize("form", [Format.TABLE, Format.MARKDOWN, Format.CSV])
def test_every_column_that_is_printed_is_known(
    warehouse: Command,
    planned: tuple[Path, dict[str, Any], str],
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
) -> None:
    printed: list[str] = []

    def chosen_places(columns: Any, *headed: Any) -> Any:
        printed.extend(columns)
        return display.chosen_places(columns, *headed)

    monkeypatch.setattr("warehouse.cli.common.chosen_places", chosen_places)
    asked = ("plan", *QUESTION, "--gpus", 8, "--format", form.value, "--db", planned[0])
    code, _, err = warehouse(*asked)
    assert code == 0, err
    assert "memory_bytes" in printed
    assert set(printed) <= {*LAYOUTS, *OTHERS}
    check_columns(printed, form, is_dry_run=False)


def test_columns_are_known_by_the_headings_of_each_unit() -> None:
    names = ["Training days", "training hours", "MW", "memory GB", "%", "step s"]
    check_columns(names, Format.TABLE, is_dry_run=False)
    with pytest.raises(UsageError, match="MW"):
        check_columns(["MW"], Format.CSV, is_dry_run=False)
    check_columns(["stage"], Format.CSV, is_dry_run=True)
