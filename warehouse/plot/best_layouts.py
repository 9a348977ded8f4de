"""The best layout on each number of GPUs: degrees and memory above, parts of the step below.

Source of the picture: the two panels of optimal configurations in arXiv 2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from warehouse.plot import parts
from warehouse.plot.layouts import panels
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/best_layouts.sql."""
    named = frame.sort("num_gpus").with_columns(
        place=pl.col("num_gpus").map_elements(lambda count: f"{count:,}", return_dtype=pl.String)
    )
    return panels(named, "Number of GPUs", finding(frame), shown(frame), theme)


def finding(frame: pl.DataFrame) -> str:
    """Return the largest part of the step besides arithmetic on the most GPUs."""
    last = frame.sort("num_gpus").row(-1, named=True)
    share = last["compute_seconds"] / last["step_seconds"]
    others = {
        name: last[name] or 0.0
        for name in parts.STEP_PARTS
        if name not in ("compute_seconds",) and name in last
    }
    largest = max(others, key=lambda name: others[name])
    return (
        f"On {last['num_gpus']:,} {last['accelerator']}, arithmetic is {share:.0%} of the step, "
        f"{parts.STEP_PARTS[largest]} {others[largest] / last['step_seconds']:.0%}"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"The best layout of {first['model']} on each number of {parts.system_of(first)}, "
        f"batches of {first['global_batch_size']:,} sequences; in bold the memory of a GPU and the "
        f"seconds of a step; {parts.estimate_words(frame)}"
    )
