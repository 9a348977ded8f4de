"""The columns of a plan's tables: wrong `--columns` are refused before the plan is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.columns import LAYOUT_COLUMNS
from estimators.interval import ENDS
from warehouse.cli.display import refuse_choice
from warehouse.errors import UsageError
from warehouse.plan.queries import STEP_PARTS
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable

STAGES = ("stage", "action")

LAYOUTS = (
    *("rank", *LAYOUT_COLUMNS, "step_seconds", *ENDS, "training_seconds", "gpu_hours", "mfu"),
    *("tokens_per_second", "memory_bytes", "hbm_bytes", "headroom_bytes", *STEP_PARTS),
)
"""Columns of the best layouts: the one table of CSV."""

OTHERS = (
    *("basis", "year", "num_quotes", "quote_vendors", "usd_per_gpu_hour", "cost_usd"),
    *("price_source", "price_note", "option"),
    *("power_basis", "watts_per_gpu", "pue", "power_watts", "energy_kwh", "usd_per_kwh"),
    *("electricity_usd", "grid", "kg_co2e_per_kwh", "kg_co2e", "power_source", "power_note"),
    *("part", "s", "%", "other kind s", "more s"),
    *("num_gpus", "slow_training_seconds", "note", "more_time_fraction", "layout"),
    *("model", "run_kind", "accelerator", "dataset_tokens", "planned_gpu_hours"),
    *("published_group", "time_mean_absolute_relative_error", "time_max_absolute_relative_error"),
    *("time_bias", "num_rows", "num_published", "figures"),
)
"""Columns of the other tables."""


def check_columns(chosen: Iterable[str], form: Format, *, is_dry_run: bool) -> None:
    """Refuse a name that is not a column of a plan's tables, and any name in JSON.

    Raises
    ------
    UsageError
        If there is one; the hint has the known names.
    """
    wanted = list(chosen)
    if not wanted:
        return
    if form is Format.JSON and not is_dry_run:
        refuse_choice(wanted)
    known = STAGES if is_dry_run else LAYOUTS if form is Format.CSV else (*LAYOUTS, *OTHERS)
    from warehouse.show.units import headings_of

    names = {text.casefold() for name in known for text in (name, *headings_of(name))}
    missing = [name for name in wanted if name.casefold() not in names]
    if missing:
        raise UsageError(
            f"`--columns` {', '.join(missing)}: the result has no such column",
            f"use {', '.join(dict.fromkeys(known))}",
        )
