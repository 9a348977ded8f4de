"""Microbatches whose activations a rank of a pipeline keeps at its peak, by kind of layer.

A rank's passes are replayed in order: the forward passes of the warm-up, then a forward and a
backward pass in turn. The activations are those of forward passes whose backward passes have not
run yet. This depends only on the order of the passes, not on their times.

Sources: arXiv 2104.04473 section 2.2; NVIDIA/Megatron-LM @d98e8a64
megatron/core/pipeline_parallel/schedules.py, `get_pp_rank_microbatches` (warm-up) and
`get_schedule_table` (order of chunks).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.training_step.placement import Case, place, runs_of

if TYPE_CHECKING:
    from estimators.values import Array


class Candidates(NamedTuple):
    """The ranks of one pipeline that may need most memory: one element a candidate.

    No other rank needs more: it has as many layers as one of these, and fewer microbatches under
    way. If the last chunk of the rank with the output layer has fewer layers than its other chunks,
    that rank is listed twice: at its peak of layers, and at its peak while it keeps logits.

    Attributes
    ----------
    number
        Which ranks they are.
    layers
        Layers of each kind of `placement.KINDS`: [kind][rank].
    has_embedding, has_output
        1 where a rank has the embedding, or the output layer; else 0.
    """

    number: Array
    layers: Array
    has_embedding: Array
    has_output: Array


class Peaks(NamedTuple):
    """Microbatches that those ranks keep at their peak: one element a rank.

    Attributes
    ----------
    layers
        Layers of each kind of `placement.KINDS`, times the microbatches kept of each:
        [kind][rank].
    chunks
        Inputs of chunks that are kept.
    outputs
        Microbatches whose last chunk is kept on the rank with the output layer; else 0.
    """

    layers: Array
    chunks: Array
    outputs: Array


@lru_cache(maxsize=65_536)
def ranks_of(case: Case) -> Candidates:
    """Return the ranks that may need most memory."""
    placement = place(case)
    numbers = runs_of(placement)
    if case.schedule == "1f1b":
        last = int(np.argmax(placement.output))
        chunks = placement.layers[:, :, last]
        if (chunks != chunks[:, -1:]).any():
            numbers.append(last)
    first = np.array(numbers)
    return Candidates(
        first, placement.of_rank[:, first], placement.embedding[first], placement.output[first]
    )


DEPTH: dict[str, Callable[[int], float]] = {
    "zb_h1": float,
    "zb_h2": lambda ranks: 2.0 * ranks - 1,
    "zbv": float,
    "dualpipe": lambda ranks: (ranks + 1) / 2,
    "dualpipev": lambda ranks: ranks + 0.5,
}
"""Schedule -> microbatches that a rank keeps of each of its stages, from the number of ranks.

Zero bubbles: arXiv 2401.10241 table 2 (H1, H2) and section 6 (V). DualPipe on p ranks keeps p + 1
microbatches over the two stages of a rank, in a V 2p + 1 (deepseek-ai/DualPipe @3da1bbe README.md).
"""


def warm_up(rank: int, ranks: int, chunks: int, num_microbatches: int, group: int) -> int:
    """Return the forward passes of a rank before its first pair of a forward and a backward pass.

    ``p - r - 1`` for rank r of p; with v chunks ``2 (p - r - 1) + (v - 1) x group``. At most all.

    Parameters
    ----------
    group
        Microbatches that a chunk takes in a row before the next chunk has its turn.
    """
    if chunks == 1:
        return min(num_microbatches, ranks - rank - 1)
    return min(num_microbatches * chunks, 2 * (ranks - rank - 1) + (chunks - 1) * group)


def chunk_order(num_microbatches: int, chunks: int, group: int) -> Array:
    """Return the chunk of each forward pass; backward passes take a group's chunks in reverse."""
    begins = range(0, num_microbatches, group)
    sizes = [min(group, num_microbatches - begin) for begin in begins]
    return np.concatenate([np.repeat(np.arange(chunks), size) for size in sizes])


@lru_cache(maxsize=65_536)
def held_of(case: Case, num_microbatches: int, group: int, ahead: int = 0) -> Peaks:
    """Return the microbatches that the ranks of `ranks_of` keep when they hold most layers.

    Parameters
    ----------
    num_microbatches
        Microbatches of a step.
    group
        See `warm_up`.
    ahead
        Further passes forward in the warm-up of interleaved chunks: 1 where experts' exchange is
        hidden behind another microbatch.
    """
    placement, candidates = place(case), ranks_of(case)
    if case.schedule != "1f1b":
        deep = min(DEPTH[case.schedule](case.ranks), num_microbatches)
        chunks = np.full(len(candidates.number), deep * placement.layers.shape[1])
        return Peaks(deep * candidates.layers, chunks, candidates.has_output)
    ranks = candidates.number.tolist()
    peaks = [
        _peak(
            placement.layers[:, :, rank],
            replayed(rank, case, num_microbatches, group, ahead),
            needs_output=rank in ranks[:number],
        )
        for number, rank in enumerate(ranks)
    ]
    layers = np.stack([of_kinds for of_kinds, _ in peaks], axis=-1)
    of_chunks = np.array([of_chunks for _, of_chunks in peaks], dtype=np.float64)
    last, chunks = of_chunks[:, -1], of_chunks.sum(axis=1)
    return Peaks(layers, chunks, last * candidates.has_output)


def replayed(rank: int, case: Case, num_microbatches: int, group: int, ahead: int = 0) -> Array:
    """Return the microbatches kept of each chunk after each pass forward of a rank."""
    chunks = case.chunks
    warm = warm_up(rank, case.ranks, chunks, num_microbatches, group)
    if chunks > 1:
        warm = min(warm + ahead, num_microbatches * chunks)
    # each further turn of all chunks repeats the last one, unless the last group is smaller
    turns = -(-(warm + 1) // (chunks * group)) + 2
    shown = num_microbatches
    if turns * group < num_microbatches and num_microbatches % group == 0:
        shown = turns * group
    forward = chunk_order(shown, chunks, group)
    passed = np.cumsum(forward[:, None] == np.arange(chunks), axis=0)
    # after pass k forward, k - warm passes backward are done, of chunks in reverse
    behind = np.arange(len(passed)) - warm
    done = np.where((behind > 0)[:, None], passed[np.maximum(behind, 1) - 1, ::-1], 0)
    under_way: Array = passed - done
    return under_way


def _peak(layers: Array, under_way: Array, *, needs_output: bool) -> tuple[Array, Array]:
    """Return layers in flight by kind, and microbatches by chunk, of one rank at its peak.

    Parameters
    ----------
    layers, under_way
        Layers of the rank, [kind][chunk]; microbatches kept, [pass][chunk].
    needs_output
        Whether only moments count in which the last chunk is kept.
    """
    if needs_output:
        under_way = under_way[under_way[:, -1] > 0]
    in_flight = under_way @ layers.sum(axis=0)
    # of equal peaks the last with the last chunk, and with most inputs of chunks
    order = np.lexsort((under_way.sum(axis=1), under_way[:, -1] > 0, in_flight))
    peak = under_way[int(order[-1])]
    return layers @ peak, peak
