"""Stores facts in a database: profiles and measured runs as they are, all else evaluated again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Problem, RefusedError
from estimators.inputs import records
from warehouse.calibrate.store import drop_profile, replace_profile
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_write
from warehouse.database.facts import CALIBRATION, COMMITTED, MEASUREMENT, REMOVAL, STUDY
from warehouse.database.sink import transaction
from warehouse.database.tables import MEASUREMENTS
from warehouse.errors import InputError, WarehouseError
from warehouse.evaluate.file import evaluate_frame, find_relation
from warehouse.evaluate.inputs import resolve_rows
from warehouse.measure.published import store_published
from warehouse.measure.store import replace_measurements
from warehouse.studies.study import study_of_definition
from warehouse.sweep.record import MEASURE, store_evaluated
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation
    from warehouse.database.facts import Entry, Facts
    from warehouse.studies.study import Study

    Sweep = Callable[[Path, Study], object]
    """Evaluates a study and stores its rows."""


@dataclass
class Replayed:
    """The outcome of a replay."""

    names: dict[str, list[str]] = field(default_factory=dict)
    """Kind of a fact -> the names that were stored."""

    other_versions: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Study of another version of its estimator -> estimator, version then, version now."""

    lost: dict[str, str] = field(default_factory=dict)
    """Fact that could not be stored -> the reason."""


def replay(
    database: Path, facts: Facts, entries: Iterable[Entry], sweep: Sweep = run_study
) -> Replayed:
    """Store `entries` of a folder in a database, in their order; measured runs come last.

    A study may name a profile that was replaced or dropped later. Therefore profiles of
    `facts` that are not among the entries are stored and removed at their places too.
    """
    wanted = {entry.number for entry in entries}
    done = Replayed()
    new_problems: dict[int, int] = {}
    for entry in sorted(facts.entries, key=lambda entry: entry.subject[0] == MEASUREMENT):
        kind, name = entry.subject
        is_former_profile = kind == CALIBRATION and entry.outcome == COMMITTED
        if entry.number not in wanted and not is_former_profile:
            continue
        try:
            if kind == CALIBRATION:
                _store_profile(database, entry, done)
            elif kind == STUDY:
                new_problems |= _store_study(database, facts, entry, sweep, done)
            else:
                _store_runs(database, entry, new_problems, done)
        except (WarehouseError, RefusedError, KeyError) as error:
            missing = f"its definition has no {error}"
            done.lost[f"{kind} {name}"] = missing if isinstance(error, KeyError) else str(error)
        else:
            if entry.number in wanted:
                done.names.setdefault(kind, []).append(name)
    return done


def _store_profile(database: Path, entry: Entry, done: Replayed) -> None:
    with open_for_write(database) as connection:
        if entry.kind == REMOVAL:
            with suppress(InputError):  # its line is damaged
                drop_profile(connection, entry.name)
        else:
            rows = _rows(entry, entry.content["rows"], "profile", done)
            fitted_to = _rows(entry, entry.content.get("fitted_to", ()), "profile", done)
            replace_profile(connection, entry.name, rows, fitted_to)


def _store_runs(
    database: Path, entry: Entry, new_problems: Mapping[int, int], done: Replayed
) -> None:
    """Store measured runs; their estimates may be of other problems in another version."""
    rows = _rows(entry, entry.content["rows"], "reference", done)
    for row in rows:
        for name in row.keys() & {"problem_id", "profiled_problem_id"}:
            row[name] = new_problems.get(row[name], row[name])
    with open_for_write(database) as connection, transaction(connection):
        replace_measurements(connection, entry.name, rows)


def _rows(
    entry: Entry, rows: Sequence[Mapping[str, Any]], column: str, done: Replayed
) -> list[dict[str, Any]]:
    """Return the rows of a table from the records of a fact, without columns that are gone."""
    gone = sorted({key for row in rows for key in row} - COLUMNS.keys())
    if gone:
        what = f"{', '.join(gone)} of {entry.kind} {entry.name}"
        done.lost[what] = "this version has no such column"
    records = [{key: value for key, value in row.items() if key in COLUMNS} for row in rows]
    for record in records:
        for key, value in record.items():
            if COLUMNS[key].kind == "time":
                record[key] = datetime.fromisoformat(value)
    return [{column: entry.name, **record} for record in records]


def _store_study(
    database: Path, facts: Facts, entry: Entry, sweep: Sweep, done: Replayed
) -> dict[int, int]:
    """Evaluate a study again; return former problem -> problem where they differ."""
    content = entry.content
    estimator = registry.get(content["estimator"])
    study = study_of_definition(
        {"name": entry.name, **content["definition"]}, content["study_file"] or entry.name
    )
    changed: dict[int, int] = {}
    if study.spaces:
        sweep(database, study)
    elif entry.inputs is None and study.file == MEASUREMENTS:
        with open_for_write(database) as connection:
            store_published(connection, estimator, packaged_catalog())
    else:
        frame = pl.read_parquet(facts.inputs_of(entry), glob=False)
        relation = find_relation(estimator, content["relation"])
        with open_for_write(database) as connection:
            changed = _evaluate(connection, study, relation, frame)
    with open_for_write(database) as connection, transaction(connection):
        connection.execute(  # the file and the time of its first evaluation
            "update study set created_at = ?, study_file = ? where study = ?",
            [content["created_at"], content["study_file"], entry.name],
        )
    if (then := content["estimator_version"]) not in (None, estimator.version):
        done.other_versions[entry.name] = (estimator.name, then, estimator.version)
    return changed


def _evaluate(
    connection: DuckDBPyConnection, study: Study, relation: Relation, frame: pl.DataFrame
) -> dict[int, int]:
    """Evaluate and store configurations; return former problem -> problem of measured runs."""
    estimator = registry.get(study.estimator)
    [mends] = study.mends
    catalog = study.defined.added_to(packaged_catalog())
    _, report = evaluate_frame(
        *(estimator, frame, mends, catalog),
        relation=relation,
        with_cells=True,
        with_interval=False,
        are_runs=True,  # an earlier version evaluated them: its programs may have had fewer rules
        called=study.name,
    )
    store_evaluated(connection, relation, report.cells, study)
    if not study.name.startswith(MEASURE):
        return {}
    first = frame.unique("problem_id", keep="first", maintain_order=True)
    resolved = resolve_rows(estimator, relation, first, catalog, mends, are_runs=True).good
    problems = records({name: resolved[name] for name in estimator.problem_columns})
    return {
        former: Problem(values).id
        for former, values in zip(first["problem_id"], problems, strict=True)
    }
