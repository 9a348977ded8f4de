"""Where published layouts lie in the distribution of all layouts of their problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, RED, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

WIDTH, ROW = 520, 34


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/layout_rank.sql."""
    rows = frame.sort("num_gpus", "published_row").with_columns(
        label=pl.format("{}, {} GPUs", "published_row", "num_gpus"),
        rank=pl.format("rank {} of {}", "rank_by_time", "num_fitting_layouts"),
    )
    order = rows["label"].to_list()
    high = max(rows["slowest_tenth"].to_list())
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500) if tick <= high]
    scale = alt.Scale(type="log", domain=[0.97, high * 1.05], nice=False)
    axis = alt.Axis(
        title="Step time over that of the fastest layout", values=ticks, format="~r", grid=True
    )
    y = alt.Y("label:N", sort=order, title=None)
    base = alt.Chart(rows).encode(y=y)
    wide = base.mark_bar(height=9, color=theme.blue, opacity=0.3).encode(
        x=alt.X("fastest_tenth:Q", scale=scale, axis=axis), x2="slowest_tenth:Q"
    )
    narrow = base.mark_bar(height=17, color=theme.blue, opacity=0.55).encode(
        x=alt.X("fastest_quarter:Q", scale=scale), x2="slowest_quarter:Q"
    )
    middle = base.mark_tick(thickness=2.5, size=20, color=theme.ink).encode(
        x=alt.X("median:Q", scale=scale)
    )
    mark = base.mark_point(shape="diamond", size=130, filled=True, color=RED, opacity=1).encode(
        x=alt.X("speedup_of_best:Q", scale=scale)
    )
    words = base.mark_text(align="left", fontSize=12).encode(x=alt.value(WIDTH + 10), text="rank:N")
    return alt.layer(wide, narrow, middle, mark, words).properties(
        title=parts.headed(finding(frame), shown(frame), WIDTH + 220),
        width=WIDTH,
        height=ROW * len(order),
    )


def finding(frame: pl.DataFrame) -> str:
    """Return how far ahead of the published layouts the best are, and the published ones' rank."""
    shares = frame["rank_by_time"] / frame["num_fitting_layouts"]
    share, gain = parts.middle(shares), parts.middle(frame["speedup_of_best"]) - 1
    return (
        f"Half of the published layouts are in the fastest {max(share, 0.01):.0%} of their "
        f"problem; the best layouts are {gain:.0%} faster"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    return (
        "All layouts of the same model, batch and GPUs that fit in memory: bars span the middle "
        "half and eight tenths of their step times, a tick is the median, a diamond the published "
        f"layout; the best layouts' gain is a median; {parts.estimate_words(frame)}"
    )
