"""The rank that sets the pace of a step, and its bubble, for pipelines that are placed one by one.

Schedule 1F1B (one forward, one backward) takes the longest chain of passes. Where ranks take turns
as the slowest, every pass is run. Module `pace` has the closed forms of simple pipelines.

Other schedules fill bubbles with the gradients of weights, which nothing waits for. Their bubbles
are closed forms in seconds of the forward pass (F), of gradients of inputs (B) and of gradients of
weights (W), on p ranks:

- ZB-H1 ``(p - 1) x (B + max(F - W, 0))``, equal to the published (p - 1)(F + B - W) unless W
  exceeds F; ZB-H2 ``(p - 1) x max(F + B - 2 W, 0)`` (arXiv 2401.10241 table 2);
- ZBV ``(p - 1) x max(2 (max(F, B) - W), 2 F - B - W, W - F, 0)`` for the passes of one of a rank's
  two chunks. It is 0 where F = B = W, as that paper says; the other cases come from a simulation;
- DualPipe ``(p/2 - 1) x (F + 2 B - W)``: the published (p/2 - 1)(F&B + B' - 3 W) with B' = B + W
  and a pair of passes F&B = F + B + W that gains nothing from its overlap. DualPipe in a V has the
  bubble of DualPipe on 2 p ranks, with half of a rank's passes each
  (deepseek-ai/DualPipe @3da1bbe README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.distinct import distinct
from estimators.training_step.critical_path import WORK, chains_of, longest, stage_work
from estimators.training_step.event_simulation import alternates, simulated
from estimators.training_step.pipelines import (
    cases_of,
    microbatches_of,
    scheduled_columns,
    usual_group,
)
from estimators.training_step.placement import KINDS, Case

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.values import Array, Real


class Pace(NamedTuple):
    """The rank that works longest in a step: one element a row.

    Attributes
    ----------
    layers
        Kind of layer -> how many of them it works on in a microbatch.
    embedding, output
        1 where it has the embedding, or the output layer; else 0.
    bubble
        Seconds of a step that it waits for others.
    """

    layers: Mapping[str, Real]
    embedding: Real
    output: Real
    bubble: Real


class PassSeconds(NamedTuple):
    """Seconds of each kind of work for one microbatch: [kind of `critical_path.WORK`][row].

    Attributes
    ----------
    forward, backward
        Of a pass forward, and of one backward with the gradients of weights.
    weights
        Of the gradients of weights alone.
    """

    forward: Array
    backward: Array
    weights: Array


def seconds_of(
    kinds: Mapping[str, tuple[Real, Real, Real]], embedding: Real, output: Real, size: int
) -> PassSeconds:
    """Return the seconds of each kind of work.

    A third of the time of output layer and embedding is forward. Of the output layer another third
    makes the gradient of its weights; of the embedding the whole backward pass does.

    Parameters
    ----------
    kinds
        Kind of layer -> seconds forward, backward and of weights' gradients.
    embedding, output
        Seconds of both passes.
    size
        Rows.
    """
    nothing = (0.0, 0.0, 0.0)
    rows = [
        *(kinds.get(name, nothing) for name in KINDS),
        (embedding / 3, embedding * 2 / 3, embedding * 2 / 3),
        (output / 3, output * 2 / 3, output / 3),
    ]
    columns = np.empty((3, len(rows), size))
    for kind, row in enumerate(rows):
        for part, seconds in enumerate(row):
            columns[part, kind] = seconds
    return PassSeconds(*columns)


def pace_of(work: PassSeconds, problem: Problem, layout: Layout) -> Pace:
    """Return the pace of pipelines that are placed one by one, one element a row of `layout`."""
    size = work.forward.shape[1]
    microbatches = np.broadcast_to(microbatches_of(problem.run, layout), size)
    cases = cases_of(scheduled_columns(problem, layout, microbatches), size)
    # rows of a pipeline are put next to each other: each then has a slice of every table
    order = np.argsort(cases.place, kind="stable")
    ends = np.cumsum(np.bincount(cases.place, minlength=len(cases.pipelines))).tolist()
    many = microbatches[order]
    seconds = np.concatenate(work)[:, order]
    bubble, counts = np.empty(size), np.empty((size, len(WORK)))
    begin = 0
    for (case, (few, given, ahead)), end in zip(cases.pipelines, ends, strict=True):
        rows = slice(begin, end)
        in_a_row = given or usual_group(few, case.ranks)
        counts[rows], bubble[rows] = _case_pace(
            case, few, many[rows], (in_a_row, ahead), seconds[:, rows]
        )
        begin = end
    back = np.empty_like(order)
    back[order] = np.arange(size)
    by_work = counts.T[:, back]
    kinds = {name: by_work[n] for n, name in enumerate(KINDS) if by_work[n].any()}
    # rounding may leave less than nothing
    return Pace(kinds, by_work[-2], by_work[-1], np.maximum(bubble, 0.0)[back])


def _case_pace(
    case: Case, few: int, count: Array, order: tuple[int, int], seconds: Array
) -> tuple[Array, Real]:
    """Return the work of the rank that works longest, and the bubble of a step: one a row.

    Parameters
    ----------
    few, count
        Microbatches by which the ends of a step differ (`pipelines.few_of`), and all of a step.
    order
        Microbatches that a chunk takes in a row, and further forward passes of the warm-up.
    seconds
        The three parts of `PassSeconds` one below the other: [part and kind of work][row].
    """
    by_rank = _rank_work(case)
    parts = seconds.reshape(3, len(WORK), -1)
    both_passes = by_rank @ (parts[0] + parts[1])
    slowest = by_rank[np.argmax(both_passes, axis=0)]
    most = both_passes.max(axis=0)
    if case.schedule != "1f1b":
        forward, backward, weights = (np.einsum("rk,kr->r", slowest, part) for part in parts)
        bubble = BUBBLES[case.schedule](case.ranks, forward, backward - weights, weights)
        return slowest, bubble
    both = seconds[: 2 * len(WORK)]
    group, ahead = order[0] if case.chunks > 1 else few, order[1]
    whole = longest(chains_of(case, few, group, ahead), both, count)
    if case.chunks > 1 and (case.layout or case.first or case.last):
        turns = alternates(case, both)
        if turns.any():
            for microbatches in distinct(count[turns]):
                rows = np.flatnonzero(turns & (count == microbatches))
                whole[rows] = simulated(case, int(microbatches), group, both[:, rows], ahead)
    return slowest, whole - count * most


@lru_cache(maxsize=16_384)
def _rank_work(case: Case) -> Array:
    """Return the work of a microbatch on the ranks that differ: [rank][kind of work]."""
    by_rank = stage_work(case)[0][:, :, : len(WORK)].sum(axis=1)
    _, first = np.unique(by_rank, axis=0, return_index=True)
    differing = by_rank[np.sort(first)]
    # half of the microbatches enter a dual pipe at either end
    return np.asarray(differing / 2 if case.schedule == "dualpipe" else differing)


def zb_h1(ranks: int, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZB-H1's bubble from those of a stage's passes; see the module."""
    bubble: Real = (ranks - 1) * (inputs + np.maximum(forward - weights, 0.0))
    return bubble


