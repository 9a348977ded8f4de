"""Dollars of a run by system and kind of price, its energy, and its carbon by grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

WIDTH, GROUP = 220, 92
LABEL = 150
"""Pixels of the name of a system at most."""

MILLION = 1e6

BASES = {
    "on_demand": "on demand",
    "one_year": "one year",
    "three_year": "three years",
    "spot": "spot",
    "owned": "owned",
    "given": "given",
}
"""Basis of a price -> what people call it."""

PANELS = {
    "price": ("Dollars", "Price", 1.0),
    "energy": ("Energy (MWh)", None, 1e3),
    "grid": ("Carbon (tonnes of CO2e)", "Grid of the site", 1e3),
}
"""Kind of a row -> title of its axis, title of its legend, and its units in one of the axis."""


def cost(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return dollars, energy and carbon in a panel each, the slowest system first."""
    times = frame.group_by("accelerator").agg(pl.col("training_seconds").min())
    order = times.sort("training_seconds", descending=True)["accelerator"].to_list()
    latest = frame["year"].max()
    panels: list[ChartType] = []
    for kind, (title, key, unit) in PANELS.items():
        rows = frame.filter(pl.col("kind") == kind)
        if rows.is_empty():
            continue
        if kind == "price" and parts.most(rows["quantity"]) >= MILLION:
            title, unit = "Million dollars", MILLION
        amounts = [value / unit for value in rows["quantity"].to_list()]
        years = ["" if year in (None, latest) else f" ({year})" for year in rows["year"].to_list()]
        labels = [f"{parts.figure(n, 3)}{year}" for n, year in zip(amounts, years, strict=True)]
        rows = rows.with_columns(
            source=pl.col("source").replace(BASES),
            quantity=pl.Series(amounts),
            label=pl.Series(labels),
        )
        panels.append(_bars(rows, order, title, key, theme, is_first=not panels))
    picture: ChartType = alt.hconcat(*panels, spacing=26).resolve_scale(color="independent")
    width = len(panels) * (WIDTH + 30) + 60
    return picture.properties(title=parts.headed(_finding(frame), _shown(frame), width))


def _bars(
    frame: pl.DataFrame, order: list[str], title: str, key: str | None, theme: Theme, is_first: bool
) -> ChartType:
    known = [name for name in BASES.values() if name in frame["source"]]
    sources = known or frame.sort("quantity")["source"].unique(maintain_order=True).to_list()
    # the longest bar leaves room for its figure
    scale = alt.Scale(domain=[0, parts.most(frame["quantity"]) * 1.35], nice=False)
    base = alt.Chart(frame).encode(
        y=alt.Y("accelerator:N", sort=order, title=None).axis(
            labels=is_first, ticks=is_first, labelLimit=LABEL
        ),
        x=alt.X("quantity:Q", title=title, scale=scale).axis(format=",~r", grid=True, tickCount=4),
    )
    if key is None:
        bars = base.mark_bar(size=22, color=theme.faint)
    else:
        legend = alt.Legend(title=key, orient="bottom", columns=1)
        base = base.encode(yOffset=alt.YOffset("source:N", sort=sources))
        bars = base.mark_bar().encode(color=parts.colours("source", sources, theme, legend=legend))
    words = base.mark_text(align="left", dx=4, fontSize=12).encode(text="label:N")
    return alt.layer(bars, words).properties(width=WIDTH, height=GROUP * len(order))


def _finding(frame: pl.DataFrame) -> str:
    rented = frame.filter(pl.col("source") == "on_demand").sort("quantity")
    energy = frame.filter(pl.col("kind") == "energy").sort("quantity")
    words = []
    if not rented.is_empty():
        best = rented.row(0, named=True)
        said, name = _dollars(best["quantity"]), best["accelerator"]
        if rented.height == 1:
            words.append(f"{name} costs {said} on demand")
        else:
            other = f"{rented['accelerator'][1]} {_dollars(rented['quantity'][1])}"
            words.append(f"{name} is the cheapest on demand: {said}, {other}")
    if not energy.is_empty():
        least = energy.row(0, named=True)
        words.append(
            f"{least['accelerator']} takes {parts.figure(least['quantity'] / 1e3, 3)} MWh"
            f"{_between_grids(frame, least['accelerator'])}"
        )
    return "; ".join(words) or f"{frame['accelerator'][0]} has no price on demand and no energy"


def _between_grids(frame: pl.DataFrame, accelerator: str) -> str:
    grids = frame.filter(pl.col("kind") == "grid", pl.col("accelerator") == accelerator)
    if grids.height < 2:
        return ""
    low, high = (end(grids["quantity"]) / 1e3 for end in (parts.least, parts.most))
    return f", {parts.figure(low)} to {parts.figure(high)} tonnes of CO2e by grid"


def _dollars(value: float) -> str:
    if value >= MILLION:
        return f"{parts.figure(value / MILLION, 3)} million dollars"
    return f"{parts.figure(value, 3)} dollars"


def _shown(frame: pl.DataFrame) -> str:
    first = frame.row(0, named=True)
    counts = set(frame["num_gpus"].drop_nulls().to_list())
    gpus = f"on {counts.pop():,.0f} GPUs" if len(counts) == 1 else "each on its cheapest count"
    dated = sorted(set(frame["year"].drop_nulls().to_list()))
    prices = f"prices of {dated[-1]}, others with their year; " if dated else ""
    return (
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']} {gpus}, by the "
        f"best layout; {prices}energy with the site's overhead; {parts.estimate_words(frame)}"
    )
