"""The measured tasks, each in its own process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """One figure: rows, seconds, peak memory of the process, size of the file."""

    rows: int
    seconds: float
    peak_bytes: int
    file_bytes: int = 0

    @property
    def rows_per_second(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds


def evaluate(study_file: Path, _database: Path) -> Measured:
    """Evaluate every row into record batches, and drop them."""
    from warehouse.database.pieces import searched
    from warehouse.database.record_batches import record_batches

    estimator, catalog, groups = _groups(study_file)
    started = time.perf_counter()
    rows = 0
    for relation, cells in _by_relation(estimator, groups):
        pieces = searched(estimator, relation, cells, catalog)
        rows += sum(b.num_rows for b in record_batches(relation, pieces, _ignore))
    return Measured(rows, time.perf_counter() - started, _peak_bytes())


def sweep(study_file: Path, database: Path) -> Measured:
    """Run the study: plan, evaluate, store, commit, checkpoint."""
    from warehouse.studies.study import load_study
    from warehouse.sweep.runner import run_study

    study = load_study(study_file)
    started = time.perf_counter()
    report = run_study(database, study)
    seconds = time.perf_counter() - started
    return Measured(report.rows, seconds, _peak_bytes(), database.stat().st_size)


def ingest(study_file: Path, database: Path) -> Measured:
    """Store the same batches, evaluated beforehand, in the same transactions."""
    import pyarrow as pa

    from warehouse.database.connection import open_for_write
    from warehouse.database.pieces import searched
    from warehouse.database.record_batches import record_batches, schema_of

    estimator, catalog, groups = _groups(study_file)
    batches = [
        (
            relation,
            list(record_batches(relation, searched(estimator, relation, cells, catalog), _ignore)),
        )
        for relation, cells in _by_relation(estimator, groups)
    ]
    started = time.perf_counter()
    with open_for_write(database) as connection:
        for relation, group in batches:
            reader = pa.RecordBatchReader.from_batches(schema_of(relation), group)
            connection.begin()
            connection.register("incoming_rows", reader)
            connection.execute(f"insert into {relation.table} select * from incoming_rows")
            connection.unregister("incoming_rows")
            connection.commit()
    seconds = time.perf_counter() - started
    rows = sum(batch.num_rows for _, group in batches for batch in group)
    return Measured(rows, seconds, _peak_bytes(), database.stat().st_size)


def _groups(study_file: Path) -> tuple[Any, Any, list[Any]]:
    from warehouse.database.catalog import packaged_catalog
    from warehouse.database.sink import commit_groups
    from warehouse.studies.study import load_study
    from warehouse.sweep.runner import COMMIT_ROWS, plan

    asked = plan(load_study(study_file), packaged_catalog())
    return asked.estimator, asked.catalog, list(commit_groups(asked.cells, COMMIT_ROWS))


def _by_relation(estimator: Any, groups: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the cells of each group, those of one relation together, as the runner stores them."""
    for group in groups:
        for relation in estimator.relations:
            cells = [cell for cell, _ in group if cell.relation == relation.name]
            if cells:
                yield relation, cells


def _ignore(_rows: int) -> None:
    pass


def _peak_bytes() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024
