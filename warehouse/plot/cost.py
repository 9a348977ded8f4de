"""Dollars of a run by system and kind of price, and its carbon by system and grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, Theme
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType

WIDTH, GROUP = 300, 92

BASES = {
    "on_demand": "on demand",
    "one_year": "one year",
    "three_year": "three years",
    "spot": "spot",
    "owned": "owned",
    "given": "given",
}
"""Basis of a price -> what people call it."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/cost.sql: dollars, and carbon."""
    order = _systems(frame)
    panels: list[ChartType] = []
    dollars = frame.filter(pl.col("kind") == "price").with_columns(
        source=pl.col("source").replace(BASES), quantity=pl.col("quantity") / 1e6
    )
    carbon = frame.filter(pl.col("kind") == "grid").with_columns(quantity=pl.col("quantity") / 1e3)
    if not dollars.is_empty():
        panels.append(_bars(dollars, order, "Million dollars", "Price", theme))
    if not carbon.is_empty():
        panels.append(_bars(carbon, order, "Tonnes of CO2e", "Grid", theme))
    both: ChartType = alt.hconcat(*panels, spacing=40).resolve_scale(color="independent")
    width = len(panels) * (WIDTH + 220)
    return both.properties(title=parts.headed(finding(frame), shown(frame), width))


def _systems(frame: pl.DataFrame) -> list[str]:
    """Return the systems, slowest first."""
    times = frame.group_by("accelerator").agg(pl.col("training_seconds").min())
    return times.sort("training_seconds", descending=True)["accelerator"].to_list()


def _bars(frame: pl.DataFrame, order: list[str], title: str, key: str, theme: Theme) -> ChartType:
    known = [name for name in BASES.values() if name in frame["source"]]
    sources = known or frame.sort("quantity")["source"].unique(maintain_order=True).to_list()
    base = alt.Chart(frame).encode(
        y=alt.Y("accelerator:N", sort=order, title=None),
        yOffset=alt.YOffset("source:N", sort=sources),
        x=alt.X("quantity:Q", title=title).axis(format=",~s", grid=True),
    )
    bars = base.mark_bar().encode(
        color=alt.Color(
            "source:N",
            scale=alt.Scale(domain=sources, range=list(theme.palette[: len(sources)])),
            legend=alt.Legend(title=key, orient="bottom", columns=2),
        )
    )
    words = base.mark_text(align="left", dx=4, fontSize=11).encode(
        text=alt.Text("quantity:Q", format=",.3~r")
    )
    found: ChartType = alt.layer(bars, words).properties(width=WIDTH, height=GROUP * len(order))
    return found


def finding(frame: pl.DataFrame) -> str:
    """Return the cheapest system to rent, and the cleanest."""
    rented = frame.filter(pl.col("source") == "on_demand").sort("quantity")
    carbon = frame.filter(pl.col("kind") == "grid").sort("quantity")
    words = []
    if not rented.is_empty():
        best = rented.row(0, named=True)
        said = (
            f"{best['accelerator']} is the cheapest on demand: "
            f"{parts.figure(best['quantity'] / 1e6)} million dollars"
        )
        if rented.height > 1:
            said += f", {rented['accelerator'][1]} {parts.figure(rented['quantity'][1] / 1e6)}"
        words.append(said)
    if not carbon.is_empty():
        clean = carbon.filter(pl.col("accelerator") == carbon["accelerator"][0])
        ratio = clean["quantity"][-1] / clean["quantity"][0]
        if ratio > 1:
            words.append(f"its site decides on {parts.figure(ratio)} times the carbon")
    return "; ".join(words)


def shown(frame: pl.DataFrame) -> str:
    """Return what the picture shows."""
    first = frame.row(0, named=True)
    gpus = f" on {first['num_gpus']:,.0f} GPUs" if first["num_gpus"] else ""
    return (
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']}{gpus}, by the "
        "best layout: the last published price of an hour of each kind, and carbon of the site's "
        f"energy in each grid; {parts.estimate_words(frame)}"
    )
