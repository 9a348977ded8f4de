"""The time of one step of a pipeline with uneven stages: the longest chain of passes.

Each rank has its passes in a fixed order (module `in_flight`); a pass also waits for the same
microbatch in the stage before it, or behind it. The time of a step is that of the longest chain of
passes that wait for each other. Every chain here is one of them, so the time is never too long:

- the forward pass of the first microbatch runs through the ranks to rank q, which fills its
  warm-up; its first backward pass runs back to rank s;
- rank s works on all that is left;
- the last backward passes, or the last forward pass and then these, run on to ranks that end
  later than s would.

Where one rank has the largest stage in every chunk this is the time that an event simulation
finds. Where ranks take turns it is short by 3 % at most in the tests; for a layout that a text
gives, `simulated` runs every pass.

A chain is a sum of passes, so it is kept as the number of times that it has each kind of layer,
forward and backward: computed once for a pipeline, then multiplied with the seconds of each layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from estimators.contract import Array
from estimators.training_step.in_flight import warm_up
from estimators.training_step.placement import KINDS, Case, place, runs_of

WORK = (*KINDS, "embedding", "output")
"""What a stage can have: each has seconds forward and backward."""

WIDTH = 2 * len(WORK)
"""Numbers of a chain: of each kind of work forward, then backward."""


Options = list[tuple[int, int]]
"""Ways that a chain may take from a rank: the place of each one's work in `Chains.counts`, and that
of the rank at which it goes on in `Chains.ranks`; -1: the chain ends."""


class Chains(NamedTuple):
    """The chains of one pipeline: for each rank that may set the pace, the ways of a chain.

    Attributes
    ----------
    ranks
        Which ranks they are.
    counts
        Work of a microbatch on each rank, then that of each way: [rank or way][number of `WIDTH`].
    starts
        Up to the first pass of the rank, or past the first group of microbatches.
    fills
        By a later rank's warm-up instead of its own; these go on with `starts`.
    ends
        From the last pass backward of the rank to that of the first rank.
    leaves
        By the last passes backward of an earlier rank instead of its own; these go on with `ends`.
    returns
        From the last pass forward on a later rank; these go on with `leaves` or `ends`.
    is_short
        Whether all passes forward of the rank are in its warm-up.
    """

    ranks: tuple[int, ...]
    counts: Array
    starts: list[Options]
    fills: list[Options]
    ends: list[Options]
    leaves: list[Options]
    returns: list[Options]
    is_short: list[bool]


class _Passes:
    """The passes of one pipeline as sums of work.

    Parameters
    ----------
    case, num_microbatches, group, ahead
        As of `in_flight.held_of`.
    """

    def __init__(self, case: Case, num_microbatches: int, group: int, ahead: int) -> None:
        self.forward, self.backward = stage_work(case)
        self.chunks, self.ranks = case.chunks, case.ranks
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
        """Return how many microbatches have passed each chunk after so many passes forward."""
        whole, rest = divmod(count, self.chunks * self.group)
        size = min(self.group, max(self.num_microbatches - whole * self.group, 1))
        inside = np.clip(rest - np.arange(self.chunks) * size, 0, size)
        return np.asarray(whole * self.group + inside)

    def first_forward(self, rank: int, count: int) -> Array:
        """Return the work of the first passes forward of a rank."""
        return np.asarray(self.passed(count) @ self.forward[rank])

    def last_backward(self, rank: int, count: int) -> Array:
        """Return the work of the last passes backward of a rank."""
        left = self.num_microbatches - self.passed(self.num_passes - count)[::-1]
        return np.asarray(left @ self.backward[rank])

    def chunk_backward(self, number: int) -> int:
        """Return the chunk of a pass backward."""
        changed = self.passed(number + 1) - self.passed(number)
        return self.chunks - 1 - int(np.argmax(changed))


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
        As of `in_flight.held_of`.
    """
    passes = _Passes(case, num_microbatches, group, ahead)
    begins = runs_of([np.moveaxis(passes.forward, 0, -1)])
    ranks = tuple(sorted({*begins, *(rank - 1 for rank in begins[1:]), case.ranks - 1}))
    counts = list((passes.forward + passes.backward).sum(axis=1)[list(ranks)])
    starts, fills, ends, leaves, returns = (
        [_options(ways(passes, ranks, number), counts) for number in range(len(ranks))]
        for ways in (_starts, _fills, _ends, _leaves, _returns)
    )
    is_short = [passes.warm[rank] >= passes.num_passes - 1 for rank in ranks]
    return Chains(ranks, np.stack(counts), starts, fills, ends, leaves, returns, is_short)


Ways = Iterator[tuple[Array, int]]


def _options(ways: Ways, known: list[Array]) -> Options:
    """Return ways without those that another one to the same rank contains.

    Parameters
    ----------
    known
        The work of ways so far, to which theirs is added.
    """
    found = list(ways)
    if not found:
        return []
    counts, rank = np.stack([way for way, _ in found]), np.array([to for _, to in found])
    first, second = np.triu_indices(len(found), 1)
    same = rank[first] == rank[second]
    first, second = first[same], second[same]
    keeps = np.ones(len(found), dtype=bool)
    less = (counts[second] <= counts[first]).all(axis=1)
    keeps[second[less]] = False
    more = (counts[first] <= counts[second]).all(axis=1) & ~less
    keeps[first[more]] = False
    begin = len(known)
    known.extend(counts[keeps])
    return [(begin + number, to) for number, to in enumerate(rank[keeps].tolist())]


