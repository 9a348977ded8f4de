"""The degrees of a run: every factorisation of its devices, or a greedy path.

The greedy path begins with one device; each step multiplies the degree that helps most by 1.025.
Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41. Its choice among equal candidates depends
on rounding; here `tie_rule` decides.

For given degrees the time of a step over the number m of microbatches consists of pieces
``alpha + beta m + gamma / m`` with beta >= 0. The best whole m of a piece is one of its ends, or a
neighbour of ``sqrt(gamma / beta)``. Trying all of these finds the best m without trying every m.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

import numpy as np

from estimators.contract import Array, Columns, Scalar, Values
from estimators.enumeration import enumerate_layouts, split_over
from estimators.run_optimizer.step import (
    Degrees,
    Problem,
    layer_seconds,
    phase_seconds,
    step_seconds,
)

DEGREES = tuple(field.name for field in fields(Degrees))
GROWTH = 1.025
EXPONENTS = np.arange(920) * 0.025
"""Microbatches tried on the path: powers of two from 2^0 to 2^22.975."""

TIE = 1e-9
"""Candidates within this relative distance of the fastest are equal."""


def factorisations(values: Values, kept: Mapping[str, Scalar]) -> Columns:
    """Return every ordered factorisation of the devices, each with its best microbatches."""
    problem = Problem.of(values)
    columns = enumerate_layouts(values, split_over(int(values["num_gpus"]), DEGREES), (), kept)
    most = np.floor(problem.model.batch_tokens / columns["data_parallel"])
    stages = columns["pipeline_parallel"]
    possible = (stages <= problem.model.num_layers) & (stages <= most)
    columns = {name: column[possible].astype(np.float64) for name, column in columns.items()}
    microbatches = best_microbatches(problem, Degrees.of(columns), most[possible])
    return with_values({**columns, "num_microbatches": microbatches}, kept)


def with_values(columns: Columns, kept: Mapping[str, Scalar]) -> Columns:
    """Return the rows that have the kept values."""
    wanted = np.ones(len(columns["num_microbatches"]), dtype=bool)
    for name, value in kept.items():
        wanted &= columns[name] == value
    return {name: column[wanted] for name, column in columns.items()}


def best_microbatches(problem: Problem, degrees: Degrees, most: Array) -> Array:
    """Return for each row of degrees the whole number of microbatches that takes least time.

    Parameters
    ----------
    most
        Largest number allowed in each row: a microbatch has a token.
    """
    least = np.asarray(degrees.pipeline_parallel)
    best, shortest = least.copy(), np.full(len(least), np.inf)
    for candidate in _candidates(problem, degrees):
        for rounded in (np.floor(candidate), np.ceil(candidate)):
            tried = np.clip(np.nan_to_num(rounded, nan=1.0, posinf=1e18), least, most)
            time = step_seconds(phase_seconds(problem, degrees, tried))
            better = (time < shortest) | ((time == shortest) & (tried < best))
            best, shortest = np.where(better, tried, best), np.where(better, time, shortest)
    return best


def _candidates(problem: Problem, degrees: Degrees) -> list[Array]:
    """Return where pieces may end, and where a piece may have its least value; real numbers."""
    batch, gradients = layer_seconds(problem, degrees)
    a, b, c = np.asarray(batch.compute), np.asarray(batch.memory), np.asarray(batch.network)
    stages = degrees.pipeline_parallel
    others = 2 * problem.model.num_layers / stages - 1
    longest = np.maximum(a, c)
    with np.errstate(all="ignore"):
        ends = [
            a / (b + gradients.memory),
            (a - c) / gradients.network,
            c / (b + gradients.memory - gradients.network),
            (np.maximum(a, c + gradients.network) - gradients.memory) / b,
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


@lru_cache(maxsize=32)
def walk(problem: Problem, max_num_gpus: float, tie_rule: str) -> Columns:
    """Return the path to a number of devices or just beyond: one element a step.

    The columns are `path_step`, the degrees and the microbatches.
    """
    steps = math.ceil(math.log2(max_num_gpus) / math.log2(GROWTH))
    microbatches = np.repeat(2.0**EXPONENTS, len(DEGREES))
    directions = np.tile(np.eye(len(DEGREES)), (len(EXPONENTS), 1)) * (GROWTH - 1) + 1
    degrees = np.ones(len(DEGREES))
    path = [np.append(degrees, 1.0)]
    for _ in range(steps):
        candidates = degrees * directions
        stages = candidates[:, 0]
        possible = np.flatnonzero((stages <= problem.model.num_layers) & (stages <= microbatches))
        tried = microbatches[possible]
        phases = phase_seconds(problem, Degrees(*candidates[possible].T), tried)
        best = possible[_pick(np.asarray(step_seconds(phases)), tried, tie_rule)]
        degrees = candidates[best]
        path.append(np.append(degrees, microbatches[best]))
    columns = dict(zip((*DEGREES, "num_microbatches"), np.array(path).T, strict=True))
    return {"path_step": np.arange(steps + 1), **columns}


def _pick(time: Array, microbatches: Array, tie_rule: str) -> int:
    """Return the candidate to take: candidates run by microbatches, then by direction."""
    equal = np.flatnonzero(time <= time.min() * (1 + TIE))
    if tie_rule == "last":
        return int(equal[-1])
    if tie_rule == "most_microbatches":
        equal = equal[microbatches[equal] == microbatches[equal].max()]
    return int(equal[0])
