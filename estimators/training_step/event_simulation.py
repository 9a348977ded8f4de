"""Event simulation of a step, for pipelines without a single slowest rank.

If different ranks have the largest stage of different chunks, ranks wait for each other in every
round, and no fixed sum of passes gives the time. The step is then run pass by pass, for many
layouts at once.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from estimators.contract import Array
from estimators.training_step.critical_path import stage_work
from estimators.training_step.in_flight import chunk_order, warm_up
from estimators.training_step.placement import Case

SETTLED = 8
"""Number of groups of microbatches after which each further group takes as long as the one before:
5 in the tests."""

Pass = tuple[int, int, int, int]
"""Direction (0 forward, 1 backward), microbatch, chunk and rank."""


def alternates(case: Case, seconds: Array) -> Array:
    """Return for each row whether no rank has the largest stage in every chunk.

    Parameters
    ----------
    seconds
        See `critical_path.longest`.
    """
    forward, backward = stage_work(case)
    stages = (forward + backward) @ seconds
    largest = stages >= stages.max(axis=0) * (1 - 1e-9)
    return np.asarray(~largest.all(axis=1).any(axis=0))


def simulated(
    case: Case, num_microbatches: int, group: int, seconds: Array, ahead: int = 0
) -> Array:
    """Return the seconds of a step in each row.

    Parameters
    ----------
    case, num_microbatches, group, ahead
        See `in_flight.held_of`.
    seconds
        See `critical_path.longest`.
    """
    groups = num_microbatches // group
    more = max(groups - SETTLED, 0)
    last = _run(case, num_microbatches - more * group, group, seconds, ahead)
    if not more:
        return last
    before = _run(case, num_microbatches - (more + 1) * group, group, seconds, ahead)
    return np.asarray(last + more * (last - before))


def _run(case: Case, num_microbatches: int, group: int, seconds: Array, ahead: int) -> Array:
    """Return the seconds in which every pass has run, one element a row."""
    work = [counts @ seconds for counts in stage_work(case)]
    end: dict[Pass, Array] = {}
    clock = [np.zeros(seconds.shape[1]) for _ in range(case.ranks)]
    for current in _in_order(case, num_microbatches, group, ahead):
        direction, _, chunk, rank = current
        source = source_of(current, case.ranks, case.chunks)
        begin = clock[rank] if source is None else np.maximum(clock[rank], end.pop(source))
        clock[rank] = begin + work[direction][rank, chunk]
        end[current] = clock[rank]
    return np.asarray(np.max(np.stack(clock), axis=0))


@lru_cache(maxsize=64)
def _in_order(case: Case, num_microbatches: int, group: int, ahead: int) -> tuple[Pass, ...]:
    """Return all passes, each after those that it waits for."""
    todo = [
        list(reversed(program(rank, case.ranks, case.chunks, num_microbatches, group, ahead)))
        for rank in range(case.ranks)
    ]
    done: set[Pass] = set()
    order: list[Pass] = []
    while any(todo):
        before = len(order)
        for of_rank in todo:
            while of_rank and _is_ready(of_rank[-1], case, done):
                order.append(of_rank.pop())
                done.add(order[-1])
        if len(order) == before:
            raise RuntimeError("every rank waits for another")
    return tuple(order)


def program(
    rank: int, ranks: int, chunks: int, num_microbatches: int, group: int, ahead: int = 0
) -> list[Pass]:
    """Return the passes of a rank in order: warm-up, a forward and a backward in turn, the rest."""
    begins = range(0, num_microbatches, group if chunks > 1 else num_microbatches)
    size = group if chunks > 1 else num_microbatches
    microbatches = [
        number
        for begin in begins
        for _ in range(chunks)
        for number in range(begin, min(begin + size, num_microbatches))
    ]
    order = chunk_order(num_microbatches, chunks, size).tolist()
    forward = [(0, n, chunk, rank) for n, chunk in zip(microbatches, order, strict=True)]
    backward = [
        (1, n, chunks - 1 - chunk, rank) for n, chunk in zip(microbatches, order, strict=True)
    ]
    warm = warm_up(rank, ranks, chunks, num_microbatches, size)
    warm = min(warm + (ahead if chunks > 1 else 0), len(forward))
    steady = [*itertools.chain.from_iterable(zip(forward[warm:], backward, strict=False))]
    return [*forward[:warm], *steady, *backward[len(forward) - warm :]]


def source_of(waiting: Pass, ranks: int, chunks: int) -> Pass | None:
    """Return the pass whose result a pass works on; None for a microbatch's first."""
    direction, microbatch, chunk, rank = waiting
    stage = chunk * ranks + rank
    if direction == 0:
        before = stage - 1
        return None if stage == 0 else (0, microbatch, before // ranks, before % ranks)
    if stage == ranks * chunks - 1:
        return (0, microbatch, chunk, rank)
    behind = stage + 1
    return (1, microbatch, behind // ranks, behind % ranks)


def _is_ready(waiting: Pass, case: Case, done: set[Pass]) -> bool:
    source = source_of(waiting, case.ranks, case.chunks)
    return source is None or source in done
