"""Published steps as rows that `evaluate` takes, with the measured time.

The rows are those of view `published_step`. A microbatch or an interleaving that was not published
takes the estimator's default: one sequence, no interleaving.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl

from estimators.contract import Refusal
from estimators.names import folded
from warehouse.database import resources
from warehouse.database.cache import cached
from warehouse.database.catalog import packaged_catalog
from warehouse.database.lineage import names_in
from warehouse.database.reference import read_table, reference_files, store_table
from warehouse.errors import InputError
from warehouse.evaluate.csv_parquet import SUFFIXES, check_source, read_configs
from warehouse.evaluate.frames import stripped, wrong_types
from warehouse.evaluate.inputs import evaluate_intervals, input_names
from warehouse.evaluate.texts import control_characters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from estimators.contract import Array
    from estimators.estimator import Estimator
    from warehouse.evaluate.inputs import Resolved

ROW, MEASURED, IS_OWN = "published_row", "published_step_seconds", "is_own_framework"
"""Columns of a reference in addition to the inputs: the row's name, its time, and whether the
constants are those of the measured program."""

RUN = "run"
"""Other name of column `ROW` in a file: that of `measure`."""

VIEW = "intermediate/published_step.sql"


def load_reference(name: str, estimator: Estimator, path: Path) -> tuple[str, pl.DataFrame]:
    """Return the published table called `name`, or else the file at `path`, with its name.

    The rows have the inputs, `ROW`, `MEASURED` and `IS_OWN`. Raise `InputError` if there is
    neither, or the file has no time of a step in every row.
    """
    for table in published_tables():
        if folded(table) == folded(name):
            return table, published_reference(table)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"`REFERENCE` {name} is no table of published steps",
            f"known: {', '.join(published_tables())}; or name a file that ends in "
            f"{' or '.join(SUFFIXES)}",
        )
    return str(path), _read_file(path, estimator)


def published_tables() -> list[str]:
    """Return the names of the tables of published steps."""
    return published_steps()["reference"].unique(maintain_order=True).to_list()


def published_reference(name: str) -> pl.DataFrame:
    """Return the rows of one published table that have a time."""
    return published_steps().filter(pl.col("reference") == name, pl.col(MEASURED).is_not_null())


@lru_cache(maxsize=1)
def published_steps() -> pl.DataFrame:
    """Return view `published_step` of the packaged reference tables, without a database.

    Column `model` is that of table `printed_step`, where the shape is that of a name in table
    `model`: recipes differ by it. Elsewhere the steps have a shape, and it is left out.
    """
    view = (resources.sql_directory() / VIEW).read_text(encoding="utf-8")
    read = names_in(view).relations
    with duckdb.connect(":memory:") as connection:
        for path in reference_files():
            if path.stem in read:
                store_table(connection, read_table(path))
        steps = connection.execute(f"with step as ({view}\n) {_WITH_MODEL}")
        names = [column[0] for column in steps.description or ()]
        rows = steps.fetchall()
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def published_intervals(resolved: Resolved) -> dict[str, Array]:
    """Return both ends of the interval of the good rows of `published_steps()`, by column name.

    Each constant takes two evaluations of every step. With the packaged catalog the result is
    cached once per installation: the quickstart and the first plan need the same.
    """
    if resolved.catalog != packaged_catalog():
        return evaluate_intervals(resolved)

    def ends() -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in evaluate_intervals(resolved).items()}

    rows = len(resolved.is_good)
    facts = np.__version__, resolved.estimator.name, sorted(resolved.mends), rows
    intervals = cached("published-intervals", facts, ends)
    return {name: np.array(values) for name, values in intervals.items()}


_WITH_MODEL = """\
select step.* replace (printed_step.model as model)
from step
inner join printed_step using (reference, published_row)"""


def _read_file(path: Path, estimator: Estimator) -> pl.DataFrame:
    check_source(path)
    inputs = input_names(estimator, estimator.relations[0])
    frame = read_configs(path, (*inputs, "step_seconds"), keep_text=False)
    if "step_seconds" not in frame.columns:
        hint = "give the measured time of a step in each row, in seconds"
        raise InputError(f"{path}: has no column `step_seconds`", hint)
    given = next((name for name in (ROW, RUN) if name in frame.columns), None)
    refusals = wrong_types(frame, (*inputs, "step_seconds"), (ROW, RUN))
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    numbered = pl.Series(ROW, [f"row {number}" for number in range(1, frame.height + 1)])
    names = numbered if given is None else frame[given].cast(pl.String).fill_null(numbered)
    frame = frame.with_columns(names.alias(ROW))
    times = stripped(frame["step_seconds"]).cast(pl.Float64, strict=False)
    seconds = times.fill_null(np.nan).to_numpy()
    refusals = [
        Refusal("step_seconds", frame["step_seconds"][row], "must be a positive number", row=row)
        for row in np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0))).tolist()
    ]
    refusals += control_characters(given or ROW, names.to_list())
    if refusals:
        raise InputError.from_refusals(refusals, str(path), names_of_rows(frame))
    is_own = pl.lit(value=True).alias(IS_OWN)
    return frame.drop("step_seconds").with_columns(pl.Series(MEASURED, seconds), is_own)


def names_of_rows(frame: pl.DataFrame) -> list[str]:
    """Return the names of a reference's rows in errors: "run a", "row 2"."""
    return [name if name.startswith("row ") else f"run {name}" for name in frame[ROW].to_list()]


def filtered(frame: pl.DataFrame, conditions: Sequence[str]) -> pl.Series:
    """Return which rows meet every condition, such as ``group=PTD-P`` or ``row!=1.7B,3.6B``.

    Raise `InputError` if one is not of that form, or names no column.
    """
    is_met = pl.Series([True] * frame.height, dtype=pl.Boolean)
    for condition in conditions:
        key, equals, text = condition.partition("=")
        name, wants = key.removesuffix("!").strip(), not key.endswith("!")
        name = {"row": ROW, "group": "published_group"}.get(name, name)
        if not equals or not name:
            hint = "write --rows group=PTD-P, several values with commas, != for all others"
            raise InputError(f"`--rows` {condition} is not of the form key=value", hint)
        if name not in frame.columns:
            known = ", ".join(c for c in frame.columns if c not in (MEASURED, IS_OWN))
            raise InputError(f"`--rows` {condition}: there is no column `{name}`", f"has: {known}")
        values = {_plain(value) for value in text.split(",")}
        is_met &= pl.Series([(_plain(value) in values) == wants for value in frame[name]])
    return is_met


def _plain(value: Any) -> Any:
    """Return a value under which equal texts compare equal: 8 and 8.0, true and True."""
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        return text.lower()
