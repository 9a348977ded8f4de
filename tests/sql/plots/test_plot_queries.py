"""Every query of sql/plots gives the rows that were worked out by hand.

A case is a TOML file of this directory, named after the query: a CSV text for each view that the
query reads, the filters, and the expected rows in their order, in the columns that matter. Comments
have the arithmetic. Temporary tables take the place of the views, which have cases of their own.
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sql.test_sql_cases import alike, as_text
from tests.warehouse.plot.conftest import empty as empty
from warehouse.database.sql_text import literal, quoted
from warehouse.plot.registry import PLOTS, with_values

CASES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
MACROS = {"training_cost_for": "training_cost", "training_energy_for": "training_energy"}
"""Table macro -> the view with its columns."""


def read(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV text."""
    return list(csv.DictReader(text.strip().splitlines(), strict=True))


def value(kind: str, name: str, row: dict[str, str]) -> str:
    """Return the SQL of a field; that of a structure from its columns `name.field`."""
    fields = {
        key.partition(".")[2]: text for key, text in row.items() if key.startswith(f"{name}.")
    }
    if fields:
        known = {key: text for key, text in fields.items() if text}
        inner = ", ".join(f"{key}: {text!r}" for key, text in known.items())
        return f"cast({literal('{' + inner + '}')} as {kind})" if known else "null"
    return f"cast({literal(row[name])} as {kind})" if row[name] else "null"


def replace(connection: duckdb.DuckDBPyConnection, name: str, text: str) -> None:
    """Put rows into the place of a view, or of a table macro with its first two arguments."""
    asked = "select column_name, data_type from duckdb_columns() where table_name = ?"
    kinds = dict(connection.execute(asked, [MACROS.get(name, name)]).fetchall())
    rows = read(text)
    columns = list(dict.fromkeys(key.partition(".")[0] for key in rows[0]))
    listed = ", ".join(f"{quoted(column)} {kinds[column]}" for column in columns)
    table = f"{name}_rows" if name in MACROS else name
    connection.execute(f"create temp table {table} ({listed})")
    for row in rows:
        values = ", ".join(value(kinds[column], column, row) for column in columns)
        connection.execute(f"insert into {table} values ({values})")
    if name in MACROS:
        connection.execute(
            f"create temp macro {name}(asked_tokens, only_num_gpus := null) as table "
            f"select *, asked_tokens as dataset_tokens from {table} "
            "where only_num_gpus is null or num_gpus = only_num_gpus"
        )


def test_every_query_has_a_case() -> None:
    assert set(CASES) == set(PLOTS)


@pytest.mark.parametrize("name", CASES)
def test_a_query_gives_the_rows_worked_out_by_hand(
    name: str, empty: duckdb.DuckDBPyConnection
) -> None:
    case: dict[str, Any] = tomllib.loads(CASES[name].read_text("utf-8"))
    expected = read(case["expected"])
    with empty.cursor() as own:
        for view, text in case["views"].items():
            replace(own, view, text)
        relation = own.sql(with_values(PLOTS[name].sql, case["filters"]))
        rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    found = [{key: as_text(row[key]) for key in expected[0]} for row in rows]
    assert len(found) == len(expected), found
    for given, wanted in zip(found, expected, strict=True):
        assert all(alike(given[key], wanted[key]) for key in wanted), (given, wanted)
