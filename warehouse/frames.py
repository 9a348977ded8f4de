"""Queries as polars frames: `warehouse.Warehouse.sql` in one call.

>>> from warehouse.frames import frame
>>> best = frame("from configuration_rank where rank_by_time = 1")     # doctest: +SKIP
>>> wide = frame("from configuration where num_gpus = $n", n=4096)     # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.api.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    import polars


def frame(sql: str, database: str | Path | None = None, **parameters: Any) -> polars.DataFrame:
    """Return the rows of a query as `Warehouse.sql` does; `parameters` are values of ``$name``."""
    return Warehouse(database).sql(sql, **parameters)
