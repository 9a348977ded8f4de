"""The rank that sets the pace of a step, and its bubble.

Schedule 1F1B (one forward, one backward), interleaved or not, takes the longest chain of passes
(module `critical_path`). Where a text or the sizes of the ends place layers so that ranks take
turns as the slowest, every pass is run: chains are up to a quarter short there. One stage has no
bubble.

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

Where the host is slower than the GPU, B and W are each as long as the host takes to launch them.

A rank with m microbatches has m gradients of weights: no more of them fill the gaps of a zero
bubble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import distinct
from estimators.structure import number
from estimators.training_step.critical_path import (
    WORK,
    alternates,
    chains_of,
    longest,
    simulated,
    stage_work,
)
from estimators.training_step.pipelines import Pipeline, Pipelines, microbatches_of
from estimators.training_step.placement import KINDS, Case

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.values import Array, Real


class Passes(NamedTuple):
    """Seconds of one kind of work in a microbatch.

    Attributes
    ----------
    forward, backward
        Of both passes, where the backward pass is one.
    inputs, weights
        Of the backward pass as two: the gradients of inputs and all else, and those of weights.
        Together they may be longer, where the host is slower than the GPU in one of them.
    """

    forward: Real
    backward: Real
    inputs: Real
    weights: Real


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


def pace_of(
    work: Mapping[str, Passes],
    pipelines: Pipelines,
    problem: Problem,
    layout: Layout,
) -> Pace:
    """Return the pace of pipelines, one element a row of `layout`.

    Parameters
    ----------
    work
        Kind of `critical_path.WORK` -> its passes. Those of a kind that a row of a batch lacks are
        ignored.
    """
    size = np.size(layout.pipeline_parallel)
    shape = problem.shape
    occurs = {
        "dense": shape.sparse_share < 1,
        "mixture": shape.sparse_share > 0,
        "mtp": number(shape.num_mtp_layers) > 0,
    }
    table = np.zeros((len(Passes._fields), len(WORK), size))
    for name, parts in work.items():
        for row, seconds in zip(table[:, WORK.index(name)], parts, strict=True):
            row[:] = np.where(occurs.get(name, True), seconds, 0.0)
    microbatches = np.broadcast_to(microbatches_of(problem.run, layout), size)
    # rows of a pipeline are put next to each other: each then has a slice of every table
    order = np.argsort(pipelines.place, kind="stable")
    ends = np.cumsum(np.bincount(pipelines.place, minlength=len(pipelines.distinct))).tolist()
    many = microbatches[order]
    table = table[:, :, order]
    bubble, counts = np.empty(size), np.empty((size, len(WORK)))
    begin = 0
    for pipeline, end in zip(pipelines.distinct, ends, strict=True):
        case, rows = pipeline.case, slice(begin, end)
        of_case = table[:, :, rows]
        if case.ranks == 1:
            counts[rows], bubble[rows] = _rank_work(case)[0], 0.0
        elif case.schedule == "1f1b":
            counts[rows], bubble[rows] = _one_f_one_b(pipeline, many[rows], of_case)
        else:
            counts[rows], bubble[rows] = _zero_bubble(case, many[rows], of_case)
        begin = end
    back = np.empty_like(order)
    back[order] = np.arange(size)
    by_work = counts.T[:, back]
    kinds = {name: by_work[n] for n, name in enumerate(KINDS) if by_work[n].any()}
    # rounding may leave less than nothing
    return Pace(kinds, by_work[-2], by_work[-1], np.maximum(bubble, 0.0)[back])


def _one_f_one_b(pipeline: Pipeline, count: Array, seconds: Array) -> tuple[Array, Real]:
    """Return the work of the rank that works longest, and the bubble of a step: one a row.

    Parameters
    ----------
    count
        Microbatches of a step, one element a row.
    seconds
        Seconds of a microbatch: [field of `Passes`][kind of work][row].
    """
    case, _, group, ahead = pipeline
    by_rank = _rank_work(case)
    busy = by_rank @ (seconds[0] + seconds[1])
    both_passes = np.concatenate(seconds[:2])
    whole = longest(chains_of(*pipeline), both_passes, count)
    if case.chunks > 1 and (case.layout or case.first or case.last):
        turns = alternates(case, both_passes)
        for microbatches in distinct(count[turns]):
            rows = np.flatnonzero(turns & (count == microbatches))
            whole[rows] = simulated(case, int(microbatches), group, both_passes[:, rows], ahead)
    return by_rank[busy.argmax(axis=0)], whole - count * busy.max(axis=0)


def _zero_bubble(case: Case, count: Array, seconds: Array) -> tuple[Array, Real]:
    """Return the work of the rank that ends last, and its bubble, as `_one_f_one_b` does.

    Each rank works on its microbatches and has the bubble of a pipeline of such ranks. The step
    ends with the last of them, so that faster work never makes a step longer.
    """
    by_rank = _rank_work(case)
    forward, backward, inputs, weights = (by_rank @ part for part in seconds)
    bubbles = BUBBLES[case.schedule](case.ranks, count, forward, inputs, weights)
    bubbles = bubbles + count * (inputs + weights - backward)
    last = (count * (forward + backward) + bubbles).argmax(axis=0)
    bubble: Real = np.take_along_axis(np.asarray(bubbles), last[None], axis=0)[0]
    return by_rank[last], bubble


@lru_cache(maxsize=16_384)
def _rank_work(case: Case) -> Array:
    """Return the work of a microbatch on the ranks that differ: [rank][kind of work]."""
    by_rank = stage_work(case)[0][:, :, : len(WORK)].sum(axis=1)
    _, first = np.unique(by_rank, axis=0, return_index=True)
    differing = by_rank[np.sort(first)]
    # half of the microbatches enter a dual pipe at either end
    return np.asarray(differing / 2 if case.schedule == "dualpipe" else differing)


def zb_h1(ranks: int, count: Real, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZB-H1's bubble from those of a stage's passes; see the module."""
    gaps, filled = ranks - 1, np.minimum(ranks - 1, count)
    bubble: Real = gaps * (forward + inputs) - filled * np.minimum(forward, weights)
    return bubble


