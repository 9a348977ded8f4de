"""Every layout of a problem: how layers, stages, replicas and batch may be split.

Layers vary slowest: all pipelines around one way to split a layer follow one another, so that
the layer is evaluated once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.contract import Catalog, Columns, Mends, Scalar, Values
from estimators.enumeration import Axis, divisors_of, each_of, enumerate_layouts, exactly
from estimators.inputs import Inputs
from estimators.table_search import TableSearch
from estimators.training_step.inputs import (
    CHOICES,
    CONSTANTS,
    HARDWARE,
    KEYS,
    OPTIONAL,
    OTHER_INPUTS,
    PROBLEM,
    SYSTEM,
    resolve_problem,
)
from estimators.training_step.rules import LAYER_RULES, SHARDING_NEEDS_REPLICAS, SPLIT_RULES

NAME = "training_step"
VERSION = 1
RELATION_NAME = "training_step"

RULES = (*LAYER_RULES, *SPLIT_RULES, SHARDING_NEEDS_REPLICAS)

SEARCHED = {"activation_recompute": ("none", "selective", "full")}
"""Choices that are searched where a study names none."""

_LAYOUT_DEPENDS_ON = frozenset(
    {
        *("num_gpus", "global_batch_size", "num_layers", "num_heads", "num_kv_heads", "seq_len"),
        *("ffn_hidden_size", "expert_ffn_hidden_size", "num_experts", "attention"),
    }
)


def _axes() -> tuple[Axis, ...]:
    return (
        Axis("tensor_parallel", divisors_of(lambda known: known["num_gpus"])),
        Axis("context_parallel", divisors_of(lambda k: k["num_gpus"] // k["tensor_parallel"])),
        Axis("expert_parallel", divisors_of(_expert_ranks)),
        Axis("uses_sequence_parallel", each_of((0, 1))),
        Axis("microbatch_size", divisors_of(lambda known: known["global_batch_size"])),
        Axis("pipeline_parallel", divisors_of(_left)),
        Axis("data_parallel", exactly(lambda known: _left(known) // known["pipeline_parallel"])),
        Axis("virtual_pipeline", divisors_of(_chunks)),
        Axis("zero_stage", each_of((0, 1, 2, 3))),
    )


def _expert_ranks(known: Values) -> Any:
    """Return what the experts may be split over: experts, and ranks beside the tensors."""
    return np.gcd(known["num_experts"], known["num_gpus"] // known["tensor_parallel"])


def _left(known: Values) -> Any:
    return known["num_gpus"] // (known["tensor_parallel"] * known["context_parallel"])


def _chunks(known: Values) -> Any:
    """Return the layers of a stage where stages are even, else 1: chunks divide them."""
    stages = known["pipeline_parallel"]
    is_even = (known["num_layers"] % stages == 0) & (stages > 1)
    return np.where(is_even, known["num_layers"] // stages, 1)


def _layouts(values: Values, kept: Mapping[str, Scalar], _mends: Mends) -> Columns:
    whole = {name: int(value) if isinstance(value, bool) else value for name, value in kept.items()}
    table = enumerate_layouts(values, _axes(), RULES, whole)
    table["uses_sequence_parallel"] = table["uses_sequence_parallel"].astype(bool)
    return table


def _resolve(inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
    resolve_problem(inputs, catalog, mends)
    inputs.require(("num_gpus",), "say how many GPUs the run has")
    inputs.require(("global_batch_size",), "say how many sequences a step has")


SEARCH = TableSearch(
    estimator=NAME,
    version=VERSION,
    relation=RELATION_NAME,
    problem=PROBLEM,
    choices=CHOICES,
    keys=KEYS,
    resolve=_resolve,
    enumerate=_layouts,
    rules=lambda _mends: RULES,
    system_columns=SYSTEM,
    other_inputs=tuple(name for name in OTHER_INPUTS if name != "num_microbatches"),
    optional=OPTIONAL,
    independent=frozenset((*PROBLEM, *CHOICES)) - _LAYOUT_DEPENDS_ON,
    searched=SEARCHED,
)

__all__ = ["CONSTANTS", "HARDWARE", "RULES", "SEARCH"]
