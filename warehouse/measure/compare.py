"""Measured runs stored with their estimates, and both next to each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import writing
from warehouse.database.sql_text import literal
from warehouse.evaluate.csv_parquet import check_source
from warehouse.evaluate.profiles import read_profiles, with_profiles
from warehouse.measure.read import FRAME, find_estimator, read_measurements
from warehouse.measure.store import refuse_name, store_measurements
from warehouse.studies.definitions import every_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from duckdb import DuckDBPyConnection

    from warehouse.show.values import Row

KEY = ("estimator", "variant", "profile")
SHOWN = (
    *("measured_row", *KEY, "model", "accelerator", "num_gpus"),
    *("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel"),
    *("virtual_pipeline", "expert_parallel", "expert_tensor_parallel"),
    *("microbatch_size", "activation_recompute"),
    *("measured_step_seconds", "step_seconds", "time_relative_error"),
    *("measured_memory_bytes", "measured_memory_kind", "memory_bytes", "compared_memory_bytes"),
    "memory_relative_error",
    *("fits_memory", "hbm_bytes"),
)
"""Columns of view `measurement_comparison` that a comparison has, and the memory of a GPU."""

MILLISECOND_RATIOS = (500, 2000)
"""Measured steps that are as many times their estimates may be milliseconds."""


@dataclass(frozen=True)
class RunComparison:
    """Measured runs with their estimates: a row for each run, estimator, variant and profile.

    Rows are in base units. `num_new_cells` of the cells of their estimates were not stored before.
    `left_out` has for each reason the runs that view `published_accuracy` leaves out. `derived`
    says what the seconds of runs follow from that give another speed.
    """

    columns: tuple[str, ...]
    rows: list[Row]
    num_runs: int
    num_cells: int
    num_new_cells: int
    left_out: Mapping[str, Sequence[str]]
    derived: Sequence[str]


def measure_runs(
    database: Path,
    source: Path | pl.DataFrame,
    name: str,
    *,
    estimator: str | None = None,
    replaces: bool = False,
    profile: str | None = None,
    catalog: Path | None = None,
    warn: Callable[[str], None] = lambda _: None,
    called: str = FRAME,
) -> RunComparison:
    """Store measured runs with their estimates, and compare both.

    Errors call a frame `called`. If anything is refused, the error names every fault and nothing is
    written. Runs that name no profile are estimated with the constants of `profile` as well. `warn`
    gets the columns that are not read, and a remark where steps seem to be milliseconds.
    """
    model = find_estimator(estimator)
    if isinstance(source, Path):
        check_source(source)  # before the database is made
    defined = every_definition(database, catalog)
    with writing(database) as connection:
        refuse_name(connection, name, replaces=replaces)
        known = defined.added_to(packaged_catalog())
        stored = partial(read_profiles, connection)
        plain = with_profiles(known, stored, model)
        profiled = None if profile is None else with_profiles(known, stored, model, profile)
        measured = read_measurements(source, model, plain, warn, profiled=profiled, called=called)
        new = store_measurements(connection, name, measured, defined, replaces=replaces)
        rows = _compared(connection, name)
        left_out = _left_out(connection, name)
    _warn_of_milliseconds(measured.file, rows, warn)
    counts = len(measured.records), len(measured.cells), new
    return RunComparison(SHOWN, rows, *counts, left_out, measured.derived)


def _warn_of_milliseconds(file: str, rows: Sequence[Row], warn: Callable[[str], None]) -> None:
    steps = [
        (row[SHOWN.index("measured_step_seconds")], row[SHOWN.index("step_seconds")])
        for row in rows
    ]
    least, most = MILLISECOND_RATIOS
    if steps and all(step and least <= measured / step <= most for measured, step in steps):
        measured, step = steps[0]
        warn(
            f"{file}: `step_seconds` is in seconds, and every row is about 1000 times its estimate "
            f"({measured:,.4g} and {step:,.2g} s in the first). If these are milliseconds, divide "
            "them by 1000 and store them again with --replace"
        )


def _compared(connection: DuckDBPyConnection, name: str) -> list[Row]:
    query = (
        f"select {', '.join(SHOWN)} from measurement_comparison "
        "left join (select problem_id, hbm_bytes from problem) using (problem_id) "
        f"where reference = {literal(name)} order by {', '.join(KEY)}, measured_row"
    )
    return list(connection.execute(query).fetchall())


def _left_out(connection: DuckDBPyConnection, name: str) -> dict[str, list[str]]:
    query = (
        "select measured_row, reason from uncompared_measurement where reference = ? "
        "order by measured_row"
    )
    left_out: dict[str, list[str]] = {}
    for row, reason in connection.execute(query, [name]).fetchall():
        left_out.setdefault(reason, []).append(row)
    return left_out