def _starts(passes: _Passes, ranks: tuple[int, ...], at: int) -> Ways:
    """Yield the work before the first passes forward of a rank.

    That of the first microbatch in the ranks before; or an earlier rank has the first group of
    microbatches in its first chunk, or as many as the warm-up of this one, before it hands on.
    """
    rank, before, forward = ranks[at], passes.forward_before[:, 0], passes.forward[:, 0]
    yield before[rank], -1
    many = passes.head - 1 if passes.chunks > 1 else passes.warm[rank]
    for other in ranks[:at]:
        yield before[rank] + many * (forward[other] - forward[rank]), -1


def _fills(passes: _Passes, ranks: tuple[int, ...], at: int) -> Ways:
    """Yield the passes of a later rank up to its first one backward, which then comes back.

    They take the place of this rank's own passes before its first one backward.
    """
    rank = ranks[at]
    own = passes.first_forward(rank, passes.warm[rank] + 1)
    for to in range(at + 1, len(ranks)):
        other = ranks[to]
        back = passes.backward_before[other + 1, -1] - passes.backward_before[rank + 1, -1]
        yield passes.first_forward(other, passes.warm[other] + 1) + back - own, to


def _ends(passes: _Passes, ranks: tuple[int, ...], at: int) -> Ways:
    """Yield the work behind the last pass backward of a rank, in the ranks before it.

    One of them may have the last group of microbatches in its first chunk still to do.
    """
    rank, before, backward = ranks[at], passes.backward_before[:, 0], passes.backward[:, 0]
    yield before[rank], -1
    if passes.chunks > 1:
        for other in ranks[:at]:
            yield before[rank] + (passes.tail - 1) * (backward[other] - backward[rank]), -1


def _leaves(passes: _Passes, ranks: tuple[int, ...], at: int) -> Ways:
    """Yield the last passes backward of an earlier rank, in the place of this rank's own.

    The chain leaves this rank with the last microbatch of a chunk, or when no pass forward is left.
    """
    rank, last = ranks[at], passes.num_passes - 1
    leaving = {last - chunk * passes.tail for chunk in range(passes.chunks)}
    for number in sorted({*leaving, max(last - passes.warm[rank], 0)}):
        chunk = passes.chunk_backward(number)
        before = passes.backward_before[:, chunk]
        own = passes.last_backward(rank, last - number)
        for to in range(at):
            other = ranks[to]
            between = before[rank] - before[other + 1]
            way = between + passes.last_backward(other, last - number + 1) - own
            if last - number + 1 >= passes.tail:
                yield way, to
            else:
                yield way + passes.backward_before[other, 0], -1


def _returns(passes: _Passes, ranks: tuple[int, ...], at: int) -> Ways:
    """Yield the last pass forward through a later rank, with that rank's passes behind it.

    They take the place of this rank's own passes behind its last one forward.
    """
    rank = ranks[at]
    own = passes.last_backward(rank, passes.warm[rank] + 1)
    for to in range(at + 1, len(ranks)):
        other = ranks[to]
        forth = passes.forward_before[other + 1, -1] - passes.forward_before[rank + 1, -1]
        yield forth + passes.last_backward(other, passes.warm[other] + 1) - own, to


def longest(chains: Chains, seconds: Array, num_microbatches: Array) -> Array:
    """Return the seconds of a step.

    Parameters
    ----------
    seconds
        Of each kind of work, forward and backward: [number of `WIDTH`][row].
    num_microbatches
        Of a step, one element a row: it may be more than the chains have.
    """
    times = chains.counts @ seconds
    # each has a way without a detour
    starts = [np.asarray(_most(options, times, [])) for options in chains.starts]
    ends = [np.asarray(_most(options, times, [])) for options in chains.ends]
    leaves: list[Array] = []
    for number, options in enumerate(chains.leaves):
        leaves.append(_longer(ends[number], _most(options, times, ends)))
    found = None
    for number in range(len(chains.ranks)):
        own = num_microbatches * times[number]
        first = starts[number]
        later = _longer(first, _most(chains.fills[number], times, starts))
        back = _longer(leaves[number], _most(chains.returns[number], times, leaves))
        if chains.is_short[number]:
            whole = own + np.maximum(later + leaves[number], first + back)
        else:
            whole = own + later + back
        found = whole if found is None else np.maximum(found, whole)
    return np.asarray(found)


def _most(options: Options, times: Array, then: list[Array]) -> Array | None:
    """Return the longest of several ways in each row; None: there is none."""
    most = None
    for way, to in options:
        whole = times[way] + then[to] if to >= 0 else times[way]
        most = whole if most is None else np.maximum(most, whole)
    return most


def _longer(one: Array, other: Array | None) -> Array:
    return one if other is None else np.maximum(one, other)
