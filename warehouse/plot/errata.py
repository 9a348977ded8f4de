"""Change of the best step time by each mend of an erratum alone, and by all."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, SHAPES, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

WIDTH, ROW = 420, 40
ALL = "all of them"
BREAK = "|"
"""Ends a line of a label."""

NONE = 5e-5
"""Change below which a mend changes nothing."""

LETTERS = 52
"""Letters of a line of a fault; it has two."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/errata.sql."""
    rows = frame.with_columns(
        label=pl.when(pl.col("mended") == "corrected")
        .then(pl.lit(ALL))
        .otherwise(
            pl.format(
                "{}  {}",
                "mended",
                pl.col("fault").fill_null("").map_elements(_two_lines, return_dtype=pl.String),
            )
        )
    )
    size = pl.col("best_step_change").abs().max()
    order = rows.group_by("label").agg(size=size).sort("size", "label", descending=[True, False])
    labels = [ALL, *(label for label in order["label"].to_list() if label != ALL)]
    strategies = sorted(set(rows["strategy"].to_list()))
    models = sorted(set(rows["model"].to_list()))
    x = alt.X("best_step_change:Q").axis(
        parts.change_axis("Change of the best step time", tickCount=6)
    )
    y = alt.Y("label:N", sort=labels, title=None).axis(
        labelLimit=460, grid=False, labelExpr=f"split(datum.label, '{BREAK}')"
    )
    lane = alt.YOffset("strategy:N", sort=strategies, scale=alt.Scale(paddingOuter=0.5))
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color=theme.ink)
    points = (
        alt.Chart(rows)
        .mark_point(filled=True, size=60, opacity=0.65)
        .encode(
            x=x,
            y=y,
            yOffset=lane,
            color=alt.Color(
                "strategy:N",
                scale=parts.hues(strategies, theme),
                title="Strategy",
            ),
            shape=alt.Shape(
                "model:N",
                scale=alt.Scale(domain=models, range=list(SHAPES[: len(models)])),
                title="Model",
            ),
        )
    )
    return alt.layer(zero.encode(x="zero:Q"), points).properties(
        title=parts.headed(finding(frame), shown(frame), WIDTH + 440),
        width=WIDTH,
        height=ROW * len(labels),
    )


def _two_lines(fault: str) -> str:
    """Return a fault with a break, cut to two lines."""
    return BREAK.join(textwrap.wrap(fault, LETTERS, max_lines=2, placeholder=" ..."))


def finding(frame: pl.DataFrame) -> str:
    """Return the erratum that changes the best times most, and how many change none."""
    alone = frame.filter(pl.col("mended") != "corrected")
    sizes = (
        alone.group_by("mended")
        .agg(size=pl.col("best_step_change").abs().max())
        .sort("size", "mended", descending=[True, False])
    )
    if sizes.is_empty():
        most = parts.most(frame["best_step_change"].abs())
        return f"The errata change the best step times by up to {most:.1%}"
    first = sizes.row(0, named=True)
    if first["size"] < NONE:
        return "No erratum changes a best step time"
    none = sizes.filter(pl.col("size") < NONE).height
    return (
        f"Erratum {first['mended']} changes the best step times by up to {first['size']:.0%}; "
        f"{none} of {parts.counted(sizes.height, 'mend')} change no best step"
    )


def _between(counts: pl.Series) -> str:
    low, high = f"{parts.least(counts):,.0f}", f"{parts.most(counts):,.0f}"
    return low if low == high else f"{low} to {high}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    counts = frame["num_gpus"]
    return (
        "The best layout of each strategy with one erratum mended, relative to the published "
        f"formulas, on {_between(counts)} GPUs; a point for each problem and strategy; "
        f"estimator {frame['estimator'][0]}"
    )