def zb_h2(ranks: int, count: Real, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZB-H2's bubble from those of a stage's passes; see the module."""
    gaps, filled = ranks - 1, np.minimum(2 * (ranks - 1), count)
    return np.maximum(gaps * (forward + inputs) - filled * weights, 0.0)


def zbv(ranks: int, count: Real, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of ZBV's bubble from those of both chunks of a rank; see the module."""
    gaps = (ranks - 1) / 2
    one, two = np.minimum(gaps, count), np.minimum(2 * gaps, count)
    longer = np.maximum(
        2 * gaps * np.maximum(forward, inputs) - two * weights,
        2 * gaps * forward - one * (inputs + weights),
    )
    return np.maximum(np.maximum(longer, gaps * weights - one * forward), 0.0)


def dualpipe(ranks: int, count: Real, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of DualPipe's bubble from those of a stage's passes.

    ``(p/2 - 1) x max(F + B - W + max(F, B), 2 F)``: the published bubble where F is at most B and
    W at most 2 B - F. A simulation gave the other cases. A dual pipe has at least 2 p microbatches,
    so that each gap has gradients of weights to fill it.
    """
    del count
    once = forward + inputs - weights + np.maximum(forward, inputs)
    bubble: Real = (ranks / 2 - 1) * np.maximum(once, 2 * forward)
    return bubble


def dualpipev(ranks: int, count: Real, forward: Real, inputs: Real, weights: Real) -> Real:
    """Return the seconds of DualPipeV's bubble from those of both stages of a rank."""
    return dualpipe(2 * ranks, count, forward / 2, inputs / 2, weights / 2)


BUBBLES: dict[str, Callable[[int, Real, Real, Real, Real], Real]] = {
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zbv": zbv,
    "dualpipe": dualpipe,
    "dualpipev": dualpipev,
}
"""Schedule -> the function of its bubble."""
