"""Measured runs in the database: stored as a whole with their estimates, and removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from warehouse.calibrate.published import published_tables
from warehouse.database.connection import writing
from warehouse.database.copies import free_bytes
from warehouse.database.facts import MEASUREMENT
from warehouse.database.paths import refuse_missing
from warehouse.database.recording import record
from warehouse.database.sink import arrow_table, transaction
from warehouse.database.sql_text import registered
from warehouse.errors import InputError
from warehouse.sweep.record import (
    MEASURE,
    DropReport,
    delete_study,
    evaluated_study,
    store_evaluated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.measure.read import Measured
    from warehouse.studies.definitions import Definitions


def refuse_name(connection: DuckDBPyConnection, name: str, *, replaces: bool) -> None:
    """Raise `InputError` if runs cannot be called `name`, or some of that name are stored."""
    if name != name.strip() or not name.isprintable() or not name:
        raise InputError(f"`--name` {name!r} cannot name measurements", "choose another name")
    if name in published_tables():
        raise InputError(f"`--name` {name}: is a table of published steps", "choose another name")
    stored = _count(connection, name)
    if stored and not replaces:
        raise InputError(
            f"`--name` {name}: runs of that name are stored already ({stored:,})",
            "choose another --name, or --replace them",
        )


def store_measurements(
    connection: DuckDBPyConnection,
    name: str,
    measured: Measured,
    defined: Definitions,
    *,
    replaces: bool,
) -> int:
    """Store estimates and measurements in one transaction; return how many cells were new."""
    refuse_name(connection, name, replaces=replaces)
    estimator = measured.estimator
    relation, mends = estimator.relations[0], frozenset(estimator.mends)
    created = datetime.now(UTC).replace(tzinfo=None)
    common = {"reference": name, "measurement_file": measured.file, "created_at": created}
    rows = [{**common, **run} for run in measured.records]
    with transaction(connection):
        study = evaluated_study(
            *(estimator, relation, mends, measured.file), name=MEASURE + name, defined=defined
        )
        new = store_evaluated(connection, relation, measured.cells, study)
        replace_measurements(connection, name, rows)
    return new


def replace_measurements(
    connection: DuckDBPyConnection, name: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Store rows of table `measurement` in place of those of their name; in a transaction."""
    connection.execute("delete from measurement where reference = ?", [name])
    with registered(connection, "incoming_records", arrow_table(rows)):
        connection.execute("insert into measurement by name select * from incoming_records")
    record(connection, MEASUREMENT, name)


def drop_measurements(database: Path, name: str) -> tuple[int, DropReport]:
    """Remove the runs called `name`, and the cells that were evaluated for them alone.

    The result has the number of removed runs.
    """
    refuse_missing(database)  # opening for write would make one
    with writing(database) as connection:
        with transaction(connection):
            runs = _count(connection, name)
            if not runs:
                query = "select distinct reference from measurement order by 1"
                known = [reference for (reference,) in connection.execute(query).fetchall()]
                raise InputError(
                    f"`--drop` {name}: no measurements of that name are in {database}",
                    f"known: {', '.join(known) or 'none is stored'}",
                )
            connection.execute("delete from measurement where reference = ?", [name])
            sizes = delete_study(connection, MEASURE + name)
            record(connection, MEASUREMENT, name, is_removed=True)
        return runs, DropReport(MEASURE + name, len(sizes), sum(sizes), free_bytes(connection))


def _count(connection: DuckDBPyConnection, name: str) -> int:
    query = "select count(*) from measurement where reference = ?"
    [(stored,)] = connection.execute(query, [name]).fetchall()
    return int(stored)
