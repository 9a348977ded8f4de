"""Queries and statements in SQL on a database file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from warehouse.api.arguments import checked_query, count, plain, refuse_control_characters
from warehouse.api.database_file import DatabaseFile
from warehouse.api.given_frame import given_frame, is_table
from warehouse.database.connection import open_for_write
from warehouse.database.describe import Description, usual_name
from warehouse.database.paths import file_of
from warehouse.database.recast import frame_of
from warehouse.database.sandbox import explained, sandboxed
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError, UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


class QueriedFile(DatabaseFile):
    """A database file that answers queries."""

    def sql(self, query: str, /, **parameters: Any) -> pl.DataFrame:
        """Return the rows of one SELECT, as ``warehouse sql``.

        The query reads the tables and views, and no file or network address. `execute` runs
        any other statement.

        Parameters
        ----------
        query
            One SELECT; FROM, WITH, VALUES, DESCRIBE, SUMMARIZE and SHOW TABLES count as one.
            ``warehouse schema`` lists the tables and views.
        **parameters
            Values of ``$name`` in the query. A polars or pandas frame, or a pyarrow table, is a
            table of that name. A parameter that the query does not use is refused.

        Returns
        -------
        polars.DataFrame
            The rows in the order of the query, with the types of the database. Types that polars
            does not have, such as intervals, are texts.

        Examples
        --------
        >>> warehouse.sql("select num_layers from model where model = $name", name="gpt3").item()
        96
        >>> import polars as pl
        >>> mine = pl.DataFrame({"model": ["gpt3", "gpt3_1T"]})
        >>> query = "from mine join model using (model) select model order by all"
        >>> warehouse.sql(query, mine=mine)["model"].to_list()
        ['gpt3', 'gpt3_1T']
        """
        with self._reading() as connection, explained(self.path):
            return frame_of(_relation(connection, query, parameters))

    def relation(self, query: str, /, **parameters: Any) -> DuckDBPyRelation:
        """Return a query as a DuckDB relation, which further queries can use.

        It takes `query` and `parameters` as `sql` does. A relation is evaluated when its rows are
        read. It ends with the ``with`` block, and when a method writes. Relations of one thread can
        be joined. They write no files either: read the rows as a frame with ``pl()``, which can.

        Raises
        ------
        UsageError
            Outside a ``with`` block.

        Examples
        --------
        >>> with warehouse:
        ...     layouts = warehouse.relation("from configuration where num_gpus = $n", n=4096)
        ...     layouts.filter("fits_memory").aggregate("count(*) > 0").fetchall()
        [(True,)]
        """
        if not self._num_blocks:
            raise UsageError(
                "a relation needs the file to stay open",
                f"ask for it inside `with Warehouse({str(self.path)!r}) as warehouse:`",
            )
        with self._asking(), explained(self.path):
            return _relation(self._of_thread(), query, parameters)

    def view(self, name: str, limit: int | None = None) -> pl.DataFrame:
        """Return the rows of a view or table.

        Parameters
        ----------
        name
            Its name, in any spelling that ``warehouse schema`` accepts.
        limit
            Rows at most; None: all. View configuration has a row for each stored layout.

        Examples
        --------
        >>> warehouse.view("configuration_rank", limit=3).height
        3
        """
        refuse_control_characters(locals())
        with self._reading() as connection, explained(self.path):
            query = (
                "select table_name from information_schema.tables where lower(table_name) = ? "
                "and table_schema = 'main' and table_catalog = current_database()"
            )
            stored = connection.execute(query, [usual_name(checked_query(name))]).fetchone()
            if stored is None:
                Description(connection).find(name)  # refuses an unknown name, with similar ones
                raise InputError(f"`{name}` is no table or view", "`warehouse schema` lists them")
            rows = "" if limit is None else f" limit {count('limit', limit, least=0)}"
            return frame_of(_relation(connection, f"from {quoted(stored[0])}{rows}", {}))

    def execute(self, statements: str, /, **parameters: Any) -> pl.DataFrame:
        """Run any statements of DuckDB, with the rights of this program.

        No sandbox surrounds them: they can change the database, read and write files. The tables of
        the package follow from one another. Change none of them: make tables and views of your own.

        Parameters
        ----------
        statements
            One or more. Several are one transaction: if one fails, the database stays as it was.
            Statements that begin or end transactions themselves are run as they are. A transaction
            that they leave open is rolled back and refused.
        **parameters
            As `sql` takes them.

        Returns
        -------
        polars.DataFrame
            The rows of the last statement: none if it returns no rows.

        Examples
        --------
        >>> own = Warehouse(copy, writable=True)
        >>> own.execute(
        ...     "create table budget (model varchar, usd double);"
        ...     "insert into budget values ($model, 5e6);"
        ...     "from budget",
        ...     model="gpt3",
        ... ).rows()
        [('gpt3', 5000000.0)]
        >>> own.sql("select usd from budget join model using (model)").item()
        5000000.0
        """
        checked_query(statements)  # before the file is opened
        with (
            self._writing("execute"),
            open_for_write(self.path) as connection,
            explained(self.path),
        ):
            try:
                return _executed(connection, statements, parameters)
            except duckdb.IOException as error:
                if str(file_of(self.path)) in str(error):
                    raise
                raise InputError(str(error), "only what a statement committed is stored") from None


def _relation(
    connection: DuckDBPyConnection, query: str, parameters: Mapping[str, Any]
) -> DuckDBPyRelation:
    """Return the relation of one SELECT, in the sandbox of ``warehouse sql``."""
    statement = sandboxed(connection, checked_query(query))
    values = _registered(connection, statement, parameters)
    return connection.sql(statement, params=values or None)


def _executed(
    connection: DuckDBPyConnection, text: str, parameters: Mapping[str, Any]
) -> pl.DataFrame:
    """Run statements, several as one transaction; return the rows of the last one."""
    statements = connection.extract_statements(text)
    kinds = {statement.type for statement in statements}
    is_one_transaction = len(statements) > 1 and duckdb.StatementType.TRANSACTION not in kinds
    values = _registered(connection, text, parameters)
    rows = pl.DataFrame()
    if is_one_transaction:
        connection.begin()
    for statement in statements:
        named = {name.lower() for name in statement.named_parameters}
        given = {name: value for name, value in values.items() if name.lower() in named}
        found = connection.sql(statement.query, params=given or None)
        rows = pl.DataFrame() if found is None else frame_of(found)
    if is_one_transaction:
        connection.commit()
    elif _rolled_back(connection):
        raise InputError(
            "the last transaction is not committed: nothing of it is stored",
            "add `commit` at the end, or leave out `begin`: all statements are one transaction",
        )
    return rows


def _rolled_back(connection: DuckDBPyConnection) -> bool:
    """Roll back a transaction that is still open; return whether there was one."""
    try:
        connection.rollback()
    except duckdb.TransactionException:
        return False
    return True


def _registered(
    connection: DuckDBPyConnection, query: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Make tables of a connection of those parameters that are some; return the other values.

    A parameter that the query does not name is refused; case makes no difference.
    """
    tables = {name: value for name, value in parameters.items() if is_table(value)}
    values = {name: plain(value) for name, value in parameters.items() if name not in tables}
    statements = connection.extract_statements(query)
    known = {name.lower() for statement in statements for name in statement.named_parameters}
    for name in values:
        if name.lower() not in known:
            raise UsageError(
                f"the query has no `${name}`", "write it in the query, or leave it out"
            )
    for name in tables:
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query, re.IGNORECASE):
            raise UsageError(
                f"the query has no table `{name}`", f"read it with `from {name}`, or leave it out"
            )
    for name, value in tables.items():
        connection.register(name, given_frame(value, name))
    return values
