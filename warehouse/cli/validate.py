"""`warehouse validate`: the checks, and how far the estimates are from what was measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, count, fetched, records, say
from warehouse.cli.comparison import show_comparison
from warehouse.show.formats import write

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SHOWN = 20
"""Rows at fault shown of a check."""

TABLES = (
    *("estimator_accuracy", "megatron_comparison"),
    *("accuracy_by_degree", "training_time_comparison", "training_time_at_published_rate"),
)


def validate(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, in base units.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Run the checks and compare estimates with measurements.

    A check is a query that must return no row; exit code 4 if one returns any. The comparison
    goes to stdout: the errors per reference table, estimator and variant beside baselines, each
    published step, the errors by degree, and the times of whole runs.
    """
    from warehouse.database.connection import open_for_read
    from warehouse.errors import CheckError

    with open_for_read(db) as connection:
        failed = run_checks(connection)
        if as_json:
            tables = {name: records(fetched(connection, f"from {name}")) for name in TABLES}
            sys.stdout.write(json.dumps({"failed_checks": failed, **tables}, indent=1) + "\n")
        else:
            show_comparison(connection, whole=True)
    if failed:
        raise CheckError(
            f"{count(len(failed), 'check')} found rows: {', '.join(failed)}",
            "the rows are listed above; each check is a query in sql/checks",
        )


def run_checks(connection: DuckDBPyConnection) -> list[str]:
    """Run every check, tell its result on stderr, and return the names of those that failed."""
    from warehouse.database.views import checks

    failed = []
    for check in checks():
        columns, rows = fetched(connection, check.sql)
        say(f"{check.name}: {count(len(rows), 'row') if rows else 'ok'} ({check.what})")
        if rows:
            failed.append(check.name)
            write(sys.stderr, columns, [rows[:MAX_SHOWN]])
            if len(rows) > MAX_SHOWN:
                say(f"... and {count(len(rows) - MAX_SHOWN, 'more row')}")
    return failed
