"""`warehouse validate`: the checks, and the errors of the estimates."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import fetched, put_document, put_page, records, say
from warehouse.cli.comparison import comparison, comparison_columns, summary
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.cli.waiting import working
from warehouse.show.formats import count, write
from warehouse.show.page import Page

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

COMPARISON = "published_comparison"
"""The view that most tables below read."""

ABOUT_STORED = ("cells_in_force", "leading_", "stored_")
"""Begin the names of checks on rows that follow from others."""

MAX_SHOWN = 20
"""Rows of a failed check that are listed."""

TABLES = (
    *("published_accuracy", "interval_coverage", COMPARISON, "training_time_comparison"),
    *("training_time_at_published_rate", "megatron_layout_rank"),
)


def validate(
    *,
    output: Output,
    measurements: Annotated[
        bool, typer.Option("--measurements", help="List every measurement, too.")
    ] = False,
    details: Annotated[
        bool,
        typer.Option(
            "--details", help="List every check, and the errors by group, row, degree and run."
        ),
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="First read every value of every table, and stop at damage."),
    ] = False,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Run the checks and compare estimates with measurements.

    A check is a query that must return no row; the exit code is 4 if one returns any. A summary
    of the errors follows, a line for each estimator and each set of your own runs.

    --details shows the errors by group of measurements, with those of the best constant; the
    share of measurements within the intervals of the estimates; the errors by reference table,
    estimator and variant, with those of simple baselines; each published step; the errors by
    degree; the times of whole runs; and the ranks of published layouts. CSV has the first table.
    --deep names the tables that a damaged file has lost; `warehouse rebuild` makes them again.
    """
    from warehouse.database.connection import open_for_read
    from warehouse.database.sql_text import keep_view
    from warehouse.database.stamp import reference_version
    from warehouse.errors import CheckError

    with open_for_read(db) as connection:
        if output.chosen:
            columns = comparison_columns(connection)
            output.expect(columns, csv=columns)
        refuse_damaged_facts(db)
        if deep:
            check_deeply(connection, db)
        is_brief = output.is_for_people and not (details or measurements or output.chosen)
        failed = run_checks(connection, is_brief=is_brief)
        with working("comparing with measurements"):
            keep_view(connection, COMPARISON)
        with output.opened():
            if output.is_json:
                tables = {
                    name: records(fetched(connection, f"from {name} order by all"))
                    for name in TABLES
                }
                put_document(
                    {
                        "reference_data": reference_version(),
                        "failed_checks": failed,
                        **tables,
                    }
                )
            elif is_brief:
                errors = summary(connection)
                put_page(Page(None, errors, [errors]))
                say("--details lists every check, and the errors by group and by row")
            else:
                sections = comparison(connection, every_row=measurements)
                table = replace(sections[0], heading="the first table")
                put_page(Page(None, table, sections))
    if failed:
        remedy = ""
        if any(name.startswith(ABOUT_STORED) for name in failed):
            remedy = f"; `warehouse init --anew --db {db}` makes places, ranks and facts again"
        raise CheckError(
            f"{count(len(failed), 'check')} found rows: {', '.join(failed)}",
            f"the rows are listed above; each check is a query in sql/checks{remedy}",
        )


def refuse_damaged_facts(db: Path) -> None:
    """Raise `CheckError` if the folder of facts of a database is damaged."""
    from warehouse.database.facts import facts_of, rebuild_command
    from warehouse.errors import CheckError

    facts = facts_of(db)
    if facts is not None and (damage := facts.with_inputs().damage):
        raise CheckError(
            f"{facts.folder}: {damage}",
            f"`{rebuild_command(db)}` makes it again from the database, and keeps this one",
        )


def check_deeply(connection: DuckDBPyConnection, db: Path) -> None:
    """Read every value of a database; name the tables that cannot be read, and raise."""
    from warehouse.database.facts import rebuild_command
    from warehouse.database.failures import deep_check
    from warehouse.errors import CheckError

    with working("reading every value"):
        damage = deep_check(connection)
    if not damage:
        say("every value of every table can be read")
        return
    for each in damage:
        say(f"{each.table}: {', '.join(each.columns)}: {each.reason}")
    raise CheckError(
        f"{db}: {count(len(damage), 'table')} cannot be read whole",
        f"`{rebuild_command(db)}` makes the database again from its facts",
    )


def run_checks(connection: DuckDBPyConnection, *, is_brief: bool = False) -> list[str]:
    """Run every check, print its result to stderr, and return the names of those that failed.

    `is_brief` prints the failed ones, and one line for the others.
    """
    from warehouse.database.problem_facts import find_problems
    from warehouse.database.views import checks

    failed = []
    find_problems(connection)
    every = checks()
    for check in every:
        with working(f"check {check.name}"):
            columns, rows = fetched(connection, check.sql)
        if rows or not is_brief:
            say(f"{check.name}: {count(len(rows), 'row') if rows else 'ok'} ({check.what})")
        if rows:
            failed.append(check.name)
            write(sys.stderr, columns, [rows[:MAX_SHOWN]])
            if len(rows) > MAX_SHOWN:
                say(f"... and {count(len(rows) - MAX_SHOWN, 'more row')}")
    if is_brief:
        say(f"{count(len(every) - len(failed), 'check')} ok, {len(failed)} failed")
    return failed
