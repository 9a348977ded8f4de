"""Tables for people: short headings, GB and TFLOP/s and percent, no column that says nothing.

Base units and full names are for storage and programs; they turn into these here, last of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from estimators.columns import COLUMNS
from warehouse.show.formats import Figure, Row

_Write = Callable[[float], str]


def _percent(value: float) -> str:
    return f"{value * 100:.1f}"


def _signed_percent(value: float) -> str:
    return f"{value * 100:+.1f}"


def _tera(value: float) -> str:
    return f"{value / 1e12:,.1f}"


def _giga(value: float) -> str:
    return f"{value / 1e9:,.1f}"


def _thousands(value: float) -> str:
    return f"{value / 1e3:,.1f}"


def _millions(value: float) -> str:
    return f"{value / 1e6:,.3f}"


def _trillions(value: float) -> str:
    return f"{value / 1e12:,.4g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _four_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def _days(value: float) -> str:
    return f"{value / 86400:,.1f}" if abs(value) >= 8640 else f"{value / 86400:.3g}"


_UNITS: tuple[tuple[str, str, _Write], ...] = (
    ("flops_per_gpu", "TFLOP", _tera),
    ("_flops_per_second_per_gpu", "TFLOP/s per GPU", _tera),
    ("_flops_per_second", "TFLOP/s", _tera),
    ("_tokens_per_second", "tokens/s", _whole),
    ("tokens_per_second", "tokens/s", _whole),
    ("rows_per_second", "rows/s", _whole),
    ("_bytes_per_second", "GB/s", _giga),
    ("_bytes", "GB", _giga),
    ("_seconds", "s", _four_digits),
    ("_fraction", "%", _percent),
    ("gpu_hours", "GPU-hours", _whole),
    ("usd_per_gpu_hour", "USD/GPU-hour", "{:.2f}".format),
    ("usd_per_kwh", "USD/kWh", "{:.3f}".format),
    ("kg_co2e_per_kwh", "kg CO2e/kWh", "{:.3f}".format),
    ("cost_usd", "USD", _whole),
    ("_usd", "USD", _whole),
    ("energy_kwh", "MWh", _thousands),
    ("kg_co2e", "t CO2e", _thousands),
    ("power_watts", "MW", _millions),
    ("_watts_per_gpu", "W", _whole),
    ("watts_per_gpu", "W per GPU", _whole),
    ("dataset_tokens", "T tokens", _trillions),
    ("absolute_relative_error", "|error| %", _percent),
    ("relative_error", "error %", _signed_percent),
    ("absolute_error_beyond_rounding", "|error| beyond rounding %", _percent),
    ("error_beyond_rounding", "error beyond rounding %", _signed_percent),
    ("published_rounding", "rounding %", _percent),
    ("mfu", "MFU %", _percent),
    ("utilization", "utilization %", _percent),
    ("_bytes_per_flop", "bytes/FLOP", "{:.3g}".format),
    ("bias", "bias %", _signed_percent),
    ("spearman_correlation", "Spearman", "{:.2f}".format),
    ("speedup_of_best", "best is faster by", "{:.2f}x".format),
)
"""End of a column's name, the unit it is shown in, and how; the first that fits is used."""

_IN_DAYS = frozenset(
    f"{which}training_seconds"
    for which in (
        *("", "path_", "best_", "published_", "measured_"),
        *("approximate_", "lowest_", "highest_"),
    )
)
"""Times of a whole run."""

_NAMES = ("_id", "_version", "year")
"""Ends of columns whose numbers name something: no digits are grouped in them."""

_HEADINGS = {
    "data_parallel": "DP",
    "tensor_parallel": "TP",
    "tensor_parallel_2": "TP2",
    "context_parallel": "CP",
    "pipeline_parallel": "PP",
    "virtual_pipeline": "VP",
    "microbatch_size": "micro",
    "summa_panels": "panels",
    "nvlink_tensor_parallel": "TP/domain",
    "nvlink_tensor_parallel_2": "TP2/domain",
    "nvlink_context_parallel": "CP/domain",
    "nvlink_data_parallel": "DP/domain",
    "nvlink_pipeline_parallel": "PP/domain",
    "activation_recompute": "recompute",
    "tensor_parallel_external": "TP ext",
    "sequence_parallel": "SP",
    "expert_parallel": "EP",
    "num_microbatches": "microbatches",
    "num_clusters": "clusters",
    "nvlink_size": "domain",
    "num_gpus": "GPUs",
    "num_quotes": "vendors",
    "num_runs": "runs",
    "global_batch_size": "batch",
    "rank_by_time": "rank",
    "num_fitting_layouts": "that fit",
    "forward_collectives": "forward",
    "backward_collectives": "backward",
    "comm_group_size": "group",
    "nvlink_comm_group": "in domain",
    "comm_group_size_2": "group 2",
    "nvlink_comm_group_2": "in domain 2",
    "binding_resource": "waits for",
    "rank_in_recompute": "rank, same recompute",
}
"""What people call a column; a layout is read as TP, PP and DP."""


