"""Marks the rows that an earlier sibling of their cell has already.

Views show each layout once, from the first sibling that has it. The marks are stored in the rows,
because a view that compares siblings reads a fact table twice, in a union that DuckDB 1.5 cannot
stream. The rows of a cell out of force keep their marks: no view shows them, and they are marked
again when the cell is in force again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from estimators.registry import get
from warehouse.database.current import CURRENT_CELL
from warehouse.database.sql_text import listed, quoted
from warehouse.database.summaries import summaries
from warehouse.database.tables import IS_REPEATED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator, Relation


def mark_repeated(
    connection: DuckDBPyConnection,
    cells: Iterable[tuple[int, str, int]],
    new: Collection[int] = (),
) -> None:
    """Mark the rows of cells again; call it in the transaction that changed their siblings.

    Parameters
    ----------
    cells
        Id, relation and place among its siblings of each cell.
    new
        Cells whose rows were just stored. A new cell without earlier siblings has no marks.
    """
    marked, later = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for cell, name, sibling in cells:
        if sibling > 1:
            later[name].add(cell)
        if cell not in new:
            marked[name].add(cell)
    for _, relation in relations_named({*marked, *later}):
        table = quoted(relation.table)
        if marked[relation.name]:
            connection.execute(
                f"update {table} set {IS_REPEATED} = false"
                f" where {IS_REPEATED} and cell_id in ({listed(marked[relation.name])})"
            )
        if later[relation.name]:
            connection.execute(_mark_sql(relation, later[relation.name]))


def _mark_sql(relation: Relation, cells: Collection[int]) -> str:
    """Return the statement that marks the rows of later siblings."""
    table, ids = quoted(relation.table), listed(cells)
    same = "".join(
        f" and later.{quoted(key)} is not distinct from earlier.{quoted(key)}"
        for key in relation.keys
    )
    rows = (
        f"select {table}.rowid as place, {table}.*, {CURRENT_CELL}.first_sibling,"
        f" {CURRENT_CELL}.sibling from {table} inner join {CURRENT_CELL}"
        f" on {table}.cell_id = {CURRENT_CELL}.cell_id"
    )
    siblings = (
        f"select cell_id from {CURRENT_CELL} where first_sibling in"
        f" (select first_sibling from {CURRENT_CELL} where cell_id in ({ids}))"
    )
    return (
        f"update {table} set {IS_REPEATED} = true where rowid in ("
        f"select later.place from ({rows} where {table}.cell_id in ({ids})) as later"
        f" semi join ({rows} where {table}.cell_id in ({siblings})) as earlier"
        " on later.first_sibling = earlier.first_sibling"
        f" and later.sibling > earlier.sibling{same})"
    )


def relations_named(names: set[str]) -> list[tuple[Estimator, Relation]]:
    """Return the named relations with their estimators; only these are imported."""
    return [
        (estimator, relation)
        for summary in summaries()
        if not names.isdisjoint(summary.relations)
        for estimator in [get(summary.name)]
        for relation in estimator.relations
        if relation.name in names
    ]
