"""The greedy path: from one device on, each step multiplies the degree that helps most by 1.025.

Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41. Its choice among equal candidates depends
on rounding; here `tie_rule` decides.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.run_optimizer.step import DEGREES, model_of, step_of

GROWTH = 1.025
EXPONENTS = np.arange(920) * 0.025
"""Microbatches tried: powers of two from 2^0 to 2^22.975."""

TIE = 1e-9
"""Candidates within this relative distance of the fastest are equal."""


def num_steps(values: Values) -> int:
    """Return how many steps lead to the largest number of devices, or just beyond."""
    return math.ceil(math.log2(values["max_num_gpus"]) / math.log2(GROWTH))


def walk(values: Values) -> dict[str, Array]:
    """Return the path: `path_step`, degrees and microbatches, one element a step."""
    found = _walk(tuple(sorted((k, v) for k, v in values.items() if v is not None)))
    return {name: column.copy() for name, column in found.items()}


@lru_cache(maxsize=32)
def _walk(items: tuple[tuple[str, Any], ...]) -> dict[str, Array]:
    """Return the path of a problem given as sorted items, so that it can be cached."""
    values = dict(items)
    steps = num_steps(values)
    model = model_of(values)
    layers = float(model["num_layers"])
    microbatches = np.repeat(2.0**EXPONENTS, len(DEGREES))
    directions = np.tile(np.eye(len(DEGREES)), (len(EXPONENTS), 1)) * (GROWTH - 1) + 1
    degrees = np.ones(len(DEGREES))
    chosen, path = 1.0, [np.append(degrees, 1.0)]
    for _ in range(steps):
        candidates = degrees * directions
        stages = candidates[:, 0]
        possible = np.flatnonzero((stages <= layers) & (stages <= microbatches))
        columns = {name: candidates[possible, i] for i, name in enumerate(DEGREES)}
        columns["num_microbatches"] = microbatches[possible]
        time = step_of(values, columns, model)["step_seconds"]
        best = possible[_pick(time, columns["num_microbatches"], values["tie_rule"])]
        degrees, chosen = candidates[best], microbatches[best]
        path.append(np.append(degrees, chosen))
    table = np.array(path)
    columns = {name: table[:, i] for i, name in enumerate((*DEGREES, "num_microbatches"))}
    return {"path_step": np.arange(steps + 1), **columns}


def _pick(time: Array, microbatches: Array, tie_rule: str) -> int:
    """Return the candidate to take: candidates run by microbatches, then by direction."""
    equal = np.flatnonzero(time <= time.min() * (1 + TIE))
    if tie_rule == "last":
        return int(equal[-1])
    if tie_rule == "most_microbatches":
        equal = equal[microbatches[equal] == microbatches[equal].max()]
    return int(equal[0])
