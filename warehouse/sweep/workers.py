"""Processes that evaluate cells while this one stores them.

A worker writes rows directly into the batches that DuckDB reads, in shared memory: the place of
each row follows from the numbers of rows of the cells before it. Rows, order and batches are the
same as with one process.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from estimators.contract import Catalog
from warehouse.database.record_batches import (
    BATCH_ROWS,
    CHUNK_ROWS,
    Lease,
    column_types,
    leased_array,
    schema_of,
)
from warehouse.errors import WarehouseError
from warehouse.sweep.shared_memory import Slots, anonymous_file, slot_bytes
from warehouse.sweep.worker import Done, Part, Setting, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from estimators.contract import Cell, Estimator, Relation
    from warehouse.database.leading import Leading, LeadingRows

_TASK_ROWS = CHUNK_ROWS
"""Least number of rows of a task of small cells."""

_PART_ROWS = 2 * BATCH_ROWS
"""Most rows of a part of a large cell. Each part enumerates the cell's layouts again."""

_SPAN = -(-(_TASK_ROWS + _PART_ROWS + CHUNK_ROWS) // BATCH_ROWS) + 1
"""Most batches that the rows of a task may fall into."""

_PROGRAM = "import sys; from warehouse.sweep.worker import main; main(*map(int, sys.argv[1:]))"


class _Place(NamedTuple):
    """A batch of the sweep: the number of its group, and its number in the group."""

    group: int
    batch: int


class _Planned(NamedTuple):
    """A task that is not sent yet: its parts, and the rows of the group that it writes."""

    group: int
    parts: tuple[Part, ...]
    begin: int
    end: int


class _Worker:
    """A worker process, and the end of the connection to it.

    Attributes
    ----------
    rows
        Rows of the tasks that it has been sent and has not finished.
    """

    def __init__(self, memory_file: int) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(memory_file)],
            pass_fds=(theirs.fileno(), memory_file),
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
                "OPENBLAS_NUM_THREADS": "1",  # its threads would only take memory
            },
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # ^C goes to this process, which ends its workers
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.rows = 0

    def begin(self, setting: bytes) -> None:
        with suppress(OSError):  # a worker that has already ended is noticed later
            self.connection.send_bytes(setting)

    def ended(self) -> WarehouseError:
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
        self.connection.close()


