"""SQL of the `current_*` views: stored rows with the columns of their cell and problem.

The views show cells in force (`in_force`). Several of these can cover the same problem and choices;
the views show each layout once, from the first sibling that has it. Without siblings this costs one
scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warehouse.database.in_force import SUPERSEDED
from warehouse.database.sql_text import literal, quoted

if TYPE_CHECKING:
    from estimators.contract import Estimator, Relation

CURRENT_CELL = "current_cell"
LEADING = "leading_"
"""Begins the names of views over leading rows."""
EVALUATED = "rows"
"""Key in `kept` of a cell whose layouts come from a file: no search found them."""
FACT_COUNT = "fact_count"

_SHOWN = ("cell_id", "problem_id", "estimator", "estimator_version", "mends", "variant", "kept")
"""Columns of a cell's record that the views show with its choices."""


def current_view_name(relation: Relation) -> str:
    """Return the name of the view over a relation's table."""
    return f"current_{relation.name}"


def current_cell_sql() -> str:
    """Return the SELECT of the cells in force, with the position of each among its siblings."""
    return f"select * exclude ({SUPERSEDED}) from cell where sibling is not null"


def current_view_sql(estimator: Estimator, relation: Relation) -> str:
    """Return the SELECT of a relation's rows with the columns of their cell and problem."""
    table = quoted(relation.table)
    own = f"{CURRENT_CELL}.relation = {literal(relation.name)}"
    same = "".join(
        f"\n    and {table}.{quoted(key)} is not distinct from earlier.{quoted(key)}"
        for key in relation.keys
    )
    return f"""\
{first_siblings_sql(estimator, relation)}
union all
{_rows_sql(estimator, relation)}
anti join (
    select {table}.*, {CURRENT_CELL}.first_sibling, {CURRENT_CELL}.sibling
    from {table}
    inner join {CURRENT_CELL} on {table}.cell_id = {CURRENT_CELL}.cell_id
    where {own} and {CURRENT_CELL}.num_siblings > 1
) as earlier
    on {CURRENT_CELL}.first_sibling = earlier.first_sibling
    and {CURRENT_CELL}.sibling > earlier.sibling{same}
where {own} and {CURRENT_CELL}.sibling > 1"""


def first_siblings_sql(estimator: Estimator, relation: Relation) -> str:
    """Return the part of `current_view_sql` for first siblings: all, if no cell has siblings."""
    own = f"{CURRENT_CELL}.relation = {literal(relation.name)}"
    # Always true. It keeps the branches apart: DuckDB 2 would put the cells of both into one CTE
    # around the union, and the filter of a join above would not reach the scan of the rows.
    alone = f"{own} and length({CURRENT_CELL}.relation) > 0"
    return f"""\
{_rows_sql(estimator, relation)}
where {alone} and {CURRENT_CELL}.sibling = 1"""


def later_siblings_sql(relation: Relation) -> str:
    """Return the SELECT of a relation's cells in force that may repeat layouts of others."""
    return f"""\
    select {CURRENT_CELL}.cell_id
    from {CURRENT_CELL}
    where {CURRENT_CELL}.relation = {literal(relation.name)} and {CURRENT_CELL}.sibling > 1"""


def _rows_sql(estimator: Estimator, relation: Relation, stored_in: str = "") -> str:
    """Return the SELECT of stored rows, by default of all, joined with their cell and problem."""
    table = quoted(stored_in or relation.table)
    columns = [
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in _SHOWN),
        *(f"problem.{quoted(name)}" for name in estimator.problem_columns),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in estimator.choice_columns),
        *(f"{table}.{quoted(name)}" for name in relation.stored),
    ]
    return f"""\
select {", ".join(columns)}
from {table}
inner join {CURRENT_CELL} on {table}.cell_id = {CURRENT_CELL}.cell_id
inner join problem on {CURRENT_CELL}.problem_id = problem.problem_id"""


def leading_view_name(relation: Relation) -> str:
    """Return the name of the view over a relation's leading rows."""
    return f"{LEADING}{relation.name}"


def staging_name(relation: Relation) -> str:
    """Return the name of the staging view of a relation that keeps leading rows."""
    return f"stg_{relation.name}"


def leading_staging_name(relation: Relation) -> str:
    """Return the name of the staging view over a relation's leading rows."""
    return f"{LEADING}{staging_name(relation)}"


def leading_view_sql(estimator: Estimator, relation: Relation) -> str:
    """Return the SELECT of a relation's leading rows with the columns of their cell and problem.

    Siblings need no second part: a layout is a leading row only in its first sibling.
    """
    return f"""\
{_rows_sql(estimator, relation, relation.leading_table)}
where {CURRENT_CELL}.relation = {literal(relation.name)}"""


def fact_count_sql(estimators: Sequence[Estimator]) -> str:
    """Return the SELECT that counts the rows of each cell in each fact table."""
    counts = [
        f"select {literal(relation.name)} as relation, cell_id, count(*) as num_rows\n"
        f"from {quoted(relation.table)}\ngroup by cell_id"
        for estimator in estimators
        for relation in estimator.relations
    ]
    return "\nunion all\n".join(counts)
