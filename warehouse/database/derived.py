"""What follows from the stored cells: marks, figures that rows share, facts, leading rows.

Call `refresh` in each transaction that stores or deletes cells: views read what it stores, and
`warehouse validate` names rows that are missing or wrong. The leading rows of a cell depend on its
earlier siblings: they are made again when the record of the cell or of a sibling changes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from warehouse.database.in_force import (
    CURRENT_CELL,
    current_view_name,
    mark,
    mark_repeated,
    relations_named,
    rows_sql,
    staging_name,
)
from warehouse.database.leading import CHANCE, FITS, MEMORY, LeadingRows, RowCounts
from warehouse.database.lineage import names_in
from warehouse.database.problem_facts import refresh_problems
from warehouse.database.sql_text import (
    IN_MAIN,
    joins_as_written,
    listed,
    quoted,
    registered,
    replaced,
)
from warehouse.database.tables import STORED_PROBLEM
from warehouse.database.views import CONFIGURATION_SOURCE, LEADING_ROW, UNRANKED, leading_sql

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation
    from estimators.estimator import Estimator

_FLOPS = "configuration_flops"
"""View of the configurations with all columns that leading rows have."""

_CANDIDATE = "leading_candidate"
"""Temporary table of rows among which all leading rows are."""

_HAS_LEADING = f"select 1 from duckdb_tables() where {IN_MAIN} and table_name = ?"

_BATCH_ROWS = 1_000_000
"""Rows that a search reads at once."""


def refresh(connection: DuckDBPyConnection, leading: LeadingRows | None = None) -> int:
    """Bring what follows from cells up to date; return the number of cells that changed.

    Call it in the transaction that changed the cells. `leading` has the leading rows of the cells
    that were just evaluated; those of other cells are searched.
    """
    refresh_problems(connection)
    ranks = connection.execute(_HAS_LEADING, [LEADING_ROW]).fetchall()  # some tests have no views
    filled = ["cell", LEADING_ROW] if ranks else ["cell"]
    exist = " or ".join(f"exists(from {table})" for table in filled)
    if connection.execute(f"select {exist}").fetchall() == [(False,)]:
        return 0
    changed = mark(connection)
    mark_repeated(connection, changed, leading.counts if leading is not None else ())
    store_figures(connection, changed)
    if ranks:
        with joins_as_written(connection):
            _refresh_leading(connection, changed, leading)
    return len(changed)


def rebuild(connection: DuckDBPyConnection) -> None:
    """Make everything again that follows from problems and cells."""
    connection.execute(f"delete from {STORED_PROBLEM}")
    connection.execute("update cell set sibling_record = null where sibling_record is not null")
    refresh(connection)


def store_figures(
    connection: DuckDBPyConnection, changed: Collection[tuple[int, str, int]]
) -> None:
    """Store the figures that all rows of a cell share with each changed cell, as of `mark`."""
    for estimator, relation in relations_named({name for _, name, _ in changed}):
        figures = estimator.step.cell_figures
        if not figures:
            continue
        ids = listed(cell for cell, name, _ in changed if name == relation.name)
        inputs = (
            *(f"problem.{quoted(name)}" for name in estimator.problem_columns),
            *(f"cell.{quoted(name)}" for name in estimator.choice_columns),
        )
        cells = connection.sql(
            f"select cell_id, {', '.join(inputs)} from cell"
            f" inner join problem on cell.problem_id = problem.problem_id where cell_id in ({ids})"
        ).to_arrow_table()
        columns = {n: cells[n].to_numpy() for n in cells.column_names}
        with np.errstate(all="ignore"):
            found = {name: formula(columns) for name, formula in figures.items()}
        _update_cells(connection, {"cell_id": columns["cell_id"], **found})


def _refresh_leading(
    connection: DuckDBPyConnection,
    changed: Collection[tuple[int, str, int]],
    leading: LeadingRows | None,
) -> None:
    """Find the leading rows of changed cells, and rank those of their problems again."""
    ids = listed(cell for cell, *_ in changed)
    problems = connection.execute(
        f"select problem_id from {CURRENT_CELL} where cell_id in ({ids}) union"
        f" select problem_id from {LEADING_ROW} anti join {CURRENT_CELL} using (cell_id)"
    ).fetchall()
    if not problems:
        return
    of_problems = f"problem_id in ({listed(problem for (problem,) in problems)})"
    connection.execute(
        f"create temp table {_CANDIDATE} as select {UNRANKED} from {LEADING_ROW}"
        f" semi join {CURRENT_CELL} using (cell_id)"
        f" where {of_problems} and cell_id not in ({ids})"
    )
    connection.execute(f"delete from {LEADING_ROW} where {of_problems}")
    staged = _staged(connection)
    counts: dict[int, RowCounts] = {
        cell: RowCounts() for cell, name, _ in changed if staging_name(name) not in staged
    }
    for estimator, relation in relations_named({name for _, name, _ in changed}):
        if staging_name(relation.name) not in staged:
            continue
        places = {cell: place for cell, name, place in changed if name == relation.name}
        if leading is not None and leading.relation == relation:
            # An earlier sibling may show some of the layouts: only the first shows all.
            known = {cell for cell in leading.counts if places.get(cell) == 1}
            _take(connection, estimator, leading, known)
            counts |= {cell: leading.counts[cell] for cell in known}
            places = {cell: place for cell, place in places.items() if cell not in known}
        if places:
            counts |= _search(connection, relation, places.keys())
    connection.execute(
        f"insert into {LEADING_ROW} by name"
        f" {leading_sql(f'from {_CANDIDATE}')} order by cell_id, rank_in_cell"
    )
    connection.execute(f"drop table temp.{_CANDIDATE}")
    _store_counts(connection, counts)


def _staged(connection: DuckDBPyConnection) -> frozenset[str]:
    query = f"select sql from duckdb_views() where {IN_MAIN} and view_name = ?"
    [(sql,)] = connection.execute(query, [CONFIGURATION_SOURCE]).fetchall()
    return names_in(sql).relations


def _only(relation: Relation) -> dict[str, str]:
    """Return the union of all configurations with one relation: planning all takes longer."""
    others = f"select {UNRANKED} from {LEADING_ROW} where false"
    staging = quoted(staging_name(relation.name))
    union = f"from {staging} union all by name select * exclude (step_tokens) from ({others})"
    return {CONFIGURATION_SOURCE: union}


def _take(
    connection: DuckDBPyConnection,
    estimator: Estimator,
    leading: LeadingRows,
    cells: Collection[int],
) -> None:
    """Make the leading rows of those of `cells` that were just evaluated candidates."""
    rows = leading.columns()
    if not rows:
        return
    stored = rows_sql(estimator, leading.relation, "leading_rows")
    current = f"{stored} and leading_rows.cell_id in ({listed(cells)})"
    with (
        registered(connection, "leading_rows", _table(rows)),
        replaced(connection, {current_view_name(leading.relation): current}),
        replaced(connection, _only(leading.relation)),
    ):
        connection.execute(f"insert into {_CANDIDATE} by name from {_FLOPS}")


def _search(
    connection: DuckDBPyConnection, relation: Relation, cells: Collection[int]
) -> dict[int, RowCounts]:
    """Make the leading rows of stored cells candidates; return the numbers of their layouts.

    Rows as fast as a leading one, with as much memory, become candidates as well.
    """
    leading = LeadingRows(relation, cells)
    of_cells = f"cell_id in ({listed(cells)})"
    with replaced(connection, _only(relation)):
        shown = connection.sql(
            f"select cell_id, step_seconds, coalesce({MEMORY}, 0) as {MEMORY}, "
            f"{FITS} is distinct from false as {FITS}, coalesce({CHANCE}, 1e0) as {CHANCE} "
            f"from {_FLOPS} where {of_cells}"
        )
        for batch in shown.to_arrow_reader(_BATCH_ROWS):
            columns = {c: batch[c].to_numpy(zero_copy_only=False) for c in batch.schema.names}
            ids = columns["cell_id"]
            starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
            for start, end in pairwise([*starts, len(ids)]):
                leading.add(int(ids[start]), {n: c[start:end] for n, c in columns.items()})
        if rows := leading.columns():
            with registered(connection, "leading_rows", _table(rows)):
                connection.execute(
                    f"insert into {_CANDIDATE} by name select layout.* from {_FLOPS} as layout"
                    " semi join leading_rows on layout.cell_id = leading_rows.cell_id"
                    " and layout.step_seconds = leading_rows.step_seconds"
                    f" and coalesce(layout.{MEMORY}, 0) = leading_rows.{MEMORY} where {of_cells}"
                )
    return leading.counts


def _store_counts(connection: DuckDBPyConnection, counts: Mapping[int, RowCounts]) -> None:
    columns = {
        "cell_id": list(counts),
        "num_layouts": [cell.num_layouts for cell in counts.values()],
        "num_fitting_layouts": [cell.num_fitting_layouts for cell in counts.values()],
    }
    _update_cells(connection, columns)


def _update_cells(connection: DuckDBPyConnection, columns: Mapping[str, Any]) -> None:
    """Set columns of the cells in column `cell_id`."""
    changes = ", ".join(f"{n} = found.{n}" for n in map(quoted, columns) if n != "cell_id")
    with registered(connection, "found_cells", _table(columns)):
        connection.execute(
            f"update cell set {changes} from found_cells as found"
            " where cell.cell_id = found.cell_id"
        )


def _table(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns as a table; NaN is NULL."""
    import pyarrow as pa  # readers do not wait for it

    return pa.table({n: pa.array(values, from_pandas=True) for n, values in columns.items()})