def column_headed(heading: str) -> str | None:
    """Return the column that tables show under `heading`, in whatever case; None of others."""
    called = {short.casefold(): name for name, short in _HEADINGS.items()}
    return called.get(heading.strip().casefold())


_OPTIONAL = frozenset(
    {
        *("model", "nvlink_size", "num_gpus", "num_clusters", "strategy", "attention"),
        *("microbatch_size", "num_microbatches", "summa_panels", "virtual_pipeline"),
        *("nvlink_tensor_parallel", "nvlink_tensor_parallel_2", "nvlink_context_parallel"),
        *("nvlink_data_parallel", "nvlink_pipeline_parallel", "training_seconds", "mfu"),
        *("utilization", "memory_bytes", "network_bytes_per_flop", "tokens_per_second"),
        *("tensor_parallel_2", "context_parallel", "sequence_parallel", "expert_parallel"),
        *("tensor_parallel_external", "activation_recompute", "accelerator"),
        *("cluster_network_bytes_per_second", "global_batch_size"),
        *("price_note", "power_note", "best_layout", "year", "num_quotes"),
    }
)
"""Columns that some estimators do not have: left out where no row has a value."""

_NEUTRAL: dict[str, Any] = {
    "tensor_parallel_2": 1,
    "context_parallel": 1,
    "virtual_pipeline": 1,
    "summa_panels": 0,
    "nvlink_tensor_parallel_2": 1,
    "nvlink_context_parallel": 1,
    "activation_recompute": "none",
    "tensor_parallel_external": 1,
    "sequence_parallel": 1,
    "expert_parallel": 1,
}
"""Columns left out where every row holds the value that stands for unused."""


def for_people(
    columns: Sequence[str], rows: Sequence[Row], drop: Collection[str] = ()
) -> tuple[list[str], list[Row]]:
    """Return a table as people read it; the columns named in `drop` are left out."""
    kept = [
        place
        for place, name in enumerate(columns)
        if name not in drop and not _is_unused(name, [row[place] for row in rows])
    ]
    shown = [_column(columns[place]) for place in kept]
    table: list[Row] = [
        [write(row[place]) for place, (_, write) in zip(kept, shown, strict=True)] for row in rows
    ]
    return [heading for heading, _ in shown], table


def in_words(name: str, value: Any) -> str:
    """Return one value as people write it, with its unit."""
    if value is None:
        return "-"
    if isinstance(value, (bool, str)):
        return str(_plain(value))
    if name.endswith(_NAMES):
        return str(value)
    if name in _IN_DAYS:
        return f"{_days(value)} days"
    if name.endswith("_seconds"):
        return f"{value:.4g} s"
    if name.endswith("_bytes_per_second"):
        return f"{value / 1e9:,.4g} GB/s"
    for ending, unit, write in _UNITS:
        if name.endswith(ending):
            return f"{write(value)} {unit.split()[-1] if unit.endswith('%') else unit}"
    unit = COLUMNS[name].unit if name in COLUMNS else ""
    number = f"{value:,}" if isinstance(value, int) else _short(value)
    return f"{number} {unit}".strip()


def _short(value: float) -> str:
    is_whole = value == int(value) if abs(value) < 1e15 else False
    return f"{value:,.0f}" if is_whole and abs(value) < 1e9 else f"{value:.4g}"


def _is_unused(name: str, values: Sequence[Any]) -> bool:
    if not values:
        return False
    if all(value is None for value in values):
        return name in _OPTIONAL
    return name in _NEUTRAL and all(v in (None, _NEUTRAL[name]) for v in values)


def _column(name: str) -> tuple[str, Callable[[Any], Any]]:
    own = name.removeprefix("best_")
    if own in _HEADINGS:
        return ("best " if own != name else "") + _HEADINGS[own], _plain
    if name.endswith(_NAMES):
        return name.replace("_", " "), lambda value: value
    if name in _IN_DAYS:
        return f"{name.removesuffix('_seconds').replace('_', ' ')} days", _figure(_days)
    for ending, unit, write in _UNITS:
        if name.endswith(ending):
            stem = name.removesuffix(ending).strip("_").replace("_", " ")
            return f"{stem} {unit}".strip(), _figure(write)
    return name.replace("_", " "), _plain


def _figure(write: _Write) -> Callable[[Any], Any]:
    return lambda value: None if value is None else Figure(write(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return Figure(f"{value:,}") if isinstance(value, int) else value
