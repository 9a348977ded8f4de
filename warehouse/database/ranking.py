"""Leading rows ranked by a chance to fit in memory other than the default."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.database.sql_text import least_fit_probability, quoted, replaced
from warehouse.database.views import LEADING_ROW, UNRANKED, leading_sql
from warehouse.limits import FIT_PROBABILITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection


@contextmanager
def ranked_anew(connection: DuckDBPyConnection, least: float) -> Iterator[None]:
    """Let queries in the block see leading rows ranked by another least chance to fit in memory.

    The first of each cell is the best for any chance; later ranks count leading rows alone.
    """
    if least == FIT_PROBABILITY:
        yield
        return
    [database] = connection.execute("select current_database()").fetchone() or ("",)
    stored = f"{quoted(database)}.main.{quoted(LEADING_ROW)}"
    anew = leading_sql(f"select {UNRANKED} from {stored}")
    with least_fit_probability(connection, least), replaced(connection, {LEADING_ROW: anew}):
        yield
