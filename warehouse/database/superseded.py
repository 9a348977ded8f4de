"""Cells of problems that a newer version of their estimator asks with other defaults.

Defaults may change with a version: the same names of model, system, GPUs and batch then make
another problem. A cell is superseded once a newer version has the whole space of a problem of the
same names under the same choices. Views do not show its rows. A problem that names no model or no
accelerator is superseded by no other.

The answer is stored in column ``is_superseded`` of table `cell`: a view that compared the names
would take longer to plan, in each query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.registry import all_estimators
from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUPERSEDED = "is_superseded"
"""Column of table `cell`."""

NAMED_BY = ("model", "accelerator")
"""Columns that a problem must have to be the same question in each version."""

NAMES = (
    *NAMED_BY,
    *("num_layers", "hidden_size", "seq_len", "nvlink_size", "num_gpus", "num_clusters"),
    *("global_batch_size", "dataset_tokens", "framework", "profile", "precision"),
    "source_version",
)
"""Columns of a problem that a question gives, not the defaults of a version."""


def mark(connection: DuckDBPyConnection) -> None:
    """Set the column in each cell; call it in the transaction that stores or deletes cells."""
    estimators = all_estimators()
    columns = {name for estimator in estimators for name in estimator.problem_columns}
    if not columns >= {*NAMED_BY}:
        return
    choices = dict.fromkeys(name for each in estimators for name in each.choice_columns)
    asked = [
        *(f"cell.{quoted(n)}" for n in ("estimator", "relation", "variant", *choices)),
        *(f"problem.{quoted(name)}" for name in NAMES if name in columns),
    ]
    named = " and ".join(f"problem.{quoted(name)} is not null" for name in NAMED_BY)
    connection.execute(f"""\
update cell set {SUPERSEDED} = found.is_older
from (
    select
        cell.cell_id,
        {named} and cell.estimator_version < coalesce(
            max(cell.estimator_version) filter (where cell.kept = '{{}}')
            over (partition by {", ".join(asked)}),
            0
        ) as is_older
    from cell
    inner join problem on cell.problem_id = problem.problem_id
) as found
where
    cell.cell_id = found.cell_id
    and coalesce(cell.{SUPERSEDED}, false) <> found.is_older""")
