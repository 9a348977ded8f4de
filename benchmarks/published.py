"""Published steps without a term of the model, and the errors of version 1: tables of the page.

``python -m benchmarks.published`` prints the tables of docs/accuracy.md that no query gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from estimators.contract import PUBLISHED, Array
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from warehouse.calibrate.published import MEASURED, published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import Resolved, evaluate_rows, resolve_rows

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
    (
        "all memory traffic (infinite bandwidth, no power limit)",
        {"hbm_bytes_per_second": 1e30, "power_limit_watts": 1e6},
    ),
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


CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("nothing: the model as it is", {}),
    ("measured kernels of products (`kernels` formula)", {"kernels": "formula"}),
    ("programs of attention (`attention_program` formula)", {"attention_program": "formula"}),
    ("the power limit (`power_limit_watts` 1e6)", {"power_limit_watts": 1e6}),
    (
        "launches of the host (`host_seconds_per_launch`, `_per_layer` 0)",
        {"host_seconds_per_launch": 0.0, "host_seconds_per_layer": 0.0},
    ),
    (
        "exchanges that wait (`waits_for_sharded_gradients`, `aligns_exchanges` false)",
        {"waits_for_sharded_gradients": False, "aligns_exchanges": False},
    ),
    (
        "tensor exchanges in pieces (`splits_tensor_exchanges` false)",
        {"splits_tensor_exchanges": False, "starts_with_own_shard": False},
    ),
    ("waits between stages (`pipeline_hop_seconds` 0)", {"pipeline_hop_seconds": 0.0}),
    (
        "recomputation by operation (`recomputes_operations` false)",
        {"recomputes_operations": False},
    ),
    (
        "copies of queries, keys and values",
        {"forward_copy_bytes": 0.0, "backward_copy_bytes": 0.0},
    ),
    (
        "kernels that load elements one by one (`unvectorized_seconds` 0)",
        {"unvectorized_seconds": 0.0},
    ),
    (
        "tensor exchanges that occupy few multiprocessors (`tensor_exchange_sm_fraction` 0.15)",
        {"tensor_exchange_sm_fraction": 0.15},
    ),
    (
        "copies of queries that share a key (`copies_grouped_queries` false)",
        {"copies_grouped_queries": False},
    ),
    (
        "products that run in two waves beside NCCL (`overlap_slowdown` 1)",
        {"overlap_slowdown": 1.0},
    ),
)
"""Part of the model that version 1 did not have -> the inputs without it."""

MEASURED_GROUPS = (
    *("dgxc bf16", "dgxc fp8", "bridge GB200 dense fp8", "llm_foundry", "torchtitan"),
    *("playbook core", "simumax", "vtrain one node core", "vtrain several nodes", "megascale"),
    "mlperf",
)
"""Columns of the table of changes: groups of table `published_measurement`."""

MIXTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("nothing: the model as it is", {}),
    ("copies by node and rank (`dispatcher` alltoall)", {"dispatcher": "alltoall"}),
    ("tokens that travel behind arithmetic", {"overlaps_expert_comm": False}),
    ("launches of the host", {"host_seconds_per_launch": 0.0, "host_seconds_per_layer": 0.0}),
    ("captured graphs (`uses_cuda_graphs` false)", {"uses_cuda_graphs": False}),
    ("further tokens (`num_mtp_layers` 0)", {"num_mtp_layers": 0}),
    ("parts recomputed by recipe (`recompute_modules` none)", {"recompute_modules": "none"}),
    ("rotary positions of YaRN", {"uses_yarn": False}),
    (
        "kernels that load elements one by one (`unvectorized_seconds` 0)",
        {"unvectorized_seconds": 0.0},
    ),
    ("output layer in 8 bits (`quantizes_output_layer` false)", {"quantizes_output_layer": False}),
    ("biases and clamps of experts", {"uses_linear_bias": False, "uses_gate_clamp": False}),
    ("measured kernels of products (`kernels` formula)", {"kernels": "formula"}),
    ("gradients in 16 bits", {"reduced_gradient_bytes": 4.0, "stored_gradient_bytes": 4.0}),
)
"""Part of mixtures, pipelines and number formats -> the inputs without it."""

MIXTURE_GROUPS = (
    *("bridge H100 moe bf16", "bridge H100 moe fp8", "bridge GB200 moe bf16"),
    *("bridge GB200 moe fp8", "bridge H100 dense fp8", "bridge GB200 dense fp8"),
    *("bridge GB200 dense fp4", "dgxc fp8"),
)
"""Columns of the table of mixtures and formats."""

VERSION_1 = Path(__file__).parent / "errors_of_version_1.csv"
"""Errors of version 1 (091b8b9) on the same rows, by reference and group."""


def published_rows(database: Path) -> list[dict[str, Any]]:
    """Return the published steps of tables with open choices, with the estimate and its parts."""
    query = """
        select * from published_comparison
        where estimator = 'training_step' and reference <> 'published_measurement'
        order by reference, published_group, num_gpus, published_row
    """
    with duckdb.connect(str(database), read_only=True) as connection:
        result = connection.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def parts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """Return all outputs of published steps, which their reference and row name, in that order."""
    key = ["reference", "published_row"]
    names = pl.DataFrame([{name: row[name] for name in key} for row in rows])
    return step_parts(names.join(published_steps(), on=key, how="left", maintain_order="left"))


@lru_cache(maxsize=1)
def admitted() -> pl.DataFrame:
    """Return the published steps that have a time and that the estimator does not refuse."""
    timed = published_steps().filter(pl.col(MEASURED).is_not_null())
    return timed.filter(pl.Series(_resolved(timed).is_good))


def step_parts(rows: pl.DataFrame) -> dict[str, Array]:
    """Return all outputs of rows."""
    resolved = _resolved(rows)
    if resolved.refusals:
        raise SystemExit(f"refused: {resolved.refusals[0]}")
    return evaluate_rows(resolved)


def changed_steps(
    rows: pl.DataFrame, changes: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Array]]:
    """Yield all outputs of rows for each of the changes to their inputs.

    All are resolved at once: reading a frame costs as much for ten rows as for a thousand.
    """
    changed = [rows.with_columns(**{n: pl.lit(v) for n, v in one.items()}) for one in changes]
    parts = step_parts(pl.concat(changed, how="diagonal_relaxed"))
    for start in range(0, len(changes) * rows.height, rows.height):
        yield {name: column[start : start + rows.height] for name, column in parts.items()}


def _resolved(rows: pl.DataFrame) -> Resolved:
    return resolve_rows(TRAINING_STEP, RELATION, rows, packaged_catalog(), PUBLISHED)


def rate_errors(rows: pl.DataFrame, seconds: Array) -> Array:
    """Return the relative errors of the rate, positive where too fast."""
    return np.asarray(rows[MEASURED].to_numpy() / seconds - 1)


def terms_table() -> str:
    """Return what the errors become when one term after the other is left out, as Markdown."""
    shown = {
        title: (pl.col("reference") == reference)
        & (True if group is None else pl.col("published_group") == group)
        for title, reference, group in GROUPS
    }
    rows = admitted().filter(pl.any_horizontal(*shown.values()))
    chosen = {title: rows.select(of).to_series().to_numpy() for title, of in shown.items()}
    lines = _header("left out", chosen)
    changes = [{} if isinstance(change, str) else change for _, change in TERMS]
    for (title, change), parts in zip(TERMS, changed_steps(rows, changes), strict=True):
        left_out = parts[change] if isinstance(change, str) else 0.0
        errors = rate_errors(rows, parts["step_seconds"] - left_out)
        lines.append(_line(title, [errors[of] for of in chosen.values()]))
    return "\n".join(lines) + "\n"


def changes_table() -> str:
    """Return the errors of the time on measurements without one change after the other."""
    return _without(CHANGES, MEASURED_GROUPS)


def mixtures_table() -> str:
    """Return the same for what concerns mixtures and number formats."""
    return _without(MIXTURES, MIXTURE_GROUPS)


def _without(changes: Sequence[tuple[str, dict[str, Any]]], columns: Sequence[str]) -> str:
    rows = admitted().filter(pl.col("published_group").is_in(columns))
    groups = rows["published_group"].to_numpy()
    lines = _header("left out", columns)
    every = changed_steps(rows, [change for _, change in changes])
    for (title, _), parts in zip(changes, every, strict=True):
        errors = 1 / (1 + rate_errors(rows, parts["step_seconds"])) - 1
        lines.append(_line(title, [errors[groups == group] for group in columns]))
    return "\n".join(lines) + "\n"


def version_table() -> str:
    """Return the errors of the time by group, of version 1 and now, as Markdown."""
    rows = admitted()
    errors = 1 / (1 + rate_errors(rows, step_parts(rows)["step_seconds"])) - 1
    now = rows.with_columns(error=pl.Series(errors))
    title = ("reference", "group", "timed", "version 1: mean / median / bias", "now")
    lines = [f"| {' | '.join(title)} |", "| --- | --- | ---: | ---: | ---: |"]
    for old in pl.read_csv(VERSION_1).iter_rows(named=True):
        key = {name: old[name] for name in ("reference", "published_group")}
        own = now.filter(pl.all_horizontal(pl.col(n) == v for n, v in key.items()))["error"]
        before = (old[f"time_{name}"] for name in _MOMENTS)
        after = (own.abs().mean(), own.abs().median(), own.mean())
        cells = [
            old["reference"].removeprefix("published_"),
            old["published_group"],
            str(own.len()),
            _percent(before),
            _percent(after),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_MOMENTS = ("mean_absolute_relative_error", "median_absolute_relative_error", "bias")


def _percent(moments: Iterable[Any]) -> str:
    mean, median, bias = moments
    if mean is None:
        return "refused"
    return f"{100 * mean:.1f} / {100 * median:.1f} / {100 * bias:+.1f}"


def _header(first: str, columns: Collection[str]) -> list[str]:
    return [f"| {first} | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]


def _line(title: str, errors: Sequence[Array]) -> str:
    cells = [f"{100 * np.abs(of).mean():.1f} ({100 * of.mean():+.1f})" for of in errors]
    return f"| {title} | {' | '.join(cells)} |"


TABLES: Mapping[str, Callable[[], str]] = {
    "terms": terms_table,
    "changes": changes_table,
    "mixtures": mixtures_table,
    "versions": version_table,
}
"""Name of a table between comments of the page -> what makes it."""


if __name__ == "__main__":
    for make in TABLES.values():
        print(make())
