"""Published steps, as evaluated in a database, and how they change without a term of the model.

Usage: ``python -m benchmarks.published DATABASE`` prints the table of docs/accuracy.md; DATABASE
is one that `warehouse quickstart` made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from warehouse.database.catalog import packaged_catalog

GROUPS = (
    ("table 1", "published_megatron_scaling", "all"),
    ("table 5", "published_megatron_recompute", None),
    ("PTD-P", "published_megatron_training_time", "PTD-P"),
    ("H100", "published_megatron_h100_scaling", "all"),
)
"""Column of the table, reference table, its group (None: all)."""

NO_LATENCY = dict.fromkeys(
    ("collective_seconds", "nvlink_latency_seconds", "network_latency_seconds"), 0.0
)
NO_OVERLAP = {
    f"{name}_overlap_fraction": 0.0
    for name in ("gradient", "parameter", "tensor", "context", "expert", "pipeline")
}

TERMS: tuple[tuple[str, dict[str, Any] | str], ...] = (
    ("nothing: the model as it is", {}),
    ("waves of tiles (`num_sms` 1)", {"num_sms": 1.0}),
    ("prologue and epilogue of tiles (`gemm_half_depth` 0)", {"gemm_half_depth": 0.0}),
    ("both of these", {"num_sms": 1.0, "gemm_half_depth": 0.0}),
    ("all memory traffic (infinite bandwidth)", {"hbm_bytes_per_second": 1e30}),
    ("separate, uncausal attention (`attention` flash)", {"attention": "flash"}),
    ("elementwise work, where not recomputed", "elementwise_seconds"),
    ("embedding, output layer and loss", "vocabulary_seconds"),
    ("recomputation", "recompute_seconds"),
    ("bubble", "bubble_seconds"),
    ("transfers between stages", "pipeline_comm_seconds"),
    ("tensor-parallel collectives", "tensor_comm_seconds"),
    ("exposed exchange of gradients and weights", "data_comm_seconds"),
    ("optimizer", "optimizer_seconds"),
    ("adding up gradients", "accumulation_seconds"),
    ("launches (`launch_seconds` 0)", {"launch_seconds": 0.0}),
    ("latencies and fixed costs of collectives", NO_LATENCY),
    ("multiprocessors taken by hidden transfers", {"communication_sm_fraction": 0.0}),
    ("all overlap", NO_OVERLAP),
)
"""Part that is left out -> changed inputs, or the output to subtract from the step."""


def published_rows(database: Path) -> list[dict[str, Any]]:
    """Return every published step with the estimate, its parts, and all inputs of it."""
    query = """
        select problem.*, megatron_comparison.*, cell.attention
        from megatron_comparison
        inner join problem using (problem_id)
        inner join cell on megatron_comparison.cell_id = cell.cell_id
        where megatron_comparison.estimator = 'training_step'
        order by reference, published_group, megatron_comparison.num_gpus, published_row
    """
    with duckdb.connect(str(database), read_only=True) as connection:
        result = connection.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def step_parts(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Array]:
    """Evaluate the rows anew, with the same `changes` to the inputs of all."""
    names = (*TRAINING_STEP.problem_columns, *TRAINING_STEP.choice_columns, *RELATION.keys)
    columns = {}
    for name in names:
        if name not in rows[0] or name == "model":  # the shape is there in numbers
            continue
        values = [changes.get(name, row[name]) for row in rows]
        if COLUMNS[name].kind in ("str", "bool"):
            columns[name] = np.array(values, dtype=object)
        else:
            columns[name] = np.array([np.nan if v is None else float(v) for v in values])
    catalog = packaged_catalog()
    resolved, refusals = TRAINING_STEP.resolve(RELATION, columns, catalog, PUBLISHED)
    if refusals:
        raise SystemExit(f"refused: {refusals[0]}")
    out: dict[str, Array] = {
        name: np.empty(len(rows), dtype=COLUMNS[name].dtype) for name in RELATION.outputs
    }
    TRAINING_STEP.estimate(RELATION, resolved, resolved, PUBLISHED, out, catalog)
    return out


def rate_errors(rows: list[dict[str, Any]], seconds: Array) -> Array:
    """Return the relative errors of the rate, positive where too fast."""
    published = np.array([row["published_step_seconds"] for row in rows])
    return published / seconds - 1


def terms_table(database: Path) -> str:
    """Return what the errors become when one term after the other is left out, as Markdown."""
    rows = published_rows(database)
    whole = step_parts(rows)
    assert np.allclose(whole["step_seconds"], [row["step_seconds"] for row in rows], rtol=1e-12)
    chosen = {
        title: np.array(
            [r["reference"] == reference and group in (None, r["published_group"]) for r in rows]
        )
        for title, reference, group in GROUPS
    }
    lines = [f"| left out | {' | '.join(chosen)} |", "| --- |" + " ---: |" * len(chosen)]
    for title, change in TERMS:
        if isinstance(change, str):
            seconds = whole["step_seconds"] - whole[change]
        else:
            seconds = step_parts(rows, **change)["step_seconds"]
        errors = rate_errors(rows, seconds)
        cells = [
            f"{100 * np.abs(errors[of]).mean():.1f} ({100 * errors[of].mean():+.1f})"
            for of in chosen.values()
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(terms_table(Path(sys.argv[1])), end="")
