"""The charts of a report. Each is as wide as its place on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot.parts import change_axis
from warehouse.plot.theme import DARK, LIGHT, ORANGE
from warehouse.report.content import parts_of
from warehouse.show.units import with_digits

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plan.answer import PlanAnswer
    from warehouse.plot.theme import Theme

ROW = 28
"""Height of a bar with its gap, in pixels."""

MOST = 12
"""Most constants in the chart of constants."""

LABEL_WIDTH = 190
"""Most pixels of a label: a phone's page has 360."""

DAY = 86_400


def charts_of(answer: PlanAnswer) -> dict[str, dict[str, Any]]:
    """Return the charts by the name of their place, each for light and for dark pages."""
    charts: dict[str, dict[str, Any]] = {}
    for name, chart in (
        ("parts", parts_chart),
        ("constants", constants_chart),
        ("counts", counts_chart),
        ("errors", errors_chart),
    ):
        for theme in (LIGHT, DARK):
            made = chart(answer, theme)
            if made is not None:
                charts.setdefault(name, {})[theme.name] = _spec(made, theme)
    return charts


def _spec(chart: ChartType, theme: Theme) -> dict[str, Any]:
    config = {**theme.config, "background": "transparent", "padding": 4}
    spec: dict[str, Any] = chart.configure(**config).to_dict()
    return spec


def parts_chart(answer: PlanAnswer, theme: Theme) -> ChartType:
    """Return the seconds of each part of a step, as bars."""
    step, parts = float(answer.best["step_seconds"]), parts_of(answer)
    rows = [
        {
            "part": name,
            "seconds": seconds,
            "label": f"{with_digits(seconds, 3)} s ({seconds / step:.1%})",
        }
        for name, seconds in parts
    ]
    x = alt.X("seconds:Q", scale=alt.Scale(domain=[0, 2 * parts[0][1]]))
    bars = _bars(rows, "part", x.axis(title="Seconds of a step", tickCount=5))
    texts = bars.mark_text(align="left", dx=5, color=theme.ink).encode(text="label:N")
    return _wide(alt.layer(bars.mark_bar(color=theme.blue), texts), ROW * len(parts))


def constants_chart(answer: PlanAnswer, theme: Theme) -> ChartType | None:
    """Return the change of the run's time with each constant at both ends of its range.

    None for an estimator without such ranges.
    """
    explanation = answer.uncertainty.explanation
    changes = explanation.changes[:MOST] if explanation else []
    if not changes:
        return None
    rows = [
        {"constant": change.constant.name.replace("_", " "), "end": end, "change": value}
        for change in changes
        for end, value in (("lowest value", change.lowest), ("highest value", change.highest))
    ]
    x = alt.X("change:Q").axis(change_axis("Change of the run's time", tickCount=5))
    bars = _bars(rows, "constant", x).encode(
        color=_two_colours("end", "lowest value", "highest value", theme),
        tooltip=["constant", "end", alt.Tooltip("change:Q", format="+.2%")],
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(color=theme.ink, strokeWidth=1.4)
    layers = alt.layer(bars.mark_bar(height=15), zero.encode(x="zero:Q"))
    return _wide(layers, ROW * len(changes))


def counts_chart(answer: PlanAnswer, theme: Theme) -> ChartType | None:
    """Return the days of the run over the number of GPUs; None if one number was tried."""
    rows = [
        {
            "num_gpus": line["num_gpus"],
            "days": line["training_seconds"] / DAY,
            "kind": "this plan" if line["num_gpus"] == answer.num_gpus else "other counts",
        }
        for line in answer.counts
        if line.get("training_seconds") is not None  # no layout may fit
    ]
    if len(rows) < 2:
        return None
    frame = pl.DataFrame(rows)
    x = alt.X("num_gpus:Q", title="GPUs", scale=alt.Scale(type="log", nice=False)).axis(
        values=frame["num_gpus"].to_list(), format=",d"
    )
    y = alt.Y("days:Q", title="Days of the run", scale=alt.Scale(zero=True))
    line = alt.Chart(frame).mark_line(color=theme.faint).encode(x=x, y=y)
    points = line.mark_point(filled=True, size=90, opacity=1).encode(
        color=_two_colours("kind", "other counts", "this plan", theme),
        tooltip=["num_gpus", alt.Tooltip("days:Q", format=",.1f")],
    )
    return _wide(alt.layer(line, points), 260)


def errors_chart(answer: PlanAnswer, theme: Theme) -> ChartType | None:
    """Return the mean error of the time by group of steps like the plan; None without any."""
    record = answer.uncertainty.record
    rows = [
        {
            "group": f"{str(line['published_group']).replace('_', ' ')} ({line['num_rows']})",
            "error": line["time_mean_absolute_relative_error"],
            "way": "too fast" if line["time_bias"] < 0 else "too slow",
        }
        for line in ([] if record is None else record.groups)
    ]
    if not rows:
        return None
    rows.sort(key=lambda row: (row["error"], row["group"]))
    x = alt.X("error:Q", title="Mean error of the time").axis(format="~%", tickCount=5)
    bars = _bars(rows, "group", x).encode(
        color=_two_colours("way", "too fast", "too slow", theme),
        tooltip=["group", "way", alt.Tooltip("error:Q", format=".1%")],
    )
    return _wide(bars.mark_bar(), ROW * len(rows))


def _bars(rows: list[dict[str, Any]], name: str, x: alt.X) -> alt.Chart:
    """Return a chart with a line for each name of the rows; names are short on a phone."""
    order = list(dict.fromkeys(row[name] for row in rows))
    labels = alt.Axis(labelFontSize=12, labelLimit=LABEL_WIDTH)
    y = alt.Y(f"{name}:N", sort=order, title=None).axis(labels)
    bars: alt.Chart = alt.Chart(pl.DataFrame(rows)).mark_bar().encode(x=x, y=y)
    return bars


def _two_colours(column: str, blue: str, orange: str, theme: Theme) -> alt.Color:
    scale = alt.Scale(domain=[blue, orange], range=[theme.blue, ORANGE])
    return alt.Color(f"{column}:N", scale=scale, title=None).legend(orient="top")


def _wide(chart: ChartType, height: int) -> ChartType:
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    found: ChartType = chart.properties(width="container", height=height, autosize=fit)
    return found
