"""Days of a run over the capacity of a GPU's memory and its rate of arithmetic.

Source of the picture: the sweep over FLOP rates, capacity and bandwidth of arXiv 2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from warehouse.plot import grid
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

X = grid.Side("hbm_bytes", "Memory capacity (GB); bandwidth grows with it", 1e9)
Y = grid.Side("matrix_flops_per_second", "Matrix arithmetic (TFLOP/s)", 1e12)


def chart(frame: pl.DataFrame, _theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/flops_and_hbm_capacity.sql."""
    gains = f"{frame['accelerator'][0]} with other memory and arithmetic"
    return grid.picture(frame, X, Y, finding(frame), gains)


def finding(frame: pl.DataFrame) -> str:
    """Return what faster arithmetic gains with the most memory, and with the least."""
    rates = frame[Y.column].to_list()
    sizes = frame[X.column].to_list()
    times = max(rates) / min(rates)
    return (
        f"{times:.2g} times the FLOP/s trains {_gain(frame, min(sizes)):.2g} times as fast with "
        f"the least memory, {_gain(frame, max(sizes)):.2g} times with the most"
    )


def _gain(frame: pl.DataFrame, size: float) -> float:
    """Return how much faster the fastest arithmetic is than the slowest, at a memory capacity."""
    days = frame.filter(pl.col(X.column) == size).sort(Y.column)["training_days"].to_list()
    return float(days[0] / days[-1])
