"""Estimates of published measurements, each for exactly the measured configuration.

Other published steps leave choices open, which studies sweep. A row of view
``published_measurement`` is complete, so it is evaluated as it is and stored like an evaluated
file. Table ``published_estimate`` has the layout into which an estimator resolved the row, or the
reason why it refused it, and the interval of every published step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import Problem, variant_name
from estimators.inputs import records
from warehouse.calibrate.published import ROW, published_intervals, published_steps
from warehouse.database.sink import arrow_table, transaction
from warehouse.database.sql_text import registered
from warehouse.database.tables import MEASUREMENTS, PUBLISHED_ESTIMATE_TABLE
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.sweep.record import evaluated_study, store_evaluated

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Array, Catalog
    from estimators.estimator import Estimator
    from warehouse.evaluate.inputs import Resolved


@dataclass(frozen=True)
class PublishedReport:
    """The outcome: measurements evaluated, measurements refused, and cells that were new."""

    estimator: str
    num_rows: int
    num_refused: int
    num_new_cells: int


def store_published(
    connection: DuckDBPyConnection, estimator: Estimator, catalog: Catalog
) -> PublishedReport:
    """Evaluate every published step; store the estimates of the measurements, all with intervals.

    Earlier estimates of this estimator are replaced; stored cells stay. An unpublished choice takes
    the estimator's default; the estimates of a row with such choices come from studies.
    """
    relation, mends = estimator.relations[0], frozenset(estimator.mends)
    frame = published_steps()
    resolved = resolve_rows(estimator, relation, frame, catalog, mends)
    is_measured = (frame["reference"] == MEASUREMENTS).to_numpy()
    complete = replace(resolved, is_good=resolved.is_good & is_measured)
    cells = cells_of(estimator, relation, complete.good, evaluate_rows(complete), mends)
    common = {
        "estimator": estimator.name,
        "variant": variant_name(mends, estimator.mends),
        "created_at": datetime.now(UTC).replace(tzinfo=None),
    }
    rows = [
        {**row, **common, "reference": reference, ROW: name}
        for row, reference, name in zip(
            _completed(resolved, complete.is_good), frame["reference"], frame[ROW], strict=True
        )
    ]
    with transaction(connection):
        study = evaluated_study(estimator, relation, mends, MEASUREMENTS, name=MEASUREMENTS)
        new = store_evaluated(connection, relation, cells, study)
        connection.execute("delete from published_estimate where estimator = ?", [estimator.name])
        with registered(connection, "incoming_estimates", arrow_table(rows)):
            connection.execute(
                "insert into published_estimate by name select * from incoming_estimates"
            )
    measured = int(is_measured.sum())
    return PublishedReport(estimator.name, measured, measured - int(complete.is_good.sum()), new)


def _completed(resolved: Resolved, is_complete: Array) -> list[dict[str, Any]]:
    """Return a record for each row: its interval, and its layout and problem or its refusal.

    A row that leaves a choice open is not complete: its estimate has no problem.
    """
    names = PUBLISHED_ESTIMATE_TABLE.columns
    rows: list[dict[str, Any]] = [dict.fromkeys(names) for _ in resolved.is_good]
    for refusal in resolved.refusals:
        if refusal.row is not None and rows[refusal.row]["refusal"] is None:
            reason = f"`{refusal.column}` {refusal.value} {refusal.reason}"
            rows[refusal.row]["refusal"] = reason
    good = np.flatnonzero(resolved.is_good).tolist()
    columns = resolved.good
    problems = records({name: columns[name] for name in resolved.estimator.problem_columns})
    layouts = records({name: columns[name] for name in names if name in columns})
    for row, problem, layout in zip(good, problems, layouts, strict=True):
        if is_complete[row]:
            rows[row] |= {"problem_id": Problem(problem).id, **layout}
    for name, ends in published_intervals(resolved).items():
        for row, end in zip(good, ends.tolist(), strict=True):
            rows[row][name] = end
    return rows
