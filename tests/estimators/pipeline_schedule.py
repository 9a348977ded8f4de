"""Brute force for the closed forms of pipeline schedules: every pass of one step, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FORWARD, BACKWARD = 0, 1
Pass = tuple[int, int, int]
"""Direction, microbatch, and chunk of the model, counted over all stages."""


@dataclass(frozen=True)
class Schedule:
    """What came of one step; each array has an element per stage."""

    makespan: float
    busy: NDArray[np.float64]
    """Seconds of arithmetic."""
    sending: NDArray[np.float64]
    """Seconds of standing still to send."""
    in_flight: NDArray[np.int64]
    """Most passes, a microbatch through a chunk each, that waited for their backward pass."""

    @property
    def idle(self) -> NDArray[np.float64]:
        return self.makespan - self.busy - self.sending


def simulate(
    stage_forward: ArrayLike,
    stage_backward: ArrayLike,
    num_microbatches: int,
    virtual_pipeline: int = 1,
    transfer: float = 0.0,
    blocking_transfer: bool = True,
    group: int = 0,
) -> Schedule:
    """Run one step of 1F1B (PipeDream-flush), interleaved if `virtual_pipeline` is above one.

    The orders are those of arXiv 2104.04473, sections 2.2.1 and 2.2.2, as Megatron-LM runs them.

    Parameters
    ----------
    stage_forward, stage_backward
        Seconds that one microbatch takes in all chunks of a stage, or in each: [stage][chunk].
    transfer
        Seconds to hand a tensor to a neighbouring stage.
    blocking_transfer
        Whether a stage waits for `transfer` with each tensor it sends. If interleaved, it
        then exchanges tensors only between batches of passes (forward and backward in the steady
        state): it waits for all that a batch needs, and sends all that it made afterwards.
        Otherwise tensors leave as soon as they are made, and travel during the arithmetic.
    group
        Microbatches that a chunk takes in a row; 0: as many as there are stages.
    """
    v = virtual_pipeline
    seconds = np.stack([_by_chunk(stage_forward, v), _by_chunk(stage_backward, v)])
    p = seconds.shape[1]
    if v > 1 and 0 < num_microbatches % (group or p) < p:
        raise ValueError(f"{num_microbatches} microbatches leave a rest of fewer than {p}")
    programs = [batches(stage, p, num_microbatches, v, group) for stage in range(p)]
    in_flight = [_peak(program) for program in programs]
    if v == 1 or not blocking_transfer:
        programs = [[(each,) for batch in program for each in batch] for program in programs]

    hop = transfer if p > 1 else 0.0
    clock, sending = [0.0] * p, [0.0] * p
    arrival: dict[Pass, float] = {}
    todo = [list(reversed(program)) for program in programs]
    while any(todo):
        ready = [
            stage
            for stage in range(p)
            if todo[stage] and all(i in arrival for i in _inputs(todo[stage][-1], p * v))
        ]
        if not ready:
            raise RuntimeError("every stage waits for another")
        for stage in ready:
            batch = todo[stage].pop()
            now = max([clock[stage], *(arrival[i] for i in _inputs(batch, p * v))])
            made = []
            for direction, microbatch, chunk in batch:
                now += float(seconds[direction, stage, chunk // p])
                if chunk != (p * v - 1 if direction == FORWARD else 0):
                    made.append((direction, microbatch, chunk))
            for tensor in made:
                arrival[tensor] = now + hop
                if blocking_transfer:
                    now += hop
                    sending[stage] += hop
            clock[stage] = now
    busy = seconds.sum(axis=(0, 2)) * num_microbatches
    return Schedule(max(clock), busy, np.array(sending), np.array(in_flight))


def batches(
    stage: int, p: int, num_microbatches: int, v: int, group: int = 0
) -> list[tuple[Pass, ...]]:
    """Return the passes of a stage: warm-up, one forward and one backward at a time, cool-down."""
    total, group = num_microbatches * v, group or p
    ahead = p - stage - 1
    warm_up = min(ahead if v == 1 else ahead * 2 + (v - 1) * group, total)

    def nth(direction: int, k: int) -> Pass:
        if v == 1:
            return direction, k, stage
        number, rest = divmod(k, group * v)
        size = min(group, num_microbatches - number * group)
        turn, member = divmod(rest, size)
        own = turn if direction == FORWARD else v - 1 - turn
        return direction, number * group + member, own * p + stage

    return [
        *((nth(FORWARD, k),) for k in range(warm_up)),
        *((nth(FORWARD, k), nth(BACKWARD, k - warm_up)) for k in range(warm_up, total)),
        *((nth(BACKWARD, k),) for k in range(total - warm_up, total)),
    ]


def _inputs(batch: tuple[Pass, ...], num_chunks: int) -> list[Pass]:
    """Return what a batch needs from elsewhere; the last chunk turns round its own output."""
    needed = []
    for direction, microbatch, chunk in batch:
        source = chunk - 1 if direction == FORWARD else chunk + 1
        if 0 <= source < num_chunks:
            needed.append((direction, microbatch, source))
    return needed


def _by_chunk(stage_seconds: ArrayLike, v: int) -> NDArray[np.float64]:
    given = np.asarray(stage_seconds, dtype=np.float64)
    chunks = np.repeat(given[:, None] / v, v, axis=1) if given.ndim == 1 else given
    if chunks.shape[1] != v:
        raise ValueError(f"{chunks.shape[1]} chunks a stage are given, not {v}")
    return chunks


def _peak(program: list[tuple[Pass, ...]]) -> int:
    steps = [1 if each[0] == FORWARD else -1 for batch in program for each in batch]
    return int(np.cumsum(steps).max())
