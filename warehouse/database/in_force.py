"""Which cells are in force, and their order among siblings: columns of `cell` that views read.

A newer version of an estimator replaces what an older one found:

- Of the same problem and choices, a cell is out of force once a newer version has the whole space.
  Cells of later versions with a part of the space stay in force.
- Defaults may change with a version: the same names of model, system, GPUs and batch then make
  another problem. A cell is *superseded* once a newer version has the whole space of a problem of
  the same names under the same choices. No other problem supersedes one that names no model or no
  accelerator.

Several cells in force can cover the same problem and choices: the whole search, a study that fixes
a degree, an evaluated file. They are *siblings*, ordered by newer version, whole space, id.

The answer is stored, because a view that computes it would take planning time in each query. A cell
out of force is no sibling: its `sibling` is NULL. View `cell_order` computes the answer again, and
a check compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.registry import ESTIMATORS, all_estimators
from warehouse.database.cache import cached
from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator

CELL_ORDER = "cell_order"
"""View with the correct marks."""

SUPERSEDED = "is_superseded"

MARKS = (SUPERSEDED, "sibling", "num_siblings", "first_sibling", "sibling_record")
"""Columns of table `cell` that follow from all cells."""

NAMED_BY = ("model", "accelerator")
"""Columns that must be present for two problems of different versions to be the same question."""

NAMES = (
    *NAMED_BY,
    *("num_layers", "hidden_size", "seq_len", "nvlink_size", "num_gpus", "num_clusters"),
    *("global_batch_size", "dataset_tokens", "framework", "profile", "precision"),
    "source_version",
)
"""Columns of a problem that come from the question, not from the defaults of a version."""


def mark(connection: DuckDBPyConnection) -> list[tuple[int, str, int]]:
    """Set the columns in each cell; call it in the transaction that stores or deletes cells.

    Returns
    -------
    list of tuple
        Id, relation and place among its siblings of each cell in force that is new, or whose
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
    if not columns >= {*NAMED_BY}:
        return "false"
    asked = [
        *(f"cell.{quoted(name)}" for name in shared),
        *(f"problem.{quoted(name)}" for name in NAMES if name in columns),
    ]
    named = " and ".join(f"problem.{quoted(name)} is not null" for name in NAMED_BY)
    return f"""{named} and cell.estimator_version < coalesce(
        max(cell.estimator_version) filter (where cell.kept = '{{}}')
        over (partition by {", ".join(asked)}),
        0
    )"""
