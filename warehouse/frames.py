"""Queries as polars frames, for notebooks and scripts.

>>> from warehouse.frames import frame
>>> best = frame("from configuration_rank where rank_by_time = 1")     # doctest: +SKIP
>>> wide = frame("from configuration where num_gpus = $n", n=4096)     # doctest: +SKIP

While a query runs, the file is open for reading and no sweep can write to it. The frame holds no
file open. Rows have the order of the query: use ``order by``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse import settings
from warehouse.database.connection import open_for_read

if TYPE_CHECKING:
    import polars


def frame(sql: str, database: str | Path | None = None, **parameters: Any) -> polars.DataFrame:
    """Return the rows of a query.

    Parameters
    ----------
    sql
        One query over the database's tables and views.
    database
        The file; by default the one that `warehouse config` shows.
    **parameters
        Values of ``$name`` in the query.

    Raises
    ------
    DatabaseError
        If the file is missing, locked or no database.
    """
    path = Path(database or settings.database())
    with open_for_read(path) as connection:
        found: polars.DataFrame = connection.sql(sql, params=parameters or None).pl()
    return found
