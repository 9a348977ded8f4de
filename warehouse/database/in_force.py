"""Which cells are in force, which layouts they show, and the views of their rows.

A newer version of an estimator replaces what an older one found:

- Of the same problem and choices, a cell is out of force once a newer version has the whole space.
  Cells of later versions with a part of the space stay in force.
- Defaults may change with a version: the same names of model, system, GPUs and batch then make
  another problem. A cell is *superseded* once a newer version has the whole space of a problem of
  the same names under the same choices. No other problem supersedes one that names no model or no
  accelerator.

Several cells in force can cover the same problem and choices: the whole search, a study that fixes
a degree, an evaluated file. They are *siblings*, ordered by newer version, whole space, id.

Both answers are stored, as columns of `cell` and as marks of the rows that an earlier sibling has
already. A view that computed them would take planning time in each query, and would read a fact
table twice, in a union that DuckDB 1.5 cannot stream. A cell out of force is no sibling: its
`sibling` is NULL, and its rows keep their marks, which no view shows. View `cell_order` computes
the order again, and a check compares both.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from estimators.registry import ESTIMATORS, all_estimators, get
from warehouse.database.cache import cached
from warehouse.database.sql_text import listed, literal, quoted
from warehouse.database.summaries import summaries
from warehouse.database.tables import IS_REPEATED, MARKS, ROW_IDS, SUPERSEDED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation
    from estimators.estimator import Estimator

CELL_ORDER = "cell_order"
"""View with the correct marks."""

CURRENT_CELL = "current_cell"
EVALUATED = "rows"
"""Key in column `kept` of a cell whose layouts come from a file: no search found them."""
FACT_COUNT = "fact_count"

_SHOWN = ("estimator", "estimator_version", "mends", "variant", "is_default_variant", "kept")
"""Columns of a cell's record that the views show with its choices."""

_NAMED_BY = ("model", "accelerator")
"""Columns that must be present for two problems of different versions to be the same question."""

_NAMES = (
    *_NAMED_BY,
    *("num_layers", "hidden_size", "seq_len", "nvlink_size", "num_gpus", "num_clusters"),
    *("global_batch_size", "dataset_tokens", "framework", "profile", "precision"),
    "source_version",
)
"""Columns of a problem that come from the question, not from the defaults of a version."""


def mark(connection: DuckDBPyConnection) -> list[tuple[int, str, int]]:
    """Set the marks of each cell; call it in the transaction that stores or deletes cells.

    Returns id, relation and place among its siblings of each cell in force that is new, or whose
    earlier siblings changed.
    """
    # a sweep imports its own estimator alone
    order = cached("order", tuple(ESTIMATORS), lambda: order_sql(all_estimators()))
    connection.execute(f"create temp table cell_mark as {order}")
    changed = connection.execute(
        "select cell_id, cell.relation, cell_mark.sibling from cell_mark inner join cell"
        " using (cell_id) where cell_mark.sibling is not null"
        " and cell_mark.sibling_record is distinct from cell.sibling_record"
    ).fetchall()
    connection.execute(mark_sql("cell_mark"))
    connection.execute("drop table temp.cell_mark")
    return changed


def mark_sql(found: str) -> str:
    """Return the statement that sets the columns where they differ from those of a relation."""
    assigned = ", ".join(f"{name} = found.{name}" for name in MARKS)
    differs = " or ".join(f"cell.{name} is distinct from found.{name}" for name in MARKS)
    return (
        f"update cell set {assigned} from {found} as found"
        f" where cell.cell_id = found.cell_id and ({differs})"
    )


def order_sql(estimators: Sequence[Estimator]) -> str:
    """Return the SELECT of each cell with its marks."""
    choices = dict.fromkeys(name for each in estimators for name in each.choice_columns)
    shared = ("estimator", "relation", "variant", *choices)
    question = ", ".join(f"asked.{quoted(name)}" for name in ("problem_id", *shared))
    return f"""\
with asked as (
    select cell.*, {_superseded(estimators, shared)} as is_older
    from cell
    left join problem on cell.problem_id = problem.problem_id
),

in_force as (
    select
        asked.cell_id,
        row_number() over siblings as sibling,
        count(*) over (partition by {question}) as num_siblings,
        min(asked.cell_id) over (partition by {question}) as first_sibling,
        string_agg(asked.cell_id || ' ' || epoch_us(asked.evaluated_at), ', ')
            over siblings as sibling_record
    from (
        select *
        from asked
        where not is_older
        qualify estimator_version >= coalesce(
            max(estimator_version) filter (where kept = '{{}}') over (partition by {question}), 0
        )
    ) as asked
    window siblings as (
        partition by {question}
        order by asked.estimator_version desc, asked.kept <> '{{}}', asked.cell_id
        rows between unbounded preceding and current row
    )
)

select
    asked.cell_id,
    asked.is_older as {SUPERSEDED},
    in_force.sibling,
    in_force.num_siblings,
    in_force.first_sibling,
    in_force.sibling_record
from asked
left join in_force on asked.cell_id = in_force.cell_id"""


def _superseded(estimators: Sequence[Estimator], shared: Sequence[str]) -> str:
    """Return the condition that a newer version has a problem of the same names."""
    columns = {name for each in estimators for name in each.problem_columns}
    if not columns >= {*_NAMED_BY}:
        return "false"
    asked = [
        *(f"cell.{quoted(name)}" for name in shared),
        *(f"problem.{quoted(name)}" for name in _NAMES if name in columns),
    ]
    named = " and ".join(f"problem.{quoted(name)} is not null" for name in _NAMED_BY)
    return f"""{named} and cell.estimator_version < coalesce(
        max(cell.estimator_version) filter (where cell.kept = '{{}}')
        over (partition by {", ".join(asked)}),
        0
    )"""


def mark_repeated(
    connection: DuckDBPyConnection,
    cells: Iterable[tuple[int, str, int]],
    new: Collection[int] = (),
) -> None:
    """Mark again the rows of cells that an earlier sibling has already.

    Call it in the transaction that changed their siblings, with the result of `mark`. `new` are
    cells whose rows were just stored: without earlier siblings they have no marks.
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
            connection.execute(_mark_rows_sql(relation, later[relation.name]))


def _mark_rows_sql(relation: Relation, cells: Collection[int]) -> str:
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

    The table has the columns of the relation's fact table.
    """
    table = quoted(table)
    columns = [
        *(f"{table}.{quoted(name)}" for name in ROW_IDS),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in _SHOWN),
        *(f"problem.{quoted(name)}" for name in estimator.problem_columns),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in estimator.choice_columns),
        *(f"{CURRENT_CELL}.{quoted(name)}" for name in estimator.step.cell_figures),
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
