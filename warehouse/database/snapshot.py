"""Publishes snapshots of a database while a process writes to it for long.

DuckDB lets one process write to a file, or many read it. A sweep of hours would block readers, so
the writing process copies the file now and then, and readers open the copy.

A checkpoint writes to blocks that the last one left free, or to free parts of blocks, and then one
of the two headers. A copy of the file without its log is therefore the state of the last
checkpoint, even in the middle of a transaction, as long as the headers stay the same from its
beginning to its end. So a thread copies while the process goes on writing. A block may have been
written to at the moment of its copy: the copy is opened, which compares checksums, before readers
get it.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from warehouse.database.access import FIRST_SECONDS
from warehouse.database.paths import CONFIG, SNAPSHOT, file_of
from warehouse.files import partials, put_whole

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

MOST_OF_THE_TIME = 0.05
"""Share of a process's time that all copies may take. The first is made in any case."""

SPARE_BYTES = 1 << 30
"""Disk space that stays free behind a snapshot, and as much as the database has."""

_POLL_SECONDS = 0.1

_HEAD_BYTES = 3 * 4096
"""The header of the file and the two of the database, of which each checkpoint writes one."""

_SHOWN_BYTES, _SHOWN_SECONDS = 300_000_000, 0.6
"""A copy that was seen to take this long: a copy of few bytes says little about one of many."""

_CHUNK_BYTES = 1 << 24
"""Bytes after which a copy ends early if the process has finished."""

_READABLE = 0o444


class Snapshots:
    """Publishes snapshots of a database in a thread, and removes the last one at the end.

    Enter it while this process has the database open for writing, leave it before the database is
    closed, and call `close` afterwards: POSIX ends all locks of a process on a file when it closes
    one of its handles (fcntl(2), POSIX.1-2017), and this holds one. Best effort: a command does not
    fail because a snapshot cannot be written.

    `seconds` is the time that all copies took.
    """

    def __init__(self, database: Path) -> None:
        self._path = file_of(database)
        self._source: BinaryIO | None = None
        self._published: BinaryIO | None = None
        self._head = self._published_head = b""
        self._size = self._bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._publish_often, daemon=True)
        self._begun = self._not_before = 0.0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._not_before = self._begun + FIRST_SECONDS
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if self._published is not None:
            path = snapshot_path(self._path)
            with suppress(OSError):
                # A compacted file has its name before the lock on the old one ends: the snapshot
                # may be that of the next writer.
                if os.path.samestat(path.stat(), os.fstat(self._published.fileno())):
                    path.unlink()

    def close(self) -> None:
        """Close the files."""
        for file in (self._source, self._published):
            if file is not None:
                file.close()

    def _publish_often(self) -> None:
        while not self._end.wait(_POLL_SECONDS):
            with suppress(OSError):
                self.publish_if_due()

    def publish_if_due(self) -> None:
        """Publish the state of the last checkpoint, unless that is done, or it is too early."""
        if self._source is None:
            self._source = self._path.open("rb", buffering=0)
        head = _head_of(self._source)
        if head != self._head:
            # Blocks of a transaction that follows make the file longer.
            self._head, self._size = head, os.fstat(self._source.fileno()).st_size
        if self._head == self._published_head or not self._is_due():
            return
        started = time.monotonic()
        self._not_before = started + FIRST_SECONDS
        if self._copy(self._source):
            self._published_head = head
        self.seconds += time.monotonic() - started
        self._bytes += self._size

    def _is_due(self) -> bool:
        now = time.monotonic()
        a_byte = (self.seconds + _SHOWN_SECONDS) / (self._bytes + _SHOWN_BYTES)
        seconds = self.seconds + a_byte * self._size
        return (
            now >= self._not_before
            and (not self._bytes or seconds <= MOST_OF_THE_TIME * (now - self._begun))
            and shutil.disk_usage(self._path.parent).free >= 2 * self._size + SPARE_BYTES
        )

    def _copy(self, source: BinaryIO) -> bool:
        """Copy the file; publish the copy unless a checkpoint came between, or the end."""
        moment = time.time()
        with put_whole(snapshot_path(self._path)) as partial:
            target = partial.open("wb", buffering=0)
            try:
                is_whole = _copy_content(source, target, self._size, self._end)
                if not is_whole or _head_of(source) != self._head or not _opens(partial):
                    partial.unlink()
                    target.close()
                    return False
                partial.chmod(os.fstat(source.fileno()).st_mode & _READABLE)
                os.utime(partial, (moment, moment))
                _lock(target)
            except BaseException:
                target.close()
                raise
        if self._published is not None:
            self._published.close()
        self._published = target
        return True


def _opens(copy: Path) -> bool:
    import duckdb

    try:
        duckdb.connect(str(copy), read_only=True, config=CONFIG).close()
    except duckdb.Error:
        return False
    return True


def snapshot_path(database: Path) -> Path:
    """Return the path of the snapshot that a process publishes while it writes to `database`."""
    file = file_of(database)
    return file.with_name(file.name + SNAPSHOT)


def is_published(snapshot: Path) -> bool:
    """Return whether the process that published a snapshot is alive; `OSError` if there is none.

    It has a lock on the snapshot, which ends with the process (flock(2)). DuckDB's locks are of
    another kind. Another process may have the database open by now, with newer rows.
    """
    with snapshot.open("rb") as file:
        if sys.platform == "win32":
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # also where the file system has no such locks
            return True
    return False


def is_being_copied(database: Path) -> bool:
    """Return whether a snapshot of a database is being made."""
    snapshot = snapshot_path(database)
    return bool(partials(snapshot.parent, [snapshot.name]))


def _lock(file: BinaryIO) -> None:
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _head_of(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(_HEAD_BYTES)


def _copy_content(source: BinaryIO, target: BinaryIO, size: int, end: threading.Event) -> bool:
    """Copy `size` bytes, or fewer if the file is shorter by now; return False if `end` is set.

    After a checkpoint DuckDB cuts free blocks off the file. File systems that share blocks (XFS,
    Btrfs) copy none.
    """
    done = 0
    while done < size:
        if end.is_set():
            return False
        copied = _copy_chunk(source, target, min(_CHUNK_BYTES, size - done), done)
        if not copied:
            break
        done += copied
    return True


def _copy_chunk(source: BinaryIO, target: BinaryIO, count: int, offset: int) -> int:
    with suppress(OSError, AttributeError):  # an old kernel, or a file system that cannot
        return os.copy_file_range(source.fileno(), target.fileno(), count, offset, offset)
    source.seek(offset)
    target.seek(offset)
    return target.write(source.read(count))
