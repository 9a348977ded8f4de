"""`warehouse config`, and the database that commands take without --db."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shared import Command


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(warehouse: Command, *arguments: object) -> dict[str, tuple[str, str]]:
    code, out, _ = warehouse("config", "--json", *arguments)
    assert code == 0
    return {row["setting"]: (row["value"], row["origin"]) for row in json.loads(out)}


def test_it_says_what_holds_and_where_it_comes_from(
    warehouse: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(warehouse)["database"] == ("db/warehouse.duckdb", "default")
    file = directory / "warehouse.toml"
    file.write_text('database = "ours.duckdb"\n')
    assert shown(warehouse)["database"] == (str(directory / "ours.duckdb"), str(file))
    monkeypatch.setenv("WAREHOUSE_DB", "another.duckdb")
    assert shown(warehouse)["database"] == ("another.duckdb", "WAREHOUSE_DB")
    assert shown(warehouse, "--db", "given.duckdb")["database"] == ("given.duckdb", "--db")
    assert f"{file}: read" in warehouse("config")[2].splitlines()


def test_a_command_takes_the_database_of_the_settings(warehouse: Command, directory: Path) -> None:
    (directory / "warehouse.toml").write_text('database = "ours.duckdb"\n')
    code, _, err = warehouse("sql", "select 1")
    assert code == 5
    assert err.startswith(f"error: {directory}/ours.duckdb: there is no such database")


def test_a_faulty_file_is_refused_with_a_hint(warehouse: Command, directory: Path) -> None:
    (directory / "warehouse.toml").write_text("size = 3\n")
    code, out, err = warehouse("sql", "select 1")
    assert (code, out) == (3, "")
    assert err == (
        f"error: {directory}/warehouse.toml: `size` is not a setting\n"
        "hint: known: database, cache, catalog, backups, plan_cache_gb\n"
    )
