"""`warehouse schema`: the tables, views and macros of a database and of the package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.shared import Command, Quickstart
from warehouse.database.meanings import ROLES


def test_everything_is_listed_by_role_with_what_it_is_and_its_rows(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, err = warehouse("schema", "--db", quickstart.database)
    assert (code, err) == (0, "")
    sections = re.findall(r"^(\w+): ", out, re.MULTILINE)
    assert sections == [role for role in ROLES if role != "own"]
    assert re.search(r"^  roofline +\d{3},\d{3}  Roofline per operation.*: one row per", out, re.M)
    assert re.search(r"^  configuration_rank  +The twenty best .*: one row per", out, re.M)
    assert re.search(r"^  in_days\(seconds\)  +Seconds in days", out, re.M)
    assert "training_cost_for(asked_tokens, ...)" in out


@pytest.mark.parametrize("name", ["mart", "marts"])
def test_a_role_is_listed_alone(warehouse: Command, quickstart: Quickstart, name: str) -> None:
    code, out, _ = warehouse("schema", name, "--db", quickstart.database)
    assert code == 0
    assert out.startswith("mart: Views to ask")
    assert "\n\n" not in out


def test_a_view_shows_columns_lineage_and_an_example(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, err = warehouse("schema", "Training-Cost", "--db", quickstart.database)
    assert (code, err) == (0, "")
    assert out.startswith("training_cost: view, mart\n  Dollars of")
    assert re.search(
        r"^  lowest_cost_usd  +DOUBLE +USD +Cost of the run that takes fewest", out, re.M
    )
    assert re.search(r"^made from +sql/marts/training_cost.sql$", out, re.M)
    assert re.search(r"^reads +training_cost_for$", out, re.M)
    assert re.search(r"^rests on .*\bgpu_hour_price\b", out, re.M)


@pytest.mark.long
def test_the_example_that_is_shown_runs(warehouse: Command, quickstart: Quickstart) -> None:
    for name in ("training_run_for", "configuration_rank", "has_mend"):
        _, out, _ = warehouse("schema", name, "--db", quickstart.database)
        [example] = re.findall(r"^example +warehouse (.*)$", out, re.MULTILINE)
        code, shown, err = warehouse(*shlex.split(example))
        assert (code, err) == (0, "")
        assert len(shown.splitlines()) > 2


@pytest.mark.long
def test_a_macro_shows_its_arguments_and_defaults(
    warehouse: Command, quickstart: Quickstart
) -> None:
    _, out, _ = warehouse("schema", "training_run_for", "--db", quickstart.database)
    assert out.startswith("training_run_for(asked_tokens, assumed_goodput): table macro, function")
    assert re.search(r"^  asked_tokens +Tokens to train on", out, re.M)
    assert re.search(r"^  assumed_goodput  := null  Share of the time", out, re.M)
    assert re.search(r"^read by .*training_run_group_for", out, re.M)
    _, out, _ = warehouse("schema", "mfu", "--db", quickstart.database)
    assert "\n  peak_flops_per_second" in out
    assert re.search(r"^read by .*\bconfiguration\b", out, re.M)


def test_a_column_shows_its_meaning_and_where_it_occurs(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, _ = warehouse("schema", "num_gpus", "--db", quickstart.database)
    assert code == 0
    assert out.startswith("num_gpus: column, Problem\n  meaning  GPUs of the run\n")
    assert re.search(r"^  mart .*configuration_rank", out, re.M)
    assert re.search(r"^  intermediate .*estimated_run", out, re.M)


def test_a_name_of_both_a_table_and_a_column_shows_both(
    warehouse: Command, quickstart: Quickstart
) -> None:
    _, out, _ = warehouse("schema", "erratum", "--db", quickstart.database)
    assert out.startswith("erratum: table, reference\n")
    assert "\nerratum: column" in out


def test_stored_rows_are_those_of_the_database(warehouse: Command, quickstart: Quickstart) -> None:
    _, out, _ = warehouse("schema", "roofline", "--json", "--db", quickstart.database)
    rows = json.loads(out)["thing"]["rows"]
    _, out, _ = warehouse(
        *("sql", "select count(*) as n from roofline", "--format", "json"),
        *("--db", quickstart.database),
    )
    assert json.loads(out) == [{"n": rows}]


def test_json_of_everything(warehouse: Command, quickstart: Quickstart) -> None:
    _, out, _ = warehouse("schema", "--json", "--db", quickstart.database)
    found = json.loads(out)
    assert found["database"] == str(quickstart.database)
    by_name = {thing["name"]: thing for thing in found["things"]}
    assert by_name["configuration"] == {
        "name": "configuration",
        "kind": "view",
        "role": "mart",
        "layer": "marts",
        "what": by_name["configuration"]["what"],
        "grain": "one row per configuration",
        "key": by_name["configuration"]["key"],
        "rows": None,
    }
    assert by_name["training_cost_for"]["kind"] == "table macro"


def test_json_of_one_name(warehouse: Command, quickstart: Quickstart) -> None:
    _, out, _ = warehouse("schema", "model", "--json", "--db", quickstart.database)
    found = json.loads(out)
    thing, column = found["thing"], found["column"]
    assert thing["made_from"] == "db/reference/model.csv"
    assert thing["columns"][0] == {
        "name": "model",
        "type": "VARCHAR",
        "unit": "",
        "meaning": "Name of the model",
        "source": "",
    }
    assert "name_spelling" in thing["read_by"]
    assert column["meaning"] == "Name of the model"
    place = {"name": "problem", "role": "record", "layer": "records", "type": "VARCHAR"}
    assert place in column["uses"]


def test_a_near_miss_is_named_and_exits_3(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse("schema", "configurations", "--db", quickstart.database)
    assert (code, out) == (3, "")
    assert err.startswith(
        "error: `configurations` is no table, view, macro or column\nhint: did you"
    )
    assert "configuration" in err


def test_without_a_database_the_packaged_schema_is_shown(
    warehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = warehouse("schema", "configuration_rank")
    assert code == 0
    assert "there is no such database" in err
    assert re.search(r"^  step_seconds +DOUBLE +seconds", out, re.M)
    assert json.loads(warehouse("schema", "site", "--json")[1])["database"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_named_must_be_there(warehouse: Command, tmp_path: Path) -> None:
    code, out, err = warehouse("schema", "--db", tmp_path / "none.duckdb")
    assert (code, out) == (5, "")
    assert "there is no such database" in err


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.long
def test_on_a_terminal_nothing_is_wider_than_it(
    warehouse: Command, quickstart: Quickstart, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("warehouse.cli.schema.terminal_width", lambda: width)
    for arguments in ([], ["configuration"], ["model"], ["training_energy_for"]):
        _, out, _ = warehouse("schema", *arguments, "--db", quickstart.database)
        wide = [line for line in out.splitlines() if len(line) > width]
        if width == 100:
            assert wide == []
