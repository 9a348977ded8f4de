"""Makes again what somebody changed or removed by hand in a database that is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.differences import differences, lacks_rows, wanted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def mend(connection: DuckDBPyConnection) -> None:
    """Make again what differs in a database whose fingerprints are those of this package.

    Without a cache everything is made again. Nothing may have been created on the connection.
    """
    digests = wanted()
    if digests is None:
        from warehouse.database.schema import prepare

        prepare(connection, force=True)
        return
    found = differences(connection, digests)
    if found.names():
        from warehouse.database.schema import prepare

        prepare(connection, differing=found)
    if lacks_rows(connection, digests["leading"]):
        from warehouse.database.schema import make_rows

        make_rows(connection)
