"""Estimates of the published measurements, each of exactly the configuration that was measured.

Other tables of published steps leave choices open, which studies sweep. A row of table
``published_measurement`` says all that it needs, so it is evaluated as it is and stored like an
evaluated file. Table ``published_estimate`` has the layout that an estimator made of it, or its
reason to refuse it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from estimators.contract import Problem, variant_name
from estimators.inputs import records
from warehouse.calibrate.published import MEASUREMENTS, ROW, published_steps
from warehouse.database.sink import arrow_table, registered, transaction
from warehouse.database.tables import PUBLISHED_ESTIMATE_TABLE
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.sweep.record import store_batch

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Catalog, Estimator
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
    """Evaluate every published measurement and store the estimates, with the rows they belong to.

    What an earlier run stored of this estimator is replaced; cells that are stored stay.
    """
    relation, mends = estimator.relations[0], frozenset(estimator.mends)
    frame = published_steps().filter(pl.col("reference") == MEASUREMENTS)
    resolved = resolve_rows(estimator, relation, frame, catalog, mends)
    cells = cells_of(estimator, relation, resolved.good, evaluate_rows(resolved), mends)
    common = {
        "reference": MEASUREMENTS,
        "estimator": estimator.name,
        "variant": variant_name(mends, estimator.mends),
        "created_at": datetime.now(UTC).replace(tzinfo=None),
    }
    rows = [{**row, **common} for row in _completed(resolved, frame[ROW].to_list())]
    with transaction(connection):
        new = store_batch(
            *(connection, estimator, relation, cells, mends, Path(MEASUREMENTS)),
            study=MEASUREMENTS,
        )
        connection.execute(
            "delete from published_estimate where reference = ? and estimator = ?",
            [MEASUREMENTS, estimator.name],
        )
        with registered(connection, "incoming_estimates", arrow_table(rows)):
            connection.execute(
                "insert into published_estimate by name select * from incoming_estimates"
            )
    return PublishedReport(
        estimator.name, len(rows), sum(row["refusal"] is not None for row in rows), new
    )


def _completed(resolved: Resolved, names: list[str]) -> list[dict[str, Any]]:
    """Return a record for each row: the completed layout and its problem, or why it is refused."""
    reasons: dict[int, str] = {}
    for refusal in resolved.refusals:
        if refusal.row is not None:
            text = f"`{refusal.column}` {refusal.value} {refusal.reason}"
            reasons.setdefault(refusal.row, text)
    columns = resolved.good
    kept = {name: columns[name] for name in PUBLISHED_ESTIMATE_TABLE.columns if name in columns}
    problems = records({name: columns[name] for name in resolved.estimator.problem_columns})
    layouts = iter(zip(problems, records(kept), strict=True))
    found = []
    for row, name in enumerate(names):
        record = dict.fromkeys(PUBLISHED_ESTIMATE_TABLE.columns)
        record |= {ROW: name, "refusal": reasons.get(row)}
        if resolved.is_good[row]:
            problem, layout = next(layouts)
            record |= {"problem_id": Problem(problem).id, **layout}
        found.append(record)
    return found
