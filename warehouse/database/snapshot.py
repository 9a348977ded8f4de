"""Publishes snapshots of a database while a sweep has it open alone.

DuckDB lets one process write to a file, or many read it. A sweep of hours would block readers, so
it copies the file after a commit, and readers open the copy. Each copy is complete: it is made
after a checkpoint, while nothing writes, and takes the place of the last one in one step. Readers
of the last one keep it until they close it.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from warehouse.database.connection import snapshot_path
from warehouse.database.leftovers import PARTIAL

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from duckdb import DuckDBPyConnection

MOST_OF_THE_TIME = 0.05
"""Share of a sweep's time that its snapshots may take: a large file is copied less often."""

FIRST_SECONDS = 0.5
"""Seconds that the first snapshot may take, as copying about 600 MB does. A sweep that ends within
ten seconds publishes none."""

SPARE_BYTES = 1 << 30
"""Disk space that a snapshot leaves free."""

_READABLE = 0o444


class Snapshots:
    """Publishes snapshots of a database during a sweep, and removes the last one at its end.

    Enter it before the database is opened and leave it after the database is closed: POSIX ends all
    locks of a process on a file when it closes one of its handles (fcntl(2), POSIX.1-2017), and
    this holds one. Best effort: a sweep does not fail because a snapshot cannot be written.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._file: BinaryIO | None = None
        self._not_before = time.monotonic() + FIRST_SECONDS / MOST_OF_THE_TIME

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            for path in self._paths():
                with suppress(OSError):
                    path.unlink()
            self._file.close()
            self._file = None

    def publish(self, connection: DuckDBPyConnection) -> bool:
        """Publish the committed state, unless the last time is too recent; return whether it did.

        Parameters
        ----------
        connection
            The only connection to the database; no transaction is open.
        """
        started = time.monotonic()
        if started < self._not_before:
            return False
        connection.execute("checkpoint")  # after a checkpoint the file needs no log
        is_published = False
        with suppress(OSError):
            is_published = self._copy()
        seconds = time.monotonic() - started
        self._not_before = started + seconds / MOST_OF_THE_TIME
        return is_published

    def _copy(self) -> bool:
        snapshot, partial = self._paths()
        if self._file is None:
            self._file = self._database.open("rb", buffering=0)
        status = os.fstat(self._file.fileno())
        if shutil.disk_usage(snapshot.parent).free < status.st_size + SPARE_BYTES:
            return False
        try:
            with partial.open("wb", buffering=0) as target:
                _copy_content(self._file, target, status.st_size)
            partial.chmod(status.st_mode & _READABLE)
            partial.replace(snapshot)
        finally:
            with suppress(OSError):
                partial.unlink()
        return True

    def _paths(self) -> tuple[Path, Path]:
        snapshot = snapshot_path(self._database)
        return snapshot, snapshot.with_name(snapshot.name + PARTIAL)


def _copy_content(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy `size` bytes; file systems that share blocks (XFS, Btrfs) copy none."""
    source.seek(0)
    done = 0
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):  # an old kernel, or a file system that cannot
            while done < size:
                copied = os.copy_file_range(
                    source.fileno(), target.fileno(), size - done, done, done
                )
                if not copied:
                    break
                done += copied
    if done < size:
        source.seek(0)
        target.seek(0)
        shutil.copyfileobj(source, target, 1 << 20)
