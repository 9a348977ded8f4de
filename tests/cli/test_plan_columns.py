"""`warehouse plan --columns`: names that no table of the page has are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.planning import QUESTION
from tests.shared import Command

pytestmark = pytest.mark.usefixtures("same_answers")


def test_an_unknown_column_is_refused_with_the_names_of_all_tables(
    warehouse: Command, planned: tuple[Path, dict[str, Any], str]
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--db", planned[0])
    code, out, err = warehouse(*asked, "--columns", "rank,setting")
    assert (code, out) == (2, "")
    assert "`--columns` setting: the result has no such column" in err
    assert "use rank, " in err
    assert "planned_gpu_hours" in err or "power_note" in err
    # a table that CSV does not have has no columns there
    assert warehouse(*asked, "--columns", "MW")[0] == 0
    assert warehouse(*asked, "--columns", "MW", "--format", "csv")[0] == 2


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
@pytest.mark.parametrize("name", ["foo", "setting", "measured_row"])
def test_a_column_that_a_plan_never_has_is_refused_before_anything_is_evaluated(
    warehouse: Command, database: Path, form: str, name: str
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--format", form, "--db", database)
    code, out, err = warehouse(*asked, "--columns", f"rank,{name}")
    assert (code, out) == (2, "")
    assert f"`--columns` {name}: the result has no such column" in err
    assert not database.exists()


@pytest.mark.parametrize("columns", ["rank", "setting"])
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
