"""Inputs of the roofline estimator: columns and defaults, for batches and searches."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Mends
from estimators.divisors import divisors
from estimators.inputs import Inputs
from estimators.roofline.layouts import PLACEMENT_COLUMNS, ROW_COLUMNS
from estimators.roofline.rules import (
    BATCH_RULES,
    DEGREES,
    PROBLEM_RULES,
    row_rules,
    split_rules,
)

SHAPE = ("num_layers", "hidden_size", "ffn_hidden_size", "num_heads", "seq_len", "vocab_size")
SYSTEM = (
    "matrix_flops_per_second",
    "vector_flops_per_second",
    "hbm_bytes_per_second",
    "hbm_bytes",
    "nvlink_bytes_per_second",
    "nvlink_efficiency",
    "nvlink_latency_seconds",
    "network_bytes_per_second",
    "network_efficiency",
    "network_latency_seconds",
    "nics_per_gpu",
    "flops_efficiency",
    "launch_seconds",
)
RATES = tuple(name for name in SYSTEM if name.endswith("_per_second"))
NEEDED = ("num_layers", "hidden_size", "num_heads", "seq_len")
"""Columns without a default: a shape needs them."""

RECOMPUTATIONS = ("none", "full")
PROBLEM = (
    "model",
    *SHAPE,
    "accelerator",
    "nvlink_size",
    *SYSTEM,
    "bytes_per_element",
    "num_gpus",
    "global_batch_size",
)
CHOICES = ("strategy", "attention", "activation_recompute", "virtual_pipeline")
KEYS = ROW_COLUMNS + PLACEMENT_COLUMNS
OPTIONAL = ("vocab_size",)

DEFAULTS: dict[str, Any] = {
    "nvlink_size": 4,
    "global_batch_size": 4096,
    "bytes_per_element": 2,
    "strategy": "tensor_1d",
    "attention": "flash",
    "activation_recompute": "none",
    "virtual_pipeline": 1,
    "tensor_parallel": 1,
    "tensor_parallel_2": 1,
    "context_parallel": 1,
    "pipeline_parallel": 1,
    "microbatch_size": 1,
}
"""The source's own values where it has them (configurations and program of arXiv 2410.00273)."""

NEUTRAL_CHOICES = {
    name: DEFAULTS[name] for name in ("attention", "activation_recompute", "virtual_pipeline")
}


def resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check the problem: shape, system, batch, choices."""
    inputs.offer("activation_recompute", *RECOMPUTATIONS)
    inputs.look_up(catalog, "model", "model", SHAPE)
    inputs.default("ffn_hidden_size", 4 * inputs["hidden_size"])
    inputs.look_up(catalog, "system", "accelerator", SYSTEM)
    for name in (*PROBLEM, *CHOICES):
        if name in DEFAULTS:
            inputs.default(name, DEFAULTS[name])
    inputs.require(
        (name for name in SHAPE if name not in OPTIONAL), "name a `model`, or give its shape"
    )
    inputs.require(SYSTEM, "name an `accelerator`, or give its attributes")
    inputs.check((*PROBLEM, *CHOICES))
    inputs.check_units((*RATES, "hbm_bytes"))
    inputs.apply(PROBLEM_RULES)


def resolve_layout(inputs: Inputs, mends: Mends) -> None:
    """Complete and check the layout of every row."""
    for name in ROW_COLUMNS:
        if name in DEFAULTS:
            inputs.default(name, DEFAULTS[name])
    inputs.check(("tensor_parallel", "tensor_parallel_2"))
    inputs.default("summa_panels", _fewest_panels(inputs, mends))
    others = prod(inputs[name] for name in DEGREES.values() if name != "data_parallel")
    with np.errstate(all="ignore"):
        inputs.default("data_parallel", np.maximum(inputs["num_gpus"] // others, 1))
    inputs.default("data_parallel", 1)
    inputs.default("num_gpus", others * inputs["data_parallel"])
    inputs.require(("num_gpus",), "")
    inputs.check((*ROW_COLUMNS, *PLACEMENT_COLUMNS, "num_gpus"))
    _default_placement(inputs)
    inputs.apply((*split_rules(mends), *row_rules(mends), *BATCH_RULES))


def _fewest_panels(inputs: Inputs, mends: Mends) -> Array:
    """Return the fewest panels that are searched, 0 where there are none."""
    first, second = (
        np.nan_to_num(inputs[name], nan=1.0, posinf=1.0, neginf=1.0).clip(1, 2**31)
        for name in ("tensor_parallel", "tensor_parallel_2")
    )
    fewest = np.maximum(first, second)
    if "R11" in mends:
        fewest = np.lcm(first.astype(np.int64), second.astype(np.int64)).astype(np.float64)
    return np.where(np.equal(inputs["strategy"], "summa_2d"), fewest, 0.0)


def _default_placement(inputs: Inputs) -> None:
    """Fill domains in rank order: tensor groups first, then context, data, pipeline."""
    room = inputs["nvlink_size"].copy()
    for placement, degree in DEGREES.items():
        if inputs.missing(placement).any():
            inputs.default(placement, _largest_divisor(inputs[degree], room))
        with np.errstate(all="ignore"):
            room = room // inputs[placement]


def _largest_divisor(numbers: Array, limits: Array) -> Array:
    """Return the largest divisor of each number that is at most its limit, at least 1."""
    found = np.ones(len(numbers))
    usable = np.isfinite(numbers) & (numbers >= 1) & (numbers < 2**31) & np.isfinite(limits)
    pairs = np.stack([numbers, limits], axis=1)
    for number, limit in np.unique(pairs[usable], axis=0):
        candidates = divisors(int(number))
        best = candidates[candidates <= max(limit, 1)].max()
        found[usable & (numbers == number) & (limits == limit)] = best
    return found