def zb_h2(ranks: int, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZB-H2's bubble from those of a stage's passes; see the module."""
    bubble: Real = (ranks - 1) * np.maximum(forward + inputs - 2 * weights, 0.0)
    return bubble


def zbv(ranks: int, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZBV's bubble from those of both chunks of a rank; see the module."""
    longer = 2 * (np.maximum(forward, inputs) - weights)
    longer = np.maximum(longer, 2 * forward - inputs - weights)
    bubble: Real = (ranks - 1) / 2 * np.maximum(np.maximum(longer, weights - forward), 0.0)
    return bubble


def dualpipe(ranks: int, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of DualPipe's bubble from those of a stage's passes.

    ``(p/2 - 1) x max(F + B - W + max(F, B), 2 F)``: the published bubble where F is at most B and
    W at most 2 B - F. A simulation gave the other cases.
    """
    once = forward + inputs - weights + np.maximum(forward, inputs)
    bubble: Real = (ranks / 2 - 1) * np.maximum(once, 2 * forward)
    return bubble


def dualpipev(ranks: int, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of DualPipeV's bubble from those of both stages of a rank."""
    return dualpipe(2 * ranks, forward / 2, inputs / 2, weights / 2)


BUBBLES: dict[str, Callable[[int, Real, Real, Real], Real]] = {
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zbv": zbv,
    "dualpipe": dualpipe,
    "dualpipev": dualpipev,
}
"""Schedule -> the function of its bubble."""
