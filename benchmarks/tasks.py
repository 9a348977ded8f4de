"""The measured tasks: evaluate, store what is evaluated, or both. Each runs in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

from warehouse.studies.study import Study


class Measured(NamedTuple):
    """One figure: rows, seconds, peak memory, processor seconds, size of the file."""

    rows: int
    seconds: float
    peak_bytes: int
    cpu_seconds: float
    file_bytes: int = 0

    @property
    def rows_per_second(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds


Task = Callable[[Study, Path], Measured]


def alone(task: Task, study: Study, database: Path, *, keep: bool = False) -> Measured:
    """Run `task` in a fresh process, on a fresh database unless it is to be kept."""
    from warehouse.database.connection import open_for_write

    if not keep:
        database.unlink(missing_ok=True)
    open_for_write(database).close()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, study, database).result()


def evaluate(study: Study, _database: Path) -> Measured:
    """Evaluate every row into record batches, and drop them."""
    from warehouse.database.record_batches import record_batches, searched

    estimator, catalog, groups = _groups(study)
    used, started = _cpu_seconds(), time.perf_counter()
    rows = 0
    for relation, cells in _by_relation(estimator, groups):
        pieces = searched(estimator, relation, cells, catalog)
        rows += sum(b.num_rows for b in record_batches(relation, pieces, _ignore))
    return Measured(rows, time.perf_counter() - started, peak_bytes(), _cpu_seconds() - used)


def sweep(study: Study, database: Path) -> Measured:
    """Run the study: plan, evaluate, store, commit, checkpoint."""
    from warehouse.sweep.runner import run_study

    used, started = _cpu_seconds(), time.perf_counter()
    report = run_study(database, study)
    seconds = time.perf_counter() - started
    return _stored(report.rows, seconds, used, database)


def ingest(study: Study, database: Path) -> Measured:
    """Store the same batches, evaluated beforehand, in the same transactions."""
    import pyarrow as pa

    from warehouse.database.connection import open_for_write
    from warehouse.database.record_batches import record_batches, schema_of, searched

    estimator, catalog, groups = _groups(study)
    batches = [
        (
            relation,
            list(record_batches(relation, searched(estimator, relation, cells, catalog), _ignore)),
        )
        for relation, cells in _by_relation(estimator, groups)
    ]
    used, started = _cpu_seconds(), time.perf_counter()
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
    return _stored(rows, seconds, used, database)


def _groups(study: Study) -> tuple[Any, Any, list[Any]]:
    from warehouse.database.catalog import packaged_catalog
    from warehouse.database.sink import commit_groups
    from warehouse.sweep.cells import counted_cells
    from warehouse.sweep.runner import COMMIT_ROWS

    cells = counted_cells(study, packaged_catalog())
    return cells.estimator, cells.catalog, list(commit_groups(cells.counted, COMMIT_ROWS))


def _by_relation(estimator: Any, groups: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the cells of each group, those of one relation together, as the runner stores them."""
    for group in groups:
        for relation in estimator.relations:
            cells = [cell for cell, _ in group if cell.relation == relation.name]
            if cells:
                yield relation, cells


def _stored(rows: int, seconds: float, used: float, database: Path) -> Measured:
    size = database.stat().st_size
    return Measured(rows, seconds, peak_bytes(), _cpu_seconds() - used, size)


def _ignore(_rows: int) -> None:
    pass


def peak_bytes() -> int:
    """Return the most memory of this program; that of getrusage counts the process before it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _cpu_seconds() -> float:
    """Return the processor seconds of this process and of the children that have ended."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
