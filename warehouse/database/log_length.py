"""The length of a database's write-ahead log (WAL) at its last commit, to notice a cut log.

If a log ends in the middle of an entry, DuckDB assumes that a crash interrupted the writing of this
entry, and uses the entries before it. It cannot know that the entry was committed. So each commit
notes the length of the log as an extended attribute of the log itself: the note goes when the log
does, and needs no file. Where the file system has no such attributes, a cut log is not noticed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ATTRIBUTE = "user.warehouse.committed_bytes"


def note_log_length(connection: DuckDBPyConnection) -> None:
    """Note the length of the log after a commit; without a log there is nothing to note."""
    query = "select path from duckdb_databases() where database_name = current_database()"
    [(path,)] = connection.execute(query).fetchall()
    if path is None:
        return
    log = f"{path}.wal"
    with suppress(OSError, AttributeError):  # Linux alone has such attributes
        os.setxattr(log, _ATTRIBUTE, str(Path(log).stat().st_size).encode())


def missing_log_bytes(log: Path) -> int:
    """Return how many committed bytes are missing at the end of a log; 0 if none is known."""
    try:
        noted = os.getxattr(log, _ATTRIBUTE)
        return max(int(noted) - log.stat().st_size, 0)
    except (OSError, AttributeError, ValueError):
        return 0
