"""Makes again what somebody changed or removed by hand in a database that is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.clashes import refuse_views_of_tables
from warehouse.database.differences import differences, lacks_rows, wanted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def mend(connection: DuckDBPyConnection) -> None:
    """Make again what differs in a database whose fingerprints are those of this package.

    Without a cache everything is made again. Nothing may have been created on the connection.

    Raises
    ------
    DatabaseError
        If a view has the name of a table of this package.
    """
    digests = wanted()
    if digests is None:
        from warehouse.database.schema import prepare

        prepare(connection, force=True)
        return
    refuse_views_of_tables(connection, [*digests["tables"], *digests["references"]])
    found = differences(connection, digests)
    if found.names():
        from warehouse.database.schema import prepare

        prepare(connection, differing=found)
    if lacks_rows(connection, digests["leading"]):
        from warehouse.database.schema import make_rows

        make_rows(connection)
