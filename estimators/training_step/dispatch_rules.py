"""The rules for work during the exchange of tokens with experts.

Source: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py,
`__post_init__`, checks of `overlap_moe_expert_parallel_comm` and of `moe_shared_expert_overlap`.
Three of its checks are not rules here:

- Several ranks must share the experts. One rank has no exchange to hide.
- A pipeline must be interleaved. With that rule a search under a recipe that overlaps would lose
  every pipeline of a model whose layers fill no chunks. The program runs these without overlap.
- Full recomputation must be off. A search compares it with the other recomputations under one value
  of `overlaps_expert_comm`; nothing overlaps then (`hides_dispatch`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.rules import Rule
from estimators.structure import flag, number
from estimators.training_step.modules import has_module

OVERLAPS_WITH = ("dispatcher", "num_mtp_layers", "recompute_modules", "overlaps_shared_experts")
"""Columns that say whether an exchange can hide behind another microbatch."""


def can_overlap(values: Values) -> Array:
    """Return in which rows `overlaps_expert_comm` can be a default: none that a rule refuses."""
    able = np.not_equal(values["dispatcher"], "allgather")
    able = able & (number(values["num_mtp_layers"]) <= 1)
    able = able & ~has_module(values, "moe")
    found: Array = np.asarray(able & ~flag(values["overlaps_shared_experts"]))
    return found


def hides_dispatch(values: Values) -> Array:
    """Return in which rows an exchange hides behind another microbatch: `overlaps_expert_comm`.

    Full recomputation repeats the exchange with its layer: then the program does not overlap.
    """
    repeats = np.equal(values["activation_recompute"], "full")
    return np.asarray(flag(values["overlaps_expert_comm"]) & ~repeats)


def _goes_to_all(values: Values) -> Any:
    return np.equal(values["dispatcher"], "allgather")


DISPATCH_RULES = (
    Rule(
        "an all-to-all behind a microbatch is not an all-gather",
        "overlaps_expert_comm",
        ("overlaps_expert_comm", "dispatcher"),
        lambda v: ~flag(v["overlaps_expert_comm"]) | ~_goes_to_all(v),
        lambda _row: "hides the all-to-all of `dispatcher` alltoall and flex, not the all-gather",
        varies=("dispatcher", "overlaps_expert_comm"),
    ),
    Rule(
        "an all-to-all behind a microbatch allows one further token",
        "overlaps_expert_comm",
        ("overlaps_expert_comm", "num_mtp_layers"),
        lambda v: ~flag(v["overlaps_expert_comm"]) | (number(v["num_mtp_layers"]) <= 1),
        lambda row: f"needs `num_mtp_layers` 1 at most, not {row['num_mtp_layers']}",
        varies=("num_mtp_layers", "overlaps_expert_comm"),
    ),
    Rule(
        "an all-to-all hides behind a microbatch or shared experts, not both",
        "overlaps_shared_experts",
        ("overlaps_shared_experts", "overlaps_expert_comm"),
        lambda v: ~flag(v["overlaps_shared_experts"]) | ~flag(v["overlaps_expert_comm"]),
        lambda _row: "hides what `overlaps_expert_comm` hides behind another microbatch",
        varies=("overlaps_shared_experts", "overlaps_expert_comm"),
    ),
    Rule(
        "an all-to-all behind shared experts is not an all-gather",
        "overlaps_shared_experts",
        ("overlaps_shared_experts", "dispatcher"),
        lambda v: ~flag(v["overlaps_shared_experts"]) | ~_goes_to_all(v),
        lambda _row: "hides the all-to-all of `dispatcher` alltoall and flex, not the all-gather",
        varies=("dispatcher", "overlaps_shared_experts"),
    ),
    Rule(
        "a model that overlaps shared experts has some",
        "overlaps_shared_experts",
        ("overlaps_shared_experts", "shared_ffn_hidden_size"),
        lambda v: ~flag(v["overlaps_shared_experts"]) | np.greater(v["shared_ffn_hidden_size"], 0),
        lambda _row: "needs shared experts, but the model has none",
        lambda _row: "leave it out",
    ),
    Rule(
        "shared experts that hide an all-to-all are not recomputed",
        "overlaps_shared_experts",
        ("overlaps_shared_experts", "recompute_modules"),
        lambda v: ~flag(v["overlaps_shared_experts"]) | ~has_module(v, "shared_experts"),
        lambda _row: "does not go with `recompute_modules` shared_experts",
        lambda _row: "use one of them",
    ),
)
"""Rules of a problem."""