class Workers:
    """Evaluates groups of cells in worker processes; use it with ``with``, which ends them.

    Parameters
    ----------
    relation
        The relation of all cells.
    number
        Number of processes.
    num_readers
        Approximate number of batches that the reader holds at once.
    on_rows
        Called with the number of rows just evaluated.
    """

    def __init__(
        self,
        estimator: Estimator,
        catalog: Catalog,
        relation: Relation,
        number: int,
        *,
        num_readers: int,
        on_rows: Callable[[int], None],
    ) -> None:
        self._relation = relation
        self._on_rows = on_rows
        self._num_groups = 0
        self._group_rows: dict[int, int] = {}
        # A kernel reads only this part of the catalog.
        plain = Catalog(catalog.tables, catalog.aliases, catalog.measured)
        self._setting = Setting(
            estimator.name, plain, slot_bytes([relation]), number + num_readers + _SPAN
        )
        self._number = number
        self._free = deque(range(self._setting.num_slots))
        self._slots: dict[_Place, int] = {}
        self._written: dict[_Place, int] = {}
        self._unknown: dict[_Place, set[str]] = {}
        self._leading: dict[int, dict[int, Leading]] = {}
        self._sent: dict[int, tuple[int, _Worker, int]] = {}
        self._numbers = count()
        self._tasks: deque[_Planned] = deque()
        self._workers: list[_Worker] = []

    def __enter__(self) -> Workers:
        file = anonymous_file()
        try:
            self._memory = Slots(file, self._setting.slot_bytes, self._setting.num_slots)
            for _ in range(self._number):
                self._workers.append(_Worker(file))
            setting = pickle.dumps(self._setting)  # while the workers import their modules
            for worker in self._workers:
                worker.begin(setting)
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(file)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def add(self, cells: Sequence[tuple[Cell, int]]) -> int:
        """Add a group of cells, with their numbers of rows; return its number for `batches`.

        Add the next group before you store one, so that workers continue meanwhile.
        """
        group = self._num_groups
        self._num_groups += 1
        self._group_rows[group] = sum(size for _, size in cells)
        self._tasks.extend(self._planned(group, cells))
        return group

    def batches(self, group: int, leading: LeadingRows | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group as `record_batches` does. Ask for the groups in order."""
        relation, rows = self._relation, self._group_rows.pop(group)
        for start in range(0, rows, BATCH_ROWS):
            place, size = _Place(group, start // BATCH_ROWS), min(BATCH_ROWS, rows - start)
            while self._written.get(place, 0) < size:
                self._send()
                self._receive()
            yield self._batch(relation, place, size)
        if leading is not None:
            for _, part in sorted(self._leading.pop(group).items()):
                leading.merge(part)

    def _planned(self, group: int, cells: Sequence[tuple[Cell, int]]) -> Iterator[_Planned]:
        """Yield the tasks of a group in order."""
        parts: list[Part] = []
        begin = start = waiting = 0
        for cell, size in cells:
            for first in range(0, size, _PART_ROWS):
                last = min(first + _PART_ROWS, size)
                # The last part takes all remaining rows: the search checks their number.
                parts.append(Part(cell, first, sys.maxsize if last == size else last, start))
                waiting += last - first
                if waiting >= _TASK_ROWS:
                    # The last chunk of a part may reach into the next part.
                    end = start + min(last + CHUNK_ROWS, size)
                    yield _Planned(group, tuple(parts), begin, end)
                    parts, waiting, begin = [], 0, start + last
            start += size
        if parts:
            yield _Planned(group, tuple(parts), begin, start)

    def _send(self) -> None:
        """Send tasks while there are slots for their batches."""
        while self._tasks:
            group, parts, begin, end = self._tasks[0]
            batches = range(begin // BATCH_ROWS, -(-end // BATCH_ROWS))
            new = [b for b in batches if _Place(group, b) not in self._slots]
            if len(new) > len(self._free):
                return
            for batch in new:
                self._slots[_Place(group, batch)] = self._free.popleft()
            worker = min(self._workers, key=lambda each: each.rows)
            number = next(self._numbers)
            self._sent[number] = group, worker, end - begin
            worker.rows += end - begin
            slots = {batch: self._slots[_Place(group, batch)] for batch in batches}
            self._deliver(worker, Task(number, self._relation.name, parts, slots))
            self._tasks.popleft()

    def _deliver(self, worker: _Worker, task: Task) -> None:
        try:
            worker.connection.send(task)
        except OSError:
            raise worker.ended() from None

    def _receive(self) -> None:
        """Wait until a worker has finished a task, and process its result."""
        ready = wait([worker.connection for worker in self._workers])
        for worker in self._workers:
            if worker.connection not in ready:
                continue
            try:
                done = worker.connection.recv()
            except (EOFError, OSError):
                raise worker.ended() from None
            if isinstance(done, Exception):
                raise done
            self._take(done)

    def _take(self, done: Done) -> None:
        group, worker, rows = self._sent.pop(done.number)
        worker.rows -= rows
        for batch, size in done.rows.items():
            place = _Place(group, batch)
            self._written[place] = self._written.get(place, 0) + size
        for batch, name in done.unknown:
            self._unknown.setdefault(_Place(group, batch), set()).add(name)
        if done.leading is not None:
            self._leading.setdefault(group, {})[done.number] = done.leading
        self._on_rows(sum(done.rows.values()))

    def _batch(self, relation: Relation, place: _Place, size: int) -> pa.RecordBatch:
        """Return a batch over the memory of its slot; the slot is free again when nobody reads it.

        A reader that keeps many batches holds their slots. The batch is then a copy, so that a slot
        is left for the next one.
        """
        slot = self._slots.pop(place)
        del self._written[place]
        unknown = self._unknown.pop(place, set())
        columns = {n: c[:size] for n, c in self._memory.columns(relation, slot).items()}
        num_read = self._setting.num_slots - len(self._free) - len(self._slots)
        is_copied = num_read > self._setting.num_slots - _SPAN
        if is_copied:
            columns = {name: column.copy() for name, column in columns.items()}
        lease = Lease(columns)
        if is_copied:
            self._free.append(slot)
        else:
            weakref.finalize(lease, self._free.append, slot)
        arrays = [
            leased_array(columns[field.name], field.type, lease, has_gaps=field.name in unknown)
            for field in schema_of(relation)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(relation))


def can_share(relation: Relation) -> bool:
    """Return whether the rows fit in shared memory, which cannot hold texts."""
    return not any(kind.hasobject for kind in column_types(relation).values())
