"""A measured run that the command line describes, as a frame of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from warehouse.errors import UsageError
from warehouse.evaluate.one import read_pairs
from warehouse.launch.logs import read_log
from warehouse.launch.read import with_launch
from warehouse.measure.read import RUN, find_estimator
from warehouse.measure.speeds import FLOPS, GPU_TOKENS, MFU, SECONDS, TOKENS
from warehouse.options import given

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from warehouse.options import RunOptions, SpeedOptions

PLACE = "the run"
"""The run in errors, and its source in the database."""

_COLUMNS = {
    "seconds": (SECONDS, 1.0),
    "tokens_per_second": (TOKENS, 1.0),
    "tokens_per_second_per_gpu": (GPU_TOKENS, 1.0),
    "tflops": (FLOPS, 1e12),
    "mfu": (MFU, 1.0),
}
"""Option of a speed -> its column and the factor to base units."""


def one_run(
    name: str,
    pairs: Sequence[str],
    options: RunOptions,
    speed: SpeedOptions,
    estimator: str | None,
    launch: Path | None = None,
    log: Path | None = None,
) -> tuple[pl.DataFrame, list[str]]:
    """Return the run called `name` with its one speed, and remarks on the files it is read from.

    `pairs` are texts such as num_gpus=64. A log of the run stands for its speed.
    """
    chosen = find_estimator(estimator)
    relation, remarks = chosen.relations[0], []
    texts = read_pairs(chosen, relation, [*options.pairs(), *pairs])
    if launch is not None:
        texts, read = with_launch(launch, texts, chosen, relation)
        remarks = read.every_line()
    frame = pl.DataFrame({RUN: [name], **{key: [text] for key, text in texts.items()}})
    if log is not None:
        logged = read_log(log, texts)
        remarks.append(f"{log}: {logged.note}")
        figures = {SECONDS: logged.seconds, "source": str(log), "note": logged.note}
        return frame.with_columns(**{key: pl.lit(value) for key, value in figures.items()}), remarks
    speeds = given(speed)
    if len(speeds) > 1:
        names = " and ".join(f"`--{option.replace('_', '-')}`" for option in speeds)
        raise UsageError(f"{names}: a run has one speed", "give one of them")
    [(option, value)] = speeds.items()
    column, factor = _COLUMNS[option]
    return frame.with_columns(pl.lit(value * factor).alias(column)), remarks
