"""What a database has otherwise than a new one of the same package.

Fingerprints say what a database was made from. Whoever opens it with another program can change it
all the same: drop a view, replace a macro, change a price. A new database, which the cache has,
says what there should be; its digests are kept in the cache, so that comparing takes milliseconds.

Rows that follow from others are compared as far as that takes milliseconds, too: each cell in force
and each problem must have its own, and no other. `warehouse validate` finds wrong values in them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.cached import cached
from warehouse.database.current import CURRENT_CELL
from warehouse.database.differing import Differences
from warehouse.database.empty import prepared_file
from warehouse.database.file_format import CONFIG, duckdb_version
from warehouse.database.in_force import CELL_ORDER, MARKS
from warehouse.database.meta import META, reference_names
from warehouse.database.sql_text import literal, quoted
from warehouse.database.tables import STORED_PRICE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from duckdb import DuckDBPyConnection

_EXCLUDED = re.compile(r"\bEXCLUDE \(([^()]*)\)")
"""Names that a star leaves out: a set, which DuckDB writes in another order each time."""

_FIELDS = "list_sort(string_split_regex(data_type, '[(),] *'))"
"""A type whose fields may have any order: a struct of all columns of a table has that of the table,
and columns that an update adds come last."""


def wanted() -> dict[str, Any] | None:
    """Return digests of a new database, and its tables of leading rows; None without a cache."""
    try:
        found = cached("contents", duckdb_version(), _digests_now)
    except duckdb.IOException:  # another process removed the new database from the cache
        return None
    return found if isinstance(found, dict) else None


def _digests_now() -> dict[str, Any] | None:
    from estimators.registry import all_estimators

    path = prepared_file()
    if path is None:
        return None
    kept = [r for each in all_estimators() for r in each.relations if r.keeps_leading]
    with duckdb.connect(str(path), read_only=True, config=CONFIG) as connection:
        # stored prices follow from reference tables alone: those of a new database are right
        followed = [*reference_names(connection), STORED_PRICE.name]
        return {
            **_contents(connection, followed),
            "leading": {relation.name: relation.leading_table for relation in kept},
        }


def differences(connection: DuckDBPyConnection, wanted: Mapping[str, Any]) -> Differences:
    """Return what differs from the digests `wanted`.

    DuckDB must have read the views from the file: it writes the text of a view that was just
    created in another way.
    """
    found = _contents(connection, wanted["references"])
    kinds = ("views", "macros", "table_macros", "references")
    views, macros, table_macros, references = (
        frozenset(n for n, digest in wanted[kind].items() if found[kind].get(n) != digest)
        for kind in kinds
    )
    # a table may have columns that only an older version stored
    tables = (
        table
        for table, columns in wanted["tables"].items()
        if not columns.items() <= found["tables"].get(table, {}).items()
    )
    return Differences(views | macros | table_macros, frozenset(tables), references)


def _contents(connection: DuckDBPyConnection, references: Collection[str]) -> dict[str, Any]:
    """Return digests of everything but rows of results, as JSON gives it back."""
    own = "not internal and database_name = current_database()"
    columns: dict[str, dict[str, str]] = {}
    for table, name, digest in connection.execute(
        "select table_name, column_name, hash(data_type, comment) from duckdb_columns() "
        f"where {own} and table_name in (select table_name from duckdb_tables() where {own})"
        f" union all select table_name, '', hash(comment) from duckdb_tables() where {own}"
    ).fetchall():
        columns.setdefault(table, {})[name] = str(digest)
    described = connection.execute(
        "select 'view', view_name, sql, hash(comment, columns) from duckdb_views() inner join ("
        f"select table_name, sum(hash(column_name, {_FIELDS}, comment)) as columns "
        f"from duckdb_columns() where {own} group by table_name"
        f") as described on view_name = table_name where {own}"
        " union all "
        "select function_type, function_name, "
        "string_agg(macro_definition, ';' order by function_oid), "
        "sum(hash(parameters, comment)) "
        f"from duckdb_functions() where {own} group by function_type, function_name"
    ).fetchall()
    # names of views, macros and table macros are separate: a user's macro may share one
    texts: dict[str, dict[str, str]] = {"view": {}, "macro": {}, "table_macro": {}}
    for kind, name, text, digest in described:
        texts[kind][name] = f"{digest} {_digest(text)}"
    present = [name for name in references if name in columns]
    rows = connection.execute(
        " union all ".join(
            f"select {literal(name)}, count(*) || ' ' || coalesce(sum(hash(rows)), 0) "
            f"from {quoted(name)} as rows"
            for name in present
        )
        or "select '', '' where false"
    ).fetchall()
    digests = {name: f"{digest} {columns[name]}" for name, digest in rows}
    named = {*references, META}
    return {
        "views": texts["view"],
        "macros": texts["macro"],
        "table_macros": texts["table_macro"],
        "references": digests,
        "tables": {name: each for name, each in columns.items() if name not in named},
    }


def _digest(text: str) -> str:
    """Return the digest of a view's text as DuckDB writes it."""
    ordered = _EXCLUDED.sub(lambda found: str(sorted(found[1].split(", "))), text)
    return blake2b(ordered.encode(), digest_size=16).hexdigest()


def lacks_rows(connection: DuckDBPyConnection, leading: Mapping[str, str]) -> bool:
    """Return whether rows that follow from others are missing, doubled, or of former cells.

    Parameters
    ----------
    leading
        Relation -> its table of leading rows.
    """
    differs = " or ".join(f"cell.{m} is distinct from {CELL_ORDER}.{m}" for m in MARKS)
    best = f"from {CURRENT_CELL} inner join stored_best using (cell_id, sibling_record)"
    faults = [
        f"from cell inner join {CELL_ORDER} using (cell_id) where {differs}",
        f"from {CURRENT_CELL} anti join stored_best using (cell_id, sibling_record)",
        f"from stored_best anti join {CURRENT_CELL} using (cell_id, sibling_record)",
        "from stored_best group by cell_id having count(*) > 1",
        "from problem anti join stored_problem using (problem_id)",
        "from stored_problem anti join problem using (problem_id)",
        "from stored_problem group by problem_id having count(*) > 1",
        f"from stored_front anti join {CURRENT_CELL} using (cell_id)",
        f"{best} anti join stored_front using (problem_id) where num_fitting_layouts > 0",
    ]
    for relation, table in leading.items():
        faults += [
            f"from {quoted(table)} anti join stored_best using (cell_id)",
            f"{best} anti join {quoted(table)} as fast on stored_best.cell_id = fast.cell_id "
            "and stored_best.step_seconds = fast.step_seconds "
            f"where relation = {literal(relation)} and num_fitting_layouts > 0",
        ]
    return any(
        connection.execute(f"select exists(select 1 {fault})").fetchall() == [(True,)]
        for fault in faults
    )
