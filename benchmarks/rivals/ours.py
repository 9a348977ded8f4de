"""What the project itself says of the rows: its estimator, the paper's model, a constant."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from benchmarks.rivals.rival import RefusedError, equal_width, is_plain, refuse
from benchmarks.rivals.rows import Row
from estimators.roofline.estimator import RELATION, ROOFLINE
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

OWN, PAPER, CONSTANT = "training_step", "roofline, the paper's model", "best constant utilization"

_SAME = (
    *("num_layers", "hidden_size", "num_heads", "seq_len", "vocab_size", "accelerator"),
    *("nvlink_size", "network_bytes_per_second", "hbm_bytes_per_second", "num_gpus"),
    *("global_batch_size", "activation_recompute", "virtual_pipeline", "tensor_parallel"),
    *("pipeline_parallel", "data_parallel", "microbatch_size"),
)
"""Inputs that the paper's model takes as they are."""


def own(rows: Sequence[Row]) -> list[float | str]:
    """Return the estimates of `training_step` [s], without a fit."""
    return ["refused" if row.estimate is None else row.estimate for row in rows]


def paper(rows: Sequence[Row]) -> list[float | str]:
    """Return what the model of arXiv 2410.00273 says, with its faults mended [s]."""
    found: list[float | str] = [_refusal(row) or 0.0 for row in rows]
    asked = [number for number, answer in enumerate(found) if answer == 0.0]
    given = [
        {
            **{name: rows[number].inputs[name] for name in _SAME},
            "ffn_hidden_size": equal_width(rows[number]),
            "attention": "flash" if rows[number].inputs["attention"] == "flash" else "unfused",
        }
        for number in asked
    ]
    mends = frozenset(ROOFLINE.mends)
    frame = pl.DataFrame(given, infer_schema_length=None)
    resolved = resolve_rows(ROOFLINE, RELATION, frame, packaged_catalog(), mends)
    for refusal in resolved.refusals:
        if refusal.row is not None:
            found[asked[refusal.row]] = "stages of unequal length"
    seconds = iter(evaluate_rows(resolved, ("step_seconds",))["step_seconds"].tolist())
    for number, is_good in zip(asked, resolved.is_good.tolist(), strict=True):
        if is_good:
            found[number] = next(seconds)
    return found


def _refusal(row: Row) -> str | None:
    given = row.inputs
    try:
        refuse(
            no_experts=given["num_experts"] > 1,
            no_8_bit_or_4_bit_numbers=given["precision"] in ("fp8", "fp4"),
            no_latent_attention_or_windows_or_unlike_layers=not is_plain(row),
            no_grouped_queries=given["num_kv_heads"] != given["num_heads"],
            no_sharded_weights=given["zero_stage"] == 3,
            no_context_parallelism=given["context_parallel"] > 1,
            no_selective_recomputation=given["activation_recompute"] == "selective",
        )
    except RefusedError as error:
        return str(error)
    return None


def constant(rows: Sequence[Row]) -> float:
    """Return the one utilization with the least mean size of the errors of time of these rows.

    A row with the measured utilization u has the error u / c - 1 at the constant c. The mean size
    is least where 1 / c is the median of 1 / u, weighted with u.
    """
    reached = sorted((row.mfu for row in rows if row.mfu is not None), reverse=True)
    so_far = 0.0
    for each in reached:
        so_far += each
        if so_far >= sum(reached) / 2:
            return each
    raise ValueError("there is no row with a utilization")


def at_constant(rows: Sequence[Row]) -> list[float]:
    """Return the steps at the constant that fits these very rows best [s]."""
    fitted = constant(rows)
    return [row.seconds * (row.mfu or fitted) / fitted for row in rows]
