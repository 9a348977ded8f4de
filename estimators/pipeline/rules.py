"""The rules that a layout of the pipeline estimator keeps, in the source's order.

Source: davidsj/ml_par_sim simple_transformer.py @520dcff.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.rules import INTERLEAVING_NEEDS_STAGES, Rule, divides, divides_number


def _tokens(values: Values) -> Any:
    return values["microbatch_size"] * values["seq_len"]


def _routed(values: Values) -> Any:
    return _tokens(values) * values["experts_per_token"]


def _passes(values: Values) -> Any:
    return values["pipeline_parallel"] * values["virtual_pipeline"]


PROBLEM_RULES = (divides("experts_per_token", "num_experts"),)

NUMBER_OF_RANKS = Rule(
    "experts divide the GPUs",
    "num_gpus",
    ("num_gpus", "num_experts"),
    lambda v: np.equal(v["num_gpus"] % np.maximum(v["num_experts"], 1), 0),
    lambda row: f"is not a multiple of `num_experts` {row['num_experts']}",
    lambda row: f"use a multiple of {row['num_experts']}: no two experts share a GPU",
)

LAYOUT_RULES = (
    divides("microbatch_size", "global_batch_size"),
    Rule(
        "a product has a whole number of tokens",
        "data_parallel",
        ("data_parallel", "num_experts", "microbatch_size", "seq_len", "experts_per_token"),
        lambda v: np.equal(_routed(v) % np.maximum(v["data_parallel"] * v["num_experts"], 1), 0),
        lambda row: (
            f"times `num_experts` {row['num_experts']} does not divide the {_routed(row)} routed "
            "tokens of a microbatch"
        ),
        lambda _: "use a larger `microbatch_size`",
    ),
    Rule(
        "passes divide the layers",
        "pipeline_parallel",
        ("pipeline_parallel", "virtual_pipeline", "num_layers"),
        lambda v: np.equal(v["num_layers"] % np.maximum(_passes(v), 1), 0),
        lambda row: (
            f"times `virtual_pipeline` {row['virtual_pipeline']} does not divide `num_layers` "
            f"{row['num_layers']}"
        ),
        varies=("pipeline_parallel", "virtual_pipeline"),
    ),
    INTERLEAVING_NEEDS_STAGES,
    divides_number(
        "replicas divide the tokens",
        "data_parallel",
        ("microbatch_size", "seq_len"),
        _tokens,
        lambda row: f"the {_tokens(row)} tokens of a microbatch",
        lambda _: "use a larger `microbatch_size`",
    ),
    divides("tensor_parallel", "internal_size"),
    divides("tensor_parallel_external", "hidden_size"),
)
