"""`warehouse measure`: a team's own runs, stored and set beside the estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    FormatOption,
    count,
    fetched,
    put_for_people,
    say,
)
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.cli.common import Table

_SHOWN = (
    *("measured_row", "estimator", "variant", "profile", "model", "accelerator", "num_gpus"),
    *("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel"),
    *("virtual_pipeline", "expert_parallel", "microbatch_size", "activation_recompute"),
    *("measured_step_seconds", "step_seconds", "time_relative_error"),
    *("measured_memory_bytes", "memory_bytes", "memory_relative_error"),
)
_TOLD_ONCE = ("variant", "profile", "model", "accelerator", "num_gpus")


def measure(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", readable=False, help="A .csv or .parquet file of runs."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="What they are called.", show_default="the file's name"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace stored runs of that name.")
    ] = False,
    drop: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Take stored runs of this name out again; no FILE."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    form: FormatOption = Format.TABLE,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Compare runs that you measured.

    Each row of FILE is a run: the columns that `evaluate training_step` takes, `num_gpus` and
    `global_batch_size` among them, `step_seconds` as measured and, where known, `memory_bytes` of
    the fullest GPU, `run` (its name), `source` and `note`. All rows are checked first: if any is
    refused, nothing is stored. The layouts are evaluated and stored as by `evaluate --into-db`.
    Views measurement_comparison, for time and memory, and estimator_accuracy then have them beside
    the published ones; --drop takes them out again.
    """
    from warehouse.errors import InputError, UsageError

    if drop is not None:
        if file is not None or name is not None or replace:
            raise UsageError("`--drop` takes out what is stored: no FILE, --name or --replace")
        _drop(db, drop)
        return
    if file is None:
        raise UsageError("Missing argument 'FILE'.", "name a file of runs, or --drop stored ones")
    from warehouse.database.catalog import load_catalog
    from warehouse.database.connection import open_for_write
    from warehouse.measure.read import read_measurements
    from warehouse.measure.store import not_counted, refuse_name, store_measurements

    called = file.stem if name is None else name
    if not file.exists():
        raise InputError(f"{file}: there is no such file")
    with open_for_write(db) as connection:
        refuse_name(connection, called, replaces=replace)
        measured = read_measurements(
            file, load_catalog(connection), lambda text: say(f"warning: {text}")
        )
        new = store_measurements(connection, called, measured, replaces=replace)
        table = _compared(connection, called)
        left_out = not_counted(connection, called)
    runs = count(len(measured.records), "run")
    cells = count(len(measured.cells), "cell")
    say(f"{file}: {runs} stored in {db} as {called}, estimated in {cells}, {new:,} of them new")
    for one in left_out:
        say(f"not in estimator_accuracy: {', '.join(one.rows)}: {one.reason}")
    _put(table, Format.JSON if as_json else form)


def _drop(db: Path, name: str) -> None:
    from warehouse.measure.store import drop_measurements

    found = drop_measurements(db, name)
    report = found.study
    freed = max(report.bytes_before - report.bytes_after, 0)
    say(
        f"dropped {name}: {count(found.runs, 'run')}, with {count(report.cells, 'cell')} evaluated "
        f"for them alone, {freed / 1e6:,.1f} MB freed"
    )


def _compared(connection: DuckDBPyConnection, name: str) -> Table:
    from warehouse.database.sql_text import literal

    return fetched(
        connection,
        f"select {', '.join(_SHOWN)} from measurement_comparison "
        f"where reference = {literal(name)} "
        "order by estimator, variant, profile, measured_row",
    )


def _put(table: Table, form: Format) -> None:
    columns, rows = table
    place = {name: at for at, name in enumerate(columns)}
    drop = set()
    if form is Format.TABLE:
        for name in _TOLD_ONCE:
            values = {row[place[name]] for row in rows}
            if len(values) == 1:
                drop.add(name)
                say(f"{name} {values.pop()}")
        for name in ("measured_memory_bytes", "memory_relative_error"):
            if all(row[place[name]] is None for row in rows):
                drop.add(name)
        _say_errors(table)
    put_for_people(columns, rows, form, drop=drop)


def _say_errors(table: Table) -> None:
    """Say how far each estimator is off: mean and largest size of its errors, and their mean."""
    columns, rows = table
    place = {name: at for at, name in enumerate(columns)}
    keys = dict.fromkeys(
        tuple(row[place[n]] for n in ("estimator", "variant", "profile")) for row in rows
    )
    for key in keys:
        own = [
            row
            for row in rows
            if tuple(row[place[n]] for n in ("estimator", "variant", "profile")) == key
        ]
        for error, what in (("time_relative_error", "time"), ("memory_relative_error", "memory")):
            values = [row[place[error]] for row in own if row[place[error]] is not None]
            if values:
                mean = sum(map(abs, values)) / len(values)
                say(
                    f"{key[0]}: error of {what} {100 * mean:.1f} % in the mean, "
                    f"{100 * max(map(abs, values)):.1f} % at most, bias "
                    f"{100 * sum(values) / len(values):+.1f} %, {count(len(values), 'run')}"
                )
