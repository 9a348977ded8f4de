"""Lines of relative speed: a colour for the number of GPUs, a dash for the NVLink domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import DASHES, HEIGHT, SHAPES, WIDTH

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme


def lines(
    frame: pl.DataFrame, x: alt.X, column: str, finding: str, shown: str, theme: Theme
) -> ChartType:
    """Return lines of `relative_speed` over a column of a frame, by `num_gpus`.

    Where the column is not the NVLink domain and rows have several, each has its dash.
    """
    counts = sorted(set(frame["num_gpus"].to_list()))
    names = [f"{count:,}" for count in counts]
    rows = frame.with_columns(
        gpus=pl.col("num_gpus").replace_strict(dict(zip(counts, names, strict=True))),
        domain=pl.col("nvlink_size").cast(pl.String),
    )
    few = len(names) <= len(SHAPES)
    colours = list(theme.palette[: len(names)]) if few else theme.ramp(len(names))
    scale, axis = alt.Scale(zero=False), alt.Axis(title="Relative speed", format=".2~f", grid=True)
    colour = alt.Color(
        "gpus:N",
        scale=alt.Scale(domain=names, range=colours),
        title="GPUs",
    )
    base = alt.Chart(rows).encode(
        x=x, y=alt.Y("relative_speed:Q", scale=scale, axis=axis), color=colour
    )
    domains = sorted(set(frame["nvlink_size"].drop_nulls().to_list()))
    if column == "nvlink_size" or len(domains) < 2:
        layers = [base.mark_line(point=True)]
    else:
        order = [str(size) for size in domains]
        dash = alt.Scale(range=[list(DASHES[n % len(DASHES)]) for n in range(len(order))])
        shape = alt.Scale(domain=order, range=[SHAPES[n % len(SHAPES)] for n in range(len(order))])
        layers = [
            base.mark_line().encode(
                strokeDash=alt.StrokeDash("domain:N", sort=order, scale=dash, legend=None)
            ),
            base.mark_point(opacity=1).encode(
                shape=alt.Shape("domain:N", scale=shape, legend=alt.Legend(title="NVLink domain"))
            ),
        ]
    return alt.layer(parts.level(1, scale, axis), *layers).properties(
        title=parts.headed(finding, shown), width=WIDTH, height=HEIGHT
    )
