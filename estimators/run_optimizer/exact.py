"""The best whole-number degrees for a number of devices, and their best whole microbatches.

For given degrees the time of a step over the number m of microbatches consists of pieces
``alpha + beta m + gamma / m`` with beta >= 0. The best whole m of a piece is one of its ends, or a
neighbour of ``sqrt(gamma / beta)``. Trying all of these finds the best m without trying every m.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.contract import Array, Columns, Scalar, Values
from estimators.enumeration import enumerate_layouts, split_over
from estimators.run_optimizer.step import DEGREES, layer_seconds, model_of, step_of


def layouts_of(values: Values, kept: Mapping[str, Scalar]) -> Columns:
    """Return every ordered factorisation of the devices, each with its best microbatches."""
    model = model_of(values)
    columns = enumerate_layouts(values, split_over(int(values["num_gpus"]), DEGREES), (), kept)
    most = np.floor(model["batch_tokens"] / columns["data_parallel"])
    stages = columns["pipeline_parallel"]
    possible = (stages <= model["num_layers"]) & (stages <= most)
    columns = {name: column[possible].astype(np.float64) for name, column in columns.items()}
    columns["num_microbatches"] = best_microbatches(values, columns, most[possible])
    if "num_microbatches" in kept:
        wanted = columns["num_microbatches"] == kept["num_microbatches"]
        columns = {name: column[wanted] for name, column in columns.items()}
    return columns


def best_microbatches(values: Values, columns: Columns, most: Array) -> Array:
    """Return for each row of degrees the whole number of microbatches that takes least time.

    Parameters
    ----------
    columns
        The degrees, float64.
    most
        Largest number allowed in each row: a microbatch has a token.
    """
    if len(most) == 0:
        return np.empty(0)
    model = model_of(values)
    least = columns["pipeline_parallel"]
    best, shortest = least.copy(), np.full(len(least), np.inf)
    for candidate in _candidates(values, columns, model):
        for rounded in (np.floor(candidate), np.ceil(candidate)):
            tried = np.clip(np.nan_to_num(rounded, nan=1.0, posinf=1e18), least, most)
            layouts = {**columns, "num_microbatches": tried}
            time = step_of(values, layouts, model)["step_seconds"]
            better = (time < shortest) | ((time == shortest) & (tried < best))
            best, shortest = np.where(better, tried, best), np.where(better, time, shortest)
    return best


def _candidates(values: Values, columns: Columns, model: dict[str, Any]) -> list[Array]:
    """Return where pieces may end, and where a piece may have its least value; real numbers."""
    batch, sync = layer_seconds(values, columns, model)
    a, b, c = batch["compute"], batch["memory"], batch["network"]
    stages = columns["pipeline_parallel"]
    others = 2 * model["num_layers"] / stages - 1
    longest = np.maximum(a, c)
    with np.errstate(all="ignore"):
        ends = [
            a / (b + sync["memory"]),
            (a - c) / sync["network"],
            c / (b + sync["memory"] - sync["network"]),
            (np.maximum(a, c + sync["network"]) - sync["memory"]) / b,
            longest / b,
        ]
        falling = [
            first + third
            for first, third in itertools.product(
                (np.zeros_like(a), a, c), (np.zeros_like(a), (2 * stages - 3) * longest)
            )
        ]
        rising = [others * b, b, (others + 1) * b]
        turns = [np.sqrt(g / r) for g, r in itertools.product(falling, rising)]
    return [np.zeros_like(a), np.full_like(a, np.inf), *ends, *turns]
