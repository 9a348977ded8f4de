"""Rules of a run and of its memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from estimators.rules import Rule, at_most, divides

MEMORY_RULES = (
    divides("tensor_parallel", "num_heads"),
    at_most("stages have layers", "pipeline_parallel", "num_layers"),
)


def _of_known(rule: Rule) -> Rule:
    """Return a rule that skips rows without its columns; a run may have no shape."""
    return replace(
        rule,
        holds=lambda v: np.any([np.isnan(v[n]) for n in rule.needs], axis=0) | rule.holds(v),
    )


SHAPE_RULES = (
    _of_known(divides("num_kv_heads", "num_heads")),
    _of_known(divides("num_heads", "hidden_size")),
    _of_known(
        at_most(
            "no more active parameters than parameters",
            "active_parameters",
            "parameters",
            advice=lambda _: "give the parameters that a token passes through: a part of all",
        )
    ),
)
"""Heads share the width, and queries their keys, evenly."""
HAS_A_BATCH = _of_known(
    at_most(
        "the run takes a step",
        "global_batch_tokens",
        "dataset_tokens",
        advice=lambda _: "use a smaller batch, or more tokens",
    )
)
"""Under C15 every token of a step is paid for; as published, such a run takes no step."""
WHOLE_LAYERS = Rule(
    "activations are not split",
    "tensor_parallel",
    ("tensor_parallel",),
    lambda v: np.equal(v["tensor_parallel"], 1),
    lambda _: "must be 1: the published formula of activations does not split them",
    lambda _: "use 1, or mend C17",
)
