"""Configurations A, B, C ...: the same degrees but for pipeline stages and replicas.

Source of the picture: the configurations A to H of arXiv 2410.00273, which trade pipeline stages
for replicas at one tensor-parallel degree.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

import polars as pl

from warehouse.plot import parts
from warehouse.plot.layouts import panels
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/configurations.sql."""
    named = lettered(frame)
    return panels(named, "Configuration", finding(named), shown(named), theme)


def lettered(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by pipeline stages with a letter each; a star exceeds the memory."""
    # rates that differ in their last digits make problems of their own
    rows = frame.sort("step_seconds").unique("pipeline_parallel", keep="first")
    rows = rows.sort("pipeline_parallel").head(len(ascii_uppercase))
    letters = pl.Series("place", list(ascii_uppercase[: rows.height]))
    star = pl.when(pl.col("fits_memory") == pl.lit(False)).then(pl.lit(" *")).otherwise(pl.lit(""))
    return rows.with_columns(letters).with_columns(place=pl.col("place") + star)


def finding(frame: pl.DataFrame) -> str:
    """Return the fastest configuration that fits, and what limits its ends."""
    fitting = frame.filter(pl.col("fits_memory") != pl.lit(False)).sort("step_seconds")
    if fitting.is_empty():
        return "No configuration fits in memory"
    best, worst = fitting.row(0, named=True), fitting.row(-1, named=True)
    stages = parts.counted(best["pipeline_parallel"], "pipeline stage")
    said = (
        f"{best['place']}, with {stages}, is the fastest that fits: "
        f"{parts.figure(best['step_seconds'], 3)} s"
    )
    if fitting.height == 1:
        return said
    slower = parts.longer(worst["step_seconds"] / best["step_seconds"])
    return f"{said}, {worst['place']} takes {slower}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"{first['model']} on {first['num_gpus']:,} {parts.system_of(first)}, "
        f"tensor-parallel degree {first['tensor_parallel']}, the fastest microbatch and placement "
        f"of each; in bold the memory of a GPU and the seconds of a step; a star exceeds "
        f"{first['hbm_bytes'] / 1e9:,.0f} GB; {parts.estimate_words(frame)}"
    )
