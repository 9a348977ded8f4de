"""The time of one step of a pipeline: the longest chain of passes.

Each rank runs its passes in a fixed order (module `in_flight`). A pass also waits for the same
microbatch in the stage before it, or behind it. A step takes as long as its longest chain of passes
that wait for each other. The chains below are some of all chains, so the time is never too long:

- the forward pass of the first microbatch runs through the ranks to rank q, which fills its
  warm-up; its first backward pass runs back to rank s;
- rank s works on all that is left;
- the last backward passes, or the last forward pass and then these, run on to ranks that end
  later than s would.

Without chunks an event simulation finds the same time. With chunks the chains are up to 1.3 % short
where the ends have an embedding or an output layer besides their layers. Where ranks take turns
as the largest in a chunk, they are up to 3 % short in the tests of default placements, and up to a
quarter for stages that a text, or the layers of first or last rank, define: for these
`simulated` runs every pass instead, for many layouts at once.

A chain is a sum of passes. It is kept as the number of times that it has each kind of layer,
forward and backward. That is computed once for a pipeline and multiplied with the seconds of each
layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from estimators.training_step.in_flight import chunk_order, warm_up
from estimators.training_step.placement import KINDS, Case, place, runs_of

if TYPE_CHECKING:
    from estimators.values import Array

WORK = (*KINDS, "embedding", "output")
"""Kinds of work in a stage. Each takes seconds forward and seconds backward."""

WIDTH = 2 * len(WORK)
"""Numbers of a chain: how often it has each kind of work forward, then backward."""


Detour: TypeAlias = "tuple[Array, int]"
"""A detour that a chain may take from a rank: its work, and the place of the rank where the chain
goes on; -1: the chain ends."""

Detours: TypeAlias = Iterator[Detour]


class Chains(NamedTuple):
    """The chains of one pipeline, for each rank that may set the pace.

    A chain is the work of that rank, a path before it and a path behind it. A path is the sum of
    all detours that a chain takes from the rank to its begin, or to its end.

    Attributes
    ----------
    work
        Work of a microbatch on each rank: [rank][number of `WIDTH`].
    paths
        Work of each path, those of a group one after the other: [path][number of `WIDTH`].
    begins
        Where each group begins in `paths`: for each rank the paths before it, then those behind it.
    """

    work: Array
    paths: Array
    begins: Array


class _Passes:
    """The passes of one pipeline as sums of work.

    Parameters
    ----------
    case, num_microbatches, group, ahead
        See `in_flight.held_of`.
    """

    def __init__(self, case: Case, num_microbatches: int, group: int, ahead: int) -> None:
        self.forward, self.backward = stage_work(case)
        self.chunks, self.ranks = case.chunks, case.ranks
        self.chunk_numbers = np.arange(case.chunks)
        self.known: dict[int, Array] = {}
        self.num_microbatches = num_microbatches
        self.group = group if case.chunks > 1 else num_microbatches
        self.num_passes = num_microbatches * case.chunks
        # microbatches of the first group, and of the last
        self.head = min(self.group, num_microbatches)
        self.tail = num_microbatches % self.group or self.group
        more = ahead if case.chunks > 1 else 0
        self.warm = [
            min(
                self.num_passes - 1,
                warm_up(rank, case.ranks, case.chunks, num_microbatches, self.group) + more,
            )
            for rank in range(case.ranks)
        ]
        # sums over the ranks before, of each chunk
        nothing = np.zeros((1, case.chunks, WIDTH))
        self.forward_before = np.concatenate([nothing, np.cumsum(self.forward, axis=0)])
        self.backward_before = np.concatenate([nothing, np.cumsum(self.backward, axis=0)])

    def passed(self, count: int) -> Array:
        """Return the microbatches behind each chunk after a number of passes forward."""
        if count in self.known:
            return self.known[count]
        whole, rest = divmod(count, self.chunks * self.group)
        size = min(self.group, max(self.num_microbatches - whole * self.group, 1))
        inside = np.minimum(np.maximum(rest - self.chunk_numbers * size, 0), size)
        self.known[count] = passed = (whole * self.group + inside).astype(np.float64)
        return passed

    def first_forward(self, rank: int, count: int) -> Array:
        """Return the work of the first passes forward of a rank."""
        return np.asarray(self.passed(count) @ self.forward[rank])

    def last_backward(self, rank: int, count: int) -> Array:
        """Return the work of the last passes backward of a rank."""
        left = self.num_microbatches - self.passed(self.num_passes - count)[::-1]
        return np.asarray(left @ self.backward[rank])

    def chunk_backward(self, number: int) -> int:
        """Return the chunk of a pass backward."""
        whole, rest = divmod(number, self.chunks * self.group)
        return self.chunks - 1 - rest // min(self.group, self.num_microbatches - whole * self.group)


@lru_cache(maxsize=16_384)
def stage_work(case: Case) -> tuple[Array, Array]:
    """Return the work of each stage forward and backward: [rank][chunk][number of `WIDTH`]."""
    placement = place(case)
    work = np.zeros((case.ranks, placement.layers.shape[1], len(WORK)))
    work[:, :, : len(KINDS)] = placement.layers.T
    work[:, 0, WORK.index("embedding")] = placement.embedding
    work[:, -1, WORK.index("output")] = placement.output
    nothing = np.zeros_like(work)
    return np.concatenate([work, nothing], axis=2), np.concatenate([nothing, work], axis=2)


@lru_cache(maxsize=16_384)
def chains_of(case: Case, num_microbatches: int, group: int, ahead: int = 0) -> Chains:
    """Return the chains of a pipeline that may be the longest.

    Parameters
    ----------
    case, num_microbatches, group, ahead
        See `in_flight.held_of`.
    """
    passes = _Passes(case, num_microbatches, group, ahead)
    first = runs_of([np.moveaxis(passes.forward, 0, -1)])
    ranks = tuple(sorted({*first, *(rank - 1 for rank in first[1:]), case.ranks - 1}))
    places = range(len(ranks))
    starts, fills, ends, leaves, returns = (
        [list(detours(passes, ranks, at)) for at in places]
        for detours in (_starts, _fills, _ends, _leaves, _returns)
    )
    begin = [_longest_of([work for work, _ in starts[at]]) for at in places]
    end = [_longest_of([work for work, _ in ends[at]]) for at in places]
    filled = [_longest_of([begin[at], *_followed(fills[at], begin)]) for at in places]
    left = [_longest_of([end[at], *_followed(leaves[at], end)]) for at in places]
    returned = [_longest_of([left[at], *_followed(returns[at], left)]) for at in places]
    works, groups = [], []
    for at, rank in enumerate(ranks):
        work = (passes.forward[rank] + passes.backward[rank]).sum(axis=0)
        if passes.warm[rank] >= passes.num_passes - 1:
            # all passes forward are in the warm-up: a chain has a detour before or behind it
            works += [work, work]
            groups += [filled[at], left[at], begin[at], returned[at]]
        else:
            works.append(work)
            groups += [filled[at], returned[at]]
    sizes = [len(group) for group in groups]
    return Chains(np.stack(works), np.concatenate(groups), np.cumsum([0, *sizes[:-1]]))


def _followed(detours: Sequence[Detour], then: Sequence[Array]) -> list[Array]:
    """Return the work of detours to the end of the chain; `then` may follow at each rank."""
    return [work + then[to] if to >= 0 else work for work, to in detours]


def _longest_of(paths: Sequence[Array]) -> Array:
    """Return paths, or tables of them, in one table without those that another one contains."""
    counts = np.vstack(paths)
    if len(counts) == 1:
        return counts
    is_within = (counts[:, None] <= counts).all(axis=2)
    # of equal paths the first stays
    place = np.arange(len(counts))
    is_within &= ~(is_within.T & (place[:, None] <= place))
    return np.asarray(counts[~is_within.any(axis=1)])


def _starts(passes: _Passes, ranks: tuple[int, ...], at: int) -> Detours:
    """Yield the work before the first passes forward of a rank.

    That of the first microbatch in the ranks before; or an earlier rank has the first group of
    microbatches in its first chunk, or as many as the warm-up of this one, before it hands on.
    """
    rank, before, forward = ranks[at], passes.forward_before[:, 0], passes.forward[:, 0]
    yield before[rank], -1
    many = passes.head - 1 if passes.chunks > 1 else passes.warm[rank]
    for other in ranks[:at]:
        yield before[rank] + many * (forward[other] - forward[rank]), -1


def _fills(passes: _Passes, ranks: tuple[int, ...], at: int) -> Detours:
    """Yield the passes of a later rank up to its first one backward, which then comes back.

    They take the place of this rank's own passes before its first one backward.
    """
    rank = ranks[at]
    replaced = passes.first_forward(rank, passes.warm[rank] + 1)
    for to in range(at + 1, len(ranks)):
        other = ranks[to]
        back = passes.backward_before[other + 1, -1] - passes.backward_before[rank + 1, -1]
        yield passes.first_forward(other, passes.warm[other] + 1) + back - replaced, to


def _ends(passes: _Passes, ranks: tuple[int, ...], at: int) -> Detours:
    """Yield the work behind the last pass backward of a rank, in the ranks before it.

    One of them may have the last group of microbatches in its first chunk still to do.
    """
    rank, before, backward = ranks[at], passes.backward_before[:, 0], passes.backward[:, 0]
    yield before[rank], -1
    if passes.chunks > 1:
        for other in ranks[:at]:
            yield before[rank] + (passes.tail - 1) * (backward[other] - backward[rank]), -1


def _leaves(passes: _Passes, ranks: tuple[int, ...], at: int) -> Detours:
    """Yield the last passes backward of an earlier rank, in the place of this rank's own.

    The chain leaves this rank with the last microbatch of a chunk, or when no pass forward is left.
    """
    rank, last = ranks[at], passes.num_passes - 1
    leaving = {last - chunk * passes.tail for chunk in range(passes.chunks)}
    for number in sorted({*leaving, max(last - passes.warm[rank], 0)}):
        chunk = passes.chunk_backward(number)
        before = passes.backward_before[:, chunk]
        replaced = passes.last_backward(rank, last - number)
        for to in range(at):
            other = ranks[to]
            between = before[rank] - before[other + 1]
            work = between + passes.last_backward(other, last - number + 1) - replaced
            if last - number + 1 >= passes.tail:
                yield work, to
            else:
                yield work + passes.backward_before[other, 0], -1


def _returns(passes: _Passes, ranks: tuple[int, ...], at: int) -> Detours:
    """Yield the last pass forward through a later rank, with that rank's passes behind it.

    They take the place of this rank's own passes behind its last one forward.
    """
    rank = ranks[at]
    replaced = passes.last_backward(rank, passes.warm[rank] + 1)
    for to in range(at + 1, len(ranks)):
        other = ranks[to]
        forth = passes.forward_before[other + 1, -1] - passes.forward_before[rank + 1, -1]
        yield forth + passes.last_backward(other, passes.warm[other] + 1) - replaced, to


def longest(chains: Chains, seconds: Array, num_microbatches: Array) -> Array:
    """Return the seconds of a step, one element a row.

    Parameters
    ----------
    seconds
        Seconds of each kind of work, forward and backward: [number of `WIDTH`][row].
    num_microbatches
        Microbatches of a step, one element a row; they may be more than those of the chains.
    """
    work = num_microbatches * (chains.work @ seconds)
    longest_paths = np.maximum.reduceat(chains.paths @ seconds, chains.begins, axis=0)
    return np.asarray((work + longest_paths[::2] + longest_paths[1::2]).max(axis=0))


# ---- every pass, one after the other ----

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
        See `longest`.
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
        See `longest`.
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
