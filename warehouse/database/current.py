"""SQL of the `current_*` views: stored rows with the columns of their cell and problem.

The views show cells in force (`in_force`). Several of these can cover the same problem and choices;
the views show each layout once, from the first sibling that has it: the others are marked
(`repeated`). So a view is one scan without a union, which DuckDB 1.5 could not stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warehouse.database.in_force import SUPERSEDED
from warehouse.database.sql_text import literal, quoted
from warehouse.database.tables import IS_REPEATED, ROW_IDS

if TYPE_CHECKING:
    from estimators.contract import Estimator, Relation

CURRENT_CELL = "current_cell"
EVALUATED = "rows"
"""Key in `kept` of a cell whose layouts come from a file: no search found them."""
FACT_COUNT = "fact_count"

_SHOWN = ("estimator", "estimator_version", "mends", "variant", "is_default_variant", "kept")
"""Columns of a cell's record that the views show with its choices."""


def current_view_name(relation: Relation) -> str:
    """Return the name of the view over a relation's table."""
    return f"current_{relation.name}"


def current_cell_sql() -> str:
    """Return the SELECT of the cells in force, with the position of each among its siblings."""
    return f"select * exclude ({SUPERSEDED}) from cell where sibling is not null"


def current_view_sql(estimator: Estimator, relation: Relation) -> str:
    """Return the SELECT of a relation's rows with the columns of their cell and problem."""
    return f"""\
{rows_sql(estimator, relation, relation.table)}
    and {quoted(relation.table)}.{IS_REPEATED} is distinct from true"""


def rows_sql(estimator: Estimator, relation: Relation, table: str) -> str:
    """Return the SELECT of the rows of a table, joined with their cell in force and problem.

    Parameters
    ----------
    table
        Name of a table with the columns of the relation's fact table.
    """
    table = quoted(table)
    columns = [
        *(f"{table}.{quoted(name)}" for name in ROW_IDS),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in _SHOWN),
        *(f"problem.{quoted(name)}" for name in estimator.problem_columns),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in estimator.choice_columns),
        *(f"{table}.{quoted(name)}" for name in relation.stored),
    ]
    return f"""\
select {", ".join(columns)}
from {table}
inner join {CURRENT_CELL} on {table}.cell_id = {CURRENT_CELL}.cell_id
inner join problem on {CURRENT_CELL}.problem_id = problem.problem_id
where {CURRENT_CELL}.relation = {literal(relation.name)}"""


def staging_name(relation: str) -> str:
    """Return the name of the staging view of a relation."""
    return f"stg_{relation}"


def fact_count_sql(estimators: Sequence[Estimator]) -> str:
    """Return the SELECT that counts the rows of each cell and problem in each fact table."""
    counts = [
        f"select {literal(relation.name)} as relation, cell_id, problem_id, count(*) as num_rows\n"
        f"from {quoted(relation.table)}\ngroup by cell_id, problem_id"
        for estimator in estimators
        for relation in estimator.relations
    ]
    return "\nunion all\n".join(counts)
