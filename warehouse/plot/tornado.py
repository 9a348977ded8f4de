"""Constants that a step depends on most: its time with each at both ends of its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from estimators import registry
from warehouse.ask.explain import explain, require_formulas
from warehouse.ask.fastest_stored import best_configuration
from warehouse.database.catalog import load_catalog
from warehouse.evaluate.one import show_configuration
from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, ORANGE, Theme
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

WIDTH, ROW = 440, 26
MOST = 14
"""Constants that are drawn."""

GIVEN = (
    *("model", "accelerator", "nvlink_size", "num_gpus", "global_batch_size", "seq_len"),
    "framework",
)
"""Columns of a row that name its problem."""


def completed(frame: pl.DataFrame, connection: DuckDBPyConnection) -> pl.DataFrame:
    """Return a row for each constant with a range: the step at both ends of it.

    The best layout is evaluated anew with each end, as `warehouse explain --best` does.
    """
    row = frame.row(0, named=True)
    estimator = registry.get(row["estimator"])
    given = {name: str(row[name]) for name in GIVEN if row[name] is not None}
    catalog = load_catalog(connection)
    mends = mends_of_options(estimator, row["variant"], None)
    require_formulas(estimator)
    best = best_configuration(connection, estimator, given, row["problem_id"])
    shown = show_configuration(
        estimator, estimator.relations[0], best, mends, catalog, frozenset(given)
    )
    found = explain(shown, catalog, frozenset(given))
    moved = [
        {
            "constant": change.constant.name,
            "constant_value": change.constant.value,
            "lowest_value": change.constant.lowest,
            "highest_value": change.constant.highest,
            "lowest_step_seconds": change.constant.at_lowest,
            "highest_step_seconds": change.constant.at_highest,
            "is_assumed": bool(change.constant.is_assumed),
            "step_seconds": found.step_seconds,
            "low_step_seconds": found.likely[0],
            "high_step_seconds": found.likely[1],
        }
        for change in found.changes
    ]
    same = {name: row[name] for name in frame.columns if name != "step_seconds"}
    return pl.DataFrame([{**same, **one} for one in moved], infer_schema_length=None)


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the constants that `completed` gives."""
    rows = largest(frame)
    order = rows["label"].to_list()
    ends = rows.unpivot(["at_lowest", "at_highest"], index=["label"]).with_columns(
        end=pl.col("variable").replace_strict(
            {"at_lowest": "lowest value", "at_highest": "highest value"}
        )
    )
    y = alt.Y("label:N", sort=order, title=None).axis(labelLimit=420)
    colour = alt.Color(
        "end:N",
        scale=alt.Scale(domain=["lowest value", "highest value"], range=[theme.blue, ORANGE]),
        title="Constant at its",
    )
    bars = (
        alt.Chart(ends)
        .mark_bar(height=15)
        .encode(
            x=alt.X("value:Q").axis(parts.change_axis("Change of the step time", tickCount=6)),
            y=y,
            color=colour,
        )
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color=theme.ink, strokeWidth=1.4)
    return alt.layer(bars, zero.encode(x="zero:Q")).properties(
        title=parts.headed(finding(frame), shown(frame), WIDTH + 420),
        width=WIDTH,
        height=ROW * len(order),
    )


def largest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the constants that move the step most, with the changes at both ends."""
    low, high = (
        pl.col(f"{end}_step_seconds") / pl.col("step_seconds") - 1 for end in ("lowest", "highest")
    )
    named = [
        f"{row['constant'].replace('_', ' ')}: {_short(row['lowest_value'])} to "
        f"{_short(row['highest_value'])}{' *' if row['is_assumed'] else ''}"
        for row in frame.iter_rows(named=True)
    ]
    return (
        frame.with_columns(pl.Series("label", named), at_lowest=low, at_highest=high)
        .with_columns(swing=(pl.col("at_highest") - pl.col("at_lowest")).abs())
        .sort(["swing", "constant"], descending=[True, False])
        .head(MOST)
    )


def _short(value: float) -> str:
    return parts.figure(value) if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}"


def finding(frame: pl.DataFrame) -> str:
    """Return the constant that matters most, and the interval of nine steps in ten."""
    first = largest(frame).row(0, named=True)
    name = first["constant"].replace("_", " ")
    low, high = (first[f"{end}_step_seconds"] for end in ("low", "high"))
    return (
        f"{name[0].upper()}{name[1:]} matters most: {first['swing']:.0%} of the step; "
        f"nine times in ten it takes {parts.figure(low)} to {parts.figure(high)} s"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"The best layout of {first['model']} on {first['num_gpus']:,} {first['accelerator']}, "
        f"{parts.figure(first['step_seconds'], 3)} s a step; each constant alone at both ends "
        f"of its range, a star marks an assumption; {parts.estimate_words(frame)}"
    )
