"""A process that evaluates cells into shared memory. `workers` starts it and sends it tasks."""

from __future__ import annotations

import os
import pickle
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.contract import Catalog, Cell
from estimators.registry import get
from warehouse.database.leading import Leading, LeadingRows
from warehouse.database.record_batches import BATCH_ROWS, keep_freed_memory, searched, write
from warehouse.sweep.shared_memory import Slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from estimators.contract import Array, Estimator


class Setting(NamedTuple):
    """The data that all tasks of a worker share; it is sent first.

    Attributes
    ----------
    slot_bytes, num_slots
        Size and number of the slots in the shared memory.
    """

    estimator: str
    catalog: Catalog
    slot_bytes: int
    num_slots: int


class Part(NamedTuple):
    """Some rows of a cell: the chunks that begin in ``first <= row < last``.

    Attributes
    ----------
    start
        Row of the group at which the cell begins.
    """

    cell: Cell
    first: int
    last: int
    start: int


class Task(NamedTuple):
    """Parts of cells of one group, one after the other.

    Attributes
    ----------
    number
        Its place among the tasks of the sweep.
    slots
        Batch of the group -> its slot.
    """

    number: int
    relation: str
    parts: tuple[Part, ...]
    slots: dict[int, int]


class Done(NamedTuple):
    """The outcome of a task; its rows are in the shared memory.

    Attributes
    ----------
    rows
        Batch of the group -> how many of its rows were written.
    unknown
        Batch and column of values that are NaN.
    leading
        The leading rows of the cells, if the relation keeps them.
    """

    number: int
    rows: dict[int, int]
    unknown: set[tuple[int, str]]
    leading: Leading | None


def main(connection_file: int, memory_file: int) -> None:
    """Evaluate tasks until the sender closes the connection."""
    connection = Connection(connection_file)
    try:
        setting: Setting = connection.recv()
    except EOFError:
        return
    slots = Slots(memory_file, setting.slot_bytes, setting.num_slots)
    estimator = get(setting.estimator)
    keep_freed_memory()
    for task in _received(connection):
        connection.send(answer(estimator, setting.catalog, slots, task))


def _received(connection: Connection) -> Iterator[Task]:
    """Yield tasks. A thread receives them, so that the sender never waits.

    The thread ends the process when the sender closes the connection, even during an evaluation.
    """
    tasks: SimpleQueue[Task] = SimpleQueue()

    def receive() -> None:
        try:
            while True:
                tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)

    Thread(target=receive, daemon=True).start()
    while True:
        yield tasks.get()


def answer(estimator: Estimator, catalog: Catalog, slots: Slots, task: Task) -> Done | Exception:
    """Return the outcome of a task, or its error in a form that another process can read."""
    try:
        return evaluated(estimator, catalog, slots, task)
    except Exception as error:
        said = "".join(traceback.format_exception(error))
        try:
            copy: Exception = pickle.loads(pickle.dumps(error))
        except Exception:
            return RuntimeError(said)
        copy.add_note(said)
        return copy


def evaluated(estimator: Estimator, catalog: Catalog, slots: Slots, task: Task) -> Done:
    """Evaluate a task into its slots."""
    relation = next(each for each in estimator.relations if each.name == task.relation)
    leading = LeadingRows(relation) if relation.keeps_leading else None
    batches = {batch: slots.columns(relation, slot) for batch, slot in task.slots.items()}
    done = Done(task.number, dict.fromkeys(batches, 0), set(), None)
    for part in task.parts:
        row = 0
        for cell, size, fill in searched(estimator, relation, [part.cell], catalog):
            if row >= part.last:
                break
            if row >= part.first:
                place, start = divmod(part.start + row, BATCH_ROWS)
                if start + size <= BATCH_ROWS:
                    write(batches[place], start, size, cell, fill, leading)
                else:
                    spare = _like(batches[place], size)
                    write(spare, 0, size, cell, fill, leading)
                    _copy(spare, batches, place, start)
                _note(done, batches, place, start, size)
            row += size
    return done._replace(leading=leading.taken() if leading else None)


def _like(columns: dict[str, Array], size: int) -> dict[str, Array]:
    return {name: np.empty(size, column.dtype) for name, column in columns.items()}


def _cut(place: int, start: int, size: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the batches of some rows, with the rows and their places in each batch."""
    done = 0
    while done < size:
        part = min(BATCH_ROWS - start, size - done)
        yield place, slice(done, done + part), slice(start, start + part)
        place, start, done = place + 1, 0, done + part


def _copy(
    spare: dict[str, Array], batches: dict[int, dict[str, Array]], place: int, start: int
) -> None:
    for batch, taken, given in _cut(place, start, len(spare["cell_id"])):
        for name, column in batches[batch].items():
            column[given] = spare[name][taken]


def _note(
    done: Done, batches: dict[int, dict[str, Array]], place: int, start: int, size: int
) -> None:
    """Count written rows, and find the columns with NaN."""
    for batch, taken, given in _cut(place, start, size):
        done.rows[batch] += taken.stop - taken.start
        for name, column in batches[batch].items():
            if column.dtype.kind == "f" and np.isnan(column[given].min(initial=0.0)):
                done.unknown.add((batch, name))
