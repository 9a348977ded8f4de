"""Every layout of a problem: the ways to split layers, stages, replicas and batch.

The columns that split a layer vary slowest. So all pipelines with the same split of a layer follow
one another, and the layer is evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.divisors import divisors, expand
from estimators.enumeration import Axis, Expansion, divisors_of, each_of, exactly
from estimators.rules import Rule
from estimators.training_step.pipeline_rules import OPTIONS
from estimators.training_step.placement import admits_chunks, num_stages

OF_AXES = ("num_gpus", "global_batch_size", "num_layers", "num_experts", *OPTIONS)
"""Problem columns and choices that the values of an axis follow from."""


def depends_on(rules: Iterable[Rule]) -> frozenset[str]:
    """Return the columns that decide which layouts exist: those of the axes and of the rules.

    Cells that differ only in other columns share a table of layouts. A rule that reads no degree
    admits all layouts of a cell or none.
    """
    keys = {axis.name for axis in AXES}
    read = (rule.needs for rule in rules if not keys.isdisjoint(rule.needs))
    return frozenset(OF_AXES).union(*read)


def _expert_tensors(known: Values) -> Any:
    """Return the largest degree that splits experts: that of other tensors, 1 without experts."""
    return np.where(known["num_experts"] > 1, known["tensor_parallel"], 1)


def _expert_ranks(known: Values) -> Any:
    """Return the largest expert degree: a divisor of the experts and of the ranks for them."""
    return np.gcd(known["num_experts"], known["num_gpus"] // known["expert_tensor_parallel"])


def _left(known: Values) -> Any:
    return known["num_gpus"] // (known["tensor_parallel"] * known["context_parallel"])


def _chunks(size: int, known: Values) -> Expansion:
    """Return the numbers of chunks of each row, which follow from its number of ranks."""
    each_ranks, place = np.unique(
        np.broadcast_to(known["pipeline_parallel"], size), return_inverse=True
    )
    numbers = [_chunks_of(ranks, known) for ranks in each_ranks.tolist()]
    first = np.cumsum([0, *map(len, numbers)])
    parent, which = expand(np.diff(first)[place])
    values = np.concatenate([*numbers, np.empty(0, np.int64)])
    return parent, values[first[place[parent]] + which]


def _chunks_of(ranks: int, known: Values) -> Array:
    """Return the numbers of chunks that a pipeline of some ranks may have.

    By default they leave stages equal but the first and the last. If the layers of first or last
    rank are given, chunks divide these; a `pipeline_layout` states the number of chunks.
    """
    if ranks == 1:
        return np.ones(1, dtype=np.int64)
    if known["pipeline_layout"] is not None:
        stages = num_stages(str(known["pipeline_layout"]))
        return np.array([stages // ranks if stages % ranks == 0 else 1])
    ends = [known[name] for name in ("layers_in_first_stage", "layers_in_last_stage")]
    given = [int(number) for number in ends if number is not None]
    if given:
        return divisors(np.gcd.reduce(given))
    counted = bool(known["counts_embedding"]) + bool(known["counts_loss"])
    most = -(-(known["num_layers"] + counted) // ranks)
    if counted:
        return divisors(most)
    chunks: Array = np.arange(1, most + 1)
    admitted: Array = chunks[admits_chunks(known["num_layers"], ranks, chunks)]
    return admitted


AXES = (
    Axis("tensor_parallel", divisors_of(lambda known: known["num_gpus"])),
    Axis("context_parallel", divisors_of(lambda k: k["num_gpus"] // k["tensor_parallel"])),
    Axis("expert_tensor_parallel", divisors_of(_expert_tensors)),
    Axis("expert_parallel", divisors_of(_expert_ranks)),
    Axis("uses_sequence_parallel", each_of((0, 1))),
    Axis("microbatch_size", divisors_of(lambda known: known["global_batch_size"])),
    Axis("pipeline_parallel", divisors_of(_left)),
    Axis("data_parallel", exactly(lambda known: _left(known) // known["pipeline_parallel"])),
    Axis("virtual_pipeline", _chunks),
    Axis("zero_stage", each_of((0, 1, 2, 3))),
)
"""Columns of a layout in order; later ones vary fastest."""
