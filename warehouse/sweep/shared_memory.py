"""Shared memory of processes: slots for batches, which one process fills and another reads."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from warehouse.database.record_batches import BATCH_ROWS, column_types
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from estimators.contract import Array, Relation

_ALIGNED = 64
"""Columns begin at multiples of this [bytes], as Arrow requires."""


def anonymous_file() -> int:
    """Return the descriptor of a file in memory that ends with the last process that has it open.

    Where the system has no such files, it is a temporary file without a name.
    """
    if hasattr(os, "memfd_create"):  # not /dev/shm, which has only 64 MB in many containers
        return os.memfd_create("warehouse")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def slot_bytes(relations: Iterable[Relation]) -> int:
    """Return the size of a slot that takes a batch of any of `relations` [bytes]."""
    return max(sum(map(_space, column_types(relation).values())) for relation in relations)


class Slots:
    """Equal parts of a file, each for the columns of one batch.

    Parameters
    ----------
    file
        Its descriptor. Each process has its own object over the same file.
    size
        Size of a slot [bytes].
    number
        Number of slots. Slots that are never written take no memory.

    Raises
    ------
    DatabaseError
        If this process may not make a file of that size.
    """

    def __init__(self, file: int, size: int, number: int) -> None:
        try:
            os.ftruncate(file, size * number)
        except OSError as error:
            raise DatabaseError(
                f"there is no space for the memory of the workers, {size * number / 1e6:,.0f} MB: "
                f"{error.strerror}",
                "raise the largest size of a file (`ulimit -f`), or sweep with --workers 1",
            ) from error
        self._memory = mmap.mmap(file, size * number)
        self._size = size

    def columns(self, relation: Relation, slot: int) -> dict[str, Array]:
        """Return the columns of a slot, each with `BATCH_ROWS` elements."""
        columns, start = {}, slot * self._size
        for name, kind in column_types(relation).items():
            columns[name] = np.frombuffer(self._memory, kind, BATCH_ROWS, start)
            start += _space(kind)
        return columns


def _space(kind: np.dtype[np.generic]) -> int:
    return -(-BATCH_ROWS * kind.itemsize // _ALIGNED) * _ALIGNED
