"""Changes of the best step: by constants at the ends of their ranges, by mends of errata."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from estimators import registry
from warehouse.ask.explain import explain, require_formulas
from warehouse.ask.fastest_stored import best_configuration
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.one import show_configuration
from warehouse.plot import parts
from warehouse.plot.theme import ORANGE
from warehouse.show.formats import count
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

    from warehouse.plot.theme import Theme

MOST = 14
"""Constants that are drawn."""

GIVEN = (
    *("model", "accelerator", "nvlink_size", "num_gpus", "global_batch_size", "seq_len"),
    "framework",
)
"""Columns of a row that name its problem."""

ALL = "all of them"
BREAK = "|"
"""Ends a line of a label."""

NONE = 5e-5
"""Change below which a mend changes nothing."""

LETTERS = 52
"""Letters of a line of a fault; it has two."""


# ---- constants ----


def tornado_rows(frame: pl.DataFrame, connection: DuckDBPyConnection) -> pl.DataFrame:
    """Return a row for each constant with a range: the step at both ends of it.

    The best layout is evaluated anew with each end, as `warehouse explain --best` does.
    """
    row = frame.row(0, named=True)
    estimator = registry.get(row["estimator"])
    given = {name: str(row[name]) for name in GIVEN if row[name] is not None}
    catalog = packaged_catalog()
    mends = mends_of_options(estimator, row["variant"], None)
    require_formulas(estimator)
    best = best_configuration(connection, estimator, given, row["problem_id"])
    shown = show_configuration(
        estimator, estimator.relations[0], best, mends, catalog, frozenset(given)
    )
    explained = explain(shown, catalog, frozenset(given))
    low, high = explained.likely
    step = {
        "step_seconds": explained.step_seconds,
        "low_step_seconds": low,
        "high_step_seconds": high,
    }
    constants = [
        {
            "constant": change.constant.name,
            "constant_value": change.constant.value,
            "lowest_value": change.constant.lowest,
            "highest_value": change.constant.highest,
            "lowest_step_seconds": change.constant.at_lowest,
            "highest_step_seconds": change.constant.at_highest,
            "is_assumed": bool(change.constant.is_assumed),
        }
        for change in explained.changes
    ]
    return pl.DataFrame([row | constant | step for constant in constants], infer_schema_length=None)


def tornado(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the change of the step by each constant at both ends of its range."""
    rows = largest(frame)
    order = rows["label"].to_list()
    ends = rows.unpivot(["at_lowest", "at_highest"], index=["label"]).with_columns(
        end=pl.col("variable").replace_strict(
            {"at_lowest": "lowest value", "at_highest": "highest value"}
        )
    )
    scale = alt.Scale(domain=["lowest value", "highest value"], range=[theme.blue, ORANGE])
    bars = (
        alt.Chart(ends)
        .mark_bar(height=15)
        .encode(
            x=alt.X("value:Q").axis(parts.change_axis("Change of the step time", tickCount=6)),
            y=alt.Y("label:N", sort=order, title=None).axis(labelLimit=420),
            color=alt.Color("end:N", scale=scale, title="Constant at its"),
        )
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color=theme.ink, strokeWidth=1.4)
    first = rows.row(0, named=True)
    name = first["constant"].replace("_", " ")
    low, high = (parts.figure(first[f"{end}_step_seconds"]) for end in ("low", "high"))
    finding = (
        f"{name[0].upper()}{name[1:]} changes the step most: by {first['swing']:.0%} between the "
        f"ends of its range; nine times in ten a step takes {low} to {high} s"
    )
    shown = (
        f"The best layout of {first['model']} on {first['num_gpus']:,} {first['accelerator']}, "
        f"{parts.figure(first['step_seconds'], 3)} s a step; each constant alone at both ends "
        f"of its range, a star marks an assumption; {parts.estimate_words(frame)}"
    )
    layers, height = alt.layer(bars, zero.encode(x="zero:Q")), 26 * len(order)
    return parts.titled(layers, finding, shown, width=440, height=height, margin=420)


def largest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the constants that move the step most, with the changes at both ends."""
    low, high = (
        pl.col(f"{end}_step_seconds") / pl.col("step_seconds") - 1 for end in ("lowest", "highest")
    )
    labels = [
        f"{row['constant'].replace('_', ' ')}: {_short(row['lowest_value'])} to "
        f"{_short(row['highest_value'])}{' *' if row['is_assumed'] else ''}"
        for row in frame.iter_rows(named=True)
    ]
    return (
        frame.with_columns(pl.Series("label", labels), at_lowest=low, at_highest=high)
        .with_columns(swing=(pl.col("at_highest") - pl.col("at_lowest")).abs())
        .sort(["swing", "constant"], descending=[True, False])
        .head(MOST)
    )


def _short(value: float) -> str:
    return parts.figure(value) if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}"


# ---- errata ----


def errata(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the change of the best step by each mend of an erratum alone, and by all."""
    faults = pl.col("fault").fill_null("").map_elements(_two_lines, return_dtype=pl.String)
    rows = frame.with_columns(
        label=pl.when(pl.col("mended") == "corrected")
        .then(pl.lit(ALL))
        .otherwise(pl.format("{}  {}", "mended", faults))
    )
    labels = [ALL, *(label for label in _by_size(rows, "label")["label"] if label != ALL)]
    strategies = sorted(set(rows["strategy"].to_list()))
    models = sorted(set(rows["model"].to_list()))
    points = (
        alt.Chart(rows)
        .mark_point(filled=True, size=60, opacity=0.65)
        .encode(
            x=alt.X("best_step_change:Q").axis(
                parts.change_axis("Change of the best step time", tickCount=6)
            ),
            y=alt.Y("label:N", sort=labels, title=None).axis(
                labelLimit=460, grid=False, labelExpr=f"split(datum.label, '{BREAK}')"
            ),
            yOffset=alt.YOffset("strategy:N", sort=strategies, scale=alt.Scale(paddingOuter=0.5)),
            color=parts.colours("strategy", strategies, theme, title="Strategy"),
            shape=parts.shapes("model", models, title="Model"),
        )
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color=theme.ink)
    shown = (
        "The best layout of each strategy with one erratum mended, relative to the published "
        f"formulas, on {parts.span(frame['num_gpus'], ',.0f')} GPUs; a point for each problem and "
        f"strategy; estimator {frame['estimator'][0]}"
    )
    layers, height = alt.layer(zero.encode(x="zero:Q"), points), 40 * len(labels)
    return parts.titled(layers, _errata_finding(frame), shown, width=420, height=height, margin=440)


def _two_lines(fault: str) -> str:
    return BREAK.join(textwrap.wrap(fault, LETTERS, max_lines=2, placeholder=" ..."))


def _by_size(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the values of a column, that with the largest change of a best step first."""
    size = pl.col("best_step_change").abs().max()
    return frame.group_by(column).agg(size=size).sort("size", column, descending=[True, False])


def _errata_finding(frame: pl.DataFrame) -> str:
    sizes = _by_size(frame.filter(pl.col("mended") != "corrected"), "mended")
    if sizes.is_empty():
        most = parts.most(frame["best_step_change"].abs())
        return f"The errata change the best step times by up to {most:.1%}"
    erratum, size = sizes.row(0)
    if size < NONE:
        return "No erratum changes a best step time"
    none = sizes.filter(pl.col("size") < NONE).height
    return (
        f"Erratum {erratum} changes the best step times by up to {size:.0%}; "
        f"{none} of {count(sizes.height, 'mend')} change no best step"
    )
