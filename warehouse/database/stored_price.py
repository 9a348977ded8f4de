"""Table of the price and power that each name of an accelerator takes.

View `SOURCE` finds them in the reference tables alone. Planning that view takes longer than most
queries run, so `prepare` fills the table whenever the view or a reference table has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.tables import STORED_PRICE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLE = STORED_PRICE.name

SOURCE = "found_price"
"""View of the rows as they should be."""


def rebuild(connection: DuckDBPyConnection) -> None:
    """Fill the table from nothing: its view or a reference table has changed."""
    connection.execute(f"delete from {TABLE}")
    connection.execute(f"insert into {TABLE} by name from {SOURCE}")
