"""Lines of several systems: a colour for the accelerator, dashes and a shape for its domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot.parts import hues, listed
from warehouse.plot.theme import DASHES, SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.plot.theme import Theme

MOST_DOMAINS = len(DASHES)
"""Sizes of NVLink domains that one picture can tell apart."""


def distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the NVLink domains with most rows, as many as a chart can distinguish."""
    counted = frame.group_by("nvlink_size").len().sort(["len", "nvlink_size"], descending=True)
    kept = counted["nvlink_size"].head(MOST_DOMAINS)
    return frame.filter(pl.col("nvlink_size").is_in(kept.implode(), nulls_equal=True))


def lines(
    frame: pl.DataFrame, x: alt.X, y: alt.Y, order: Sequence[str], theme: Theme
) -> list[alt.Chart]:
    """Return a line with points for each system of a frame.

    Parameters
    ----------
    frame
        Rows with columns `accelerator`, `nvlink_size`, and those of both axes.
    order
        The accelerators, as the legend has them.
    """
    domains = sorted({size for size in frame["nvlink_size"].to_list() if size is not None})
    names = [str(size) for size in domains]
    rows = alt.Chart(frame.with_columns(domain=pl.col("nvlink_size").cast(pl.String)))
    encodings: dict[str, Any] = {"x": x, "y": y, "color": colour(order, theme)}
    if len(names) < 2:
        return [rows.mark_line(point=True).encode(**encodings)]
    dashes, shapes = [list(dash) for dash in DASHES], list(SHAPES)
    # with an explicit domain, as for shapes, Vega-Lite would hide both legends
    dash = alt.Scale(range=dashes[: len(names)])
    shape = alt.Scale(domain=names, range=shapes[: len(names)])
    return [
        rows.mark_line().encode(
            strokeDash=alt.StrokeDash("domain:N", sort=names, scale=dash, legend=None), **encodings
        ),
        rows.mark_point(opacity=1).encode(
            shape=alt.Shape("domain:N", scale=shape, legend=alt.Legend(title="NVLink domain")),
            **encodings,
        ),
    ]


def colour(names: Sequence[str], theme: Theme) -> alt.Color:
    """Return the colours of accelerators, in the order of the legend."""
    scale = hues(names, theme)
    return alt.Color("accelerator:N", scale=scale, title="Accelerator")


def by_least(frame: pl.DataFrame, column: str, *, descending: bool = False) -> list[str]:
    """Return the accelerators by their least value of a column."""
    least = frame.group_by("accelerator").agg(pl.col(column).min())
    return least.sort([column, "accelerator"], descending=descending)["accelerator"].to_list()


def domain_words(frame: pl.DataFrame) -> str:
    """Return the NVLink domains of a frame in words."""
    sizes = sorted({size for size in frame["nvlink_size"].to_list() if size is not None})
    return f"NVLink domains of {listed(sizes)} GPUs" if sizes else "no NVLink domain"
