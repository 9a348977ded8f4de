"""Table of facts derived from each problem and the reference tables: names, changes, groups.

`refresh` fills the table in each transaction that stores or deletes problems. Facts of a problem
with a profile also follow from its constants: the transaction that changes a profile calls
`refresh` with its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.sql_text import quoted, view_exists
from warehouse.database.views import FOUND

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

TABLE = "stored_problem"
SOURCE = FOUND + TABLE
"""View with the correct rows."""

_PROBLEM = "problem"
_PRODUCT = "problem_product"
"""View that several views below `SOURCE` read: its rows are found once."""


def refresh(connection: DuckDBPyConnection, profiles: Collection[str] = ()) -> None:
    """Bring the table up to date; call it in the transaction that changed problems.

    Parameters
    ----------
    profiles
        Profiles that were stored, changed or dropped.
    """
    if not connection.execute(view_exists(SOURCE)).fetchall():  # views of another directory
        return
    connection.execute(
        f"delete from {TABLE} where problem_id not in (select problem_id from {_PROBLEM})"
    )
    if profiles:
        connection.execute(
            f"delete from {TABLE} where problem_id in (select problem_id from {_PROBLEM}"
            " where profile in (select unnest(?)))",
            [list(profiles)],
        )
    missing = f"select * from {_PROBLEM} anti join {TABLE} using (problem_id)"
    if connection.execute(f"select exists({missing})").fetchall() == [(False,)]:
        return
    # DuckDB finds temporary tables first: the views below `SOURCE` see only the missing problems.
    connection.execute(f"create temp table {quoted(_PROBLEM)} as {missing}")
    connection.execute(f"create temp table {quoted(_PRODUCT)} as from {quoted(_PRODUCT)}")
    connection.execute(f"insert into {TABLE} by name from {SOURCE}")
    for name in (_PRODUCT, _PROBLEM):
        connection.execute(f"drop table temp.{quoted(name)}")
