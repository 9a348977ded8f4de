"""The progress file of a sweep, readable while the sweep locks the database."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from warehouse.database.paths import PROGRESS
from warehouse.files import put_whole
from warehouse.processes import is_alive, started_ticks

INTERVAL_SECONDS = 0.25
"""Seconds between two writes of the file."""

OnProgress = Callable[[int, int, int, int], None]
"""Called with rows done, rows in all, cells done, cells in all."""


@dataclass
class Progress:
    """The progress of a sweep. Rows and cells include those of earlier runs of the study."""

    study: str
    total_rows: int
    total_cells: int
    rows: int = 0
    cells: int = 0
    rows_per_second: float = 0.0
    started_at: float = field(default_factory=time.time)
    updated_at: float = 0.0
    pid: int = field(default_factory=os.getpid)
    process_started: int | None = field(default_factory=lambda: started_ticks(os.getpid()))


_NAMES = {known.name for known in fields(Progress)}


def progress_path(database: Path) -> Path:
    """Return the path of the progress file of sweeps into `database`."""
    return database.with_name(database.name + PROGRESS)


class ProgressFile:
    """Counts and writes the progress of one sweep, and removes the file when the sweep ends.

    Best effort: a sweep does not fail because its progress cannot be written.
    """

    def __init__(
        self, database: Path, progress: Progress, listener: OnProgress | None = None
    ) -> None:
        self._path = progress_path(database)
        self._progress = progress
        self._listener = listener
        self._first_row = progress.rows
        # A clock that is set back must not stop the progress, or turn the speed negative.
        self._started = self._written = time.monotonic()

    def __enter__(self) -> ProgressFile:
        try:
            self._write()
            self._tell()
        except BaseException:  # a signal: nobody calls `__exit__`
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def add_rows(self, rows: int) -> None:
        """Count evaluated rows."""
        self._progress.rows += rows
        self._tell()

    def add_cells(self, cells: int) -> None:
        """Count stored cells."""
        self._progress.cells += cells
        self._tell()

    def _tell(self) -> None:
        """Call the listener, and write the file if the last write is old enough."""
        progress = self._progress
        progress.total_rows = max(progress.total_rows, progress.rows)  # it may be an estimate
        progress.total_cells = max(progress.total_cells, progress.cells)
        if time.monotonic() - self._written >= INTERVAL_SECONDS:
            self._write()
        if self._listener is not None:
            self._listener(progress.rows, progress.total_rows, progress.cells, progress.total_cells)

    def _write(self) -> None:
        progress = self._progress
        progress.updated_at = time.time()
        self._written = time.monotonic()
        elapsed = self._written - self._started
        progress.rows_per_second = (progress.rows - self._first_row) / elapsed if elapsed else 0.0
        with contextlib.suppress(OSError), put_whole(self._path) as partial:
            partial.write_text(json.dumps(asdict(progress)), encoding="utf-8")


def read_progress(database: Path) -> dict[str, Any] | None:
    """Return the progress of the sweep that is running into `database`, None if none is.

    The file of a killed process is ignored, even if another process now has its number.
    """
    try:
        progress = json.loads(progress_path(database).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(progress, dict) or not progress.keys() >= _NAMES:
        return None
    pid = progress["pid"]
    is_running = is_alive(pid) and progress["process_started"] == started_ticks(pid)
    return progress if is_running else None
