"""Processes that evaluate cells while this one stores them.

A worker gets tasks on its standard input and answers on its standard output, both as pickles, which
hold the memory of Arrow batches as it is. Rows, order and batches are the same as with one process.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, NamedTuple

import pyarrow as pa

from estimators.contract import Catalog, Cell
from estimators.registry import get
from warehouse.database.leading import LeadingRows
from warehouse.database.record_batches import (
    BATCH_ROWS,
    CHUNK_ROWS,
    keep_freed_memory,
    record_batches,
    regrouped,
    searched,
)
from warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.contract import Relation
    from estimators.estimator import Estimator
    from warehouse.database.record_batches import Evaluated
    from warehouse.sweep.cells import Sized

_TASK_ROWS = CHUNK_ROWS
"""Least number of rows of a task of small cells."""

_PART_ROWS = 2 * BATCH_ROWS
"""Most rows of a part of a large cell. Each part enumerates the cell's layouts again."""

_PIPE_BYTES = 1 << 20
"""Size of a pipe; Linux allows no larger one by default."""

Batches = Callable[["LeadingRows | None"], "Iterator[pa.RecordBatch]"]
"""Returns the rows of a group, given the collector of its leading rows."""

_PROGRAM = "from warehouse.sweep.workers import main; main()"


class Part(NamedTuple):
    """The chunks of a cell that begin in ``first <= row < last``."""

    cell: Cell
    first: int
    last: int


class Answer(NamedTuple):
    """The rows of a task, and their leading rows if the relation keeps these."""

    batches: list[pa.RecordBatch]
    leading: LeadingRows | None


# ---- the worker ----


def main() -> None:
    """Evaluate the tasks of the standard input until it ends."""
    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    name, relation_name, catalog = pickle.load(tasks)
    estimator = get(name)
    relation = next(known for known in estimator.relations if known.name == relation_name)
    with suppress(BrokenPipeError, EOFError):  # the sweep has ended
        while True:
            parts: Sequence[Part] = pickle.load(tasks)
            pickle.dump(answer(estimator, relation, catalog, parts), answers, protocol=5)
            answers.flush()
    os._exit(0)  # closing the pipe would fail once more


def answer(
    estimator: Estimator, relation: Relation, catalog: Catalog, parts: Sequence[Part]
) -> Answer | Exception:
    """Return the outcome of a task, or its error in a form that another process can read."""
    try:
        return _evaluated(estimator, relation, catalog, parts)
    except Exception as error:
        said = "".join(traceback.format_exception(error))
        try:
            copy: Exception = pickle.loads(pickle.dumps(error))
        except Exception:
            return RuntimeError(said)
        copy.add_note(said)
        return copy


def _evaluated(
    estimator: Estimator, relation: Relation, catalog: Catalog, parts: Sequence[Part]
) -> Answer:
    leading = LeadingRows(relation) if relation.keeps_leading else None
    pieces = _pieces(estimator, relation, catalog, parts)
    batches = list(record_batches(relation, pieces, lambda _rows: None, leading))
    return Answer(batches, leading)


def _pieces(
    estimator: Estimator, relation: Relation, catalog: Catalog, parts: Sequence[Part]
) -> Evaluated:
    for cell, first, last in parts:
        row = 0
        for piece in searched(estimator, relation, [cell], catalog):
            if row >= last:
                break
            if row >= first:
                yield piece
            row += piece[1]


# ---- the sweep ----


class _Worker:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                "OPENBLAS_NUM_THREADS": "1",  # its threads would only take memory
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
            start_new_session=True,  # ^C goes to this process, which ends its workers
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks: IO[bytes] = self.process.stdin
        self.answers: IO[bytes] = self.process.stdout

    def begin(self, setting: bytes) -> None:
        with suppress(OSError):  # a worker that has already ended is noticed later
            self.tasks.write(setting)

    def evaluate(self, parts: Sequence[Part]) -> Answer:
        """Have a task evaluated; an error in the process is raised here."""
        try:
            pickle.dump(parts, self.tasks)
            self.tasks.flush()
            outcome: Answer | Exception = pickle.load(self.answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _ended(self) -> WarehouseError:
        """Return the error of a worker that ended unexpectedly."""
        code = self.process.wait()
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return WarehouseError(
            f"worker process {self.process.pid} ended with {how}; its group of cells is not stored",
            "if memory is short, use fewer with --workers; the same command resumes",
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Workers:
    """Evaluates groups of cells of a relation in processes; ``with`` ends them.

    A thread for each process sends it tasks and reads its answers.
    """

    def __init__(
        self, estimator: Estimator, catalog: Catalog, relation: Relation, number: int
    ) -> None:
        self._waiting: deque[tuple[Part, ...]] = deque()
        self._sent: deque[Future[Answer]] = deque()
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        keep_freed_memory()
        self._threads = ThreadPoolExecutor(number)
        self._most_sent = number + 1  # a worker need not wait until an answer is stored
        try:
            for _ in range(number):
                self._workers.append(_Worker())
            # A kernel reads only this part of the catalog. It is pickled while the workers import.
            plain = Catalog(catalog.tables, catalog.aliases, catalog.measured)
            setting = pickle.dumps((estimator.name, relation.name, plain))
            for worker in self._workers:
                worker.begin(setting)
                self._idle.put(worker)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()  # its thread then finds the end of the answers
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            with suppress(OSError):
                worker.tasks.close()
            worker.answers.close()

    def evaluated(
        self, groups: Iterator[Sized], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[Sized, Batches]]:
        """Yield groups of cells, each with its rows as `record_batches` yields them.

        Workers evaluate the next group while the previous one is stored.
        """
        waiting: deque[tuple[Sized, Batches]] = deque()
        for group in groups:
            tasks = list(_tasks(group))
            self._waiting += tasks
            self._send()
            waiting.append((group, partial(self._batches, len(tasks), on_rows)))
            if len(waiting) > 1:
                yield waiting.popleft()
        yield from waiting

    def _batches(
        self, num_tasks: int, on_rows: Callable[[int], None], leading: LeadingRows | None
    ) -> Iterator[pa.RecordBatch]:
        return regrouped(self._answers(num_tasks, on_rows, leading))

    def _answers(
        self, num_tasks: int, on_rows: Callable[[int], None], leading: LeadingRows | None
    ) -> Iterator[pa.RecordBatch]:
        for _ in range(num_tasks):
            answer = self._sent.popleft().result()
            self._send()
            for batch in answer.batches:
                on_rows(batch.num_rows)
                yield batch
            if leading is not None and answer.leading is not None:
                leading.merge(answer.leading)

    def _send(self) -> None:
        while self._waiting and len(self._sent) < self._most_sent:
            self._sent.append(self._threads.submit(self._evaluate, self._waiting.popleft()))

    def _evaluate(self, parts: Sequence[Part]) -> Answer:
        worker = self._idle.get()
        try:
            return worker.evaluate(parts)
        finally:
            self._idle.put(worker)


def _tasks(cells: Sized) -> Iterator[tuple[Part, ...]]:
    """Yield the tasks of a group in order: parts of cells, one after the other."""
    parts: list[Part] = []
    rows = 0
    for cell, size in cells:
        for first in range(0, size, _PART_ROWS):
            last = min(first + _PART_ROWS, size)
            # The last part takes all remaining rows: the search checks their number.
            parts.append(Part(cell, first, sys.maxsize if last == size else last))
            rows += last - first
            if rows >= _TASK_ROWS:
                yield tuple(parts)
                parts, rows = [], 0
    if parts:
        yield tuple(parts)
