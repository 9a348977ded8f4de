"""What the roofline estimator takes: columns, defaults and rules, for batches and searches."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Mends, Values
from estimators.inputs import Inputs
from estimators.roofline.layer import STRATEGIES
from estimators.roofline.layouts import PLACEMENT_COLUMNS, ROW_COLUMNS
from estimators.rules import Rule, divides, one_of
from estimators.spaces import divisors

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
CHOICES = ("strategy", "activation_recompute", "virtual_pipeline")
KEYS = ROW_COLUMNS + PLACEMENT_COLUMNS
OPTIONAL = ("vocab_size",)

DEFAULTS: dict[str, Any] = {
    "nvlink_size": 4,
    "global_batch_size": 4096,
    "bytes_per_element": 2,
    "flops_efficiency": 0.8,
    "launch_seconds": 20e-6,
    "strategy": "tensor_1d",
    "activation_recompute": "none",
    "virtual_pipeline": 1,
    "tensor_parallel": 1,
    "tensor_parallel_2": 1,
    "context_parallel": 1,
    "pipeline_parallel": 1,
    "microbatch_size": 1,
    "summa_panels": 0,
}
"""The source's own values where it has them (configurations and program of arXiv 2410.00273)."""

DEGREES = {
    "nvlink_tensor_parallel": "tensor_parallel",
    "nvlink_tensor_parallel_2": "tensor_parallel_2",
    "nvlink_context_parallel": "context_parallel",
    "nvlink_data_parallel": "data_parallel",
    "nvlink_pipeline_parallel": "pipeline_parallel",
}
"""Placement -> the degree it divides, in the order in which ranks fill a domain by default."""


def _per_replica(values: Values) -> Any:
    return values["global_batch_size"] // np.maximum(values["data_parallel"], 1)


def _microbatches(values: Values) -> Any:
    return _per_replica(values) // np.maximum(values["microbatch_size"], 1)


def _stage_layers(values: Values) -> Any:
    return values["num_layers"] // np.maximum(values["pipeline_parallel"], 1)


def _used_only(column: str, neutral: int) -> Rule:
    return Rule(
        f"{column} is unused in tensor_1d",
        column,
        (column, "strategy"),
        lambda values: np.equal(values[column], neutral),
        lambda row: f"has no meaning in strategy {row['strategy']}",
        lambda _: f"use {neutral} or leave it out",
    )


PROBLEM_RULES = (divides("num_heads", "hidden_size"),)

SPLIT_RULES = (
    divides("tensor_parallel", "num_heads"),
    divides("tensor_parallel", "hidden_size"),
    divides("tensor_parallel", "ffn_hidden_size"),
    divides("pipeline_parallel", "num_layers"),
    divides("data_parallel", "global_batch_size"),
    Rule(
        "chunks divide the layers of a stage",
        "virtual_pipeline",
        ("virtual_pipeline", "num_layers", "pipeline_parallel"),
        lambda v: np.equal(_stage_layers(v) % np.maximum(v["virtual_pipeline"], 1), 0),
        lambda row: f"does not divide the {_stage_layers(row)} layers of a stage",
        lambda row: f"use {one_of(divisors(max(int(_stage_layers(row)), 1)))}",
    ),
    Rule(
        "interleaving needs stages",
        "virtual_pipeline",
        ("virtual_pipeline", "pipeline_parallel"),
        lambda v: np.less_equal(v["virtual_pipeline"], 1) | np.greater(v["pipeline_parallel"], 1),
        lambda _: "interleaves a pipeline of one stage",
        lambda _: "use 1, or more than one stage",
    ),
)

ROW_RULES = (
    Rule(
        "microbatch divides the replica's batch",
        "microbatch_size",
        ("microbatch_size", "global_batch_size", "data_parallel"),
        lambda v: np.equal(_per_replica(v) % np.maximum(v["microbatch_size"], 1), 0),
        lambda row: f"does not divide the {_per_replica(row)} sequences of a replica",
        lambda row: f"use {one_of(divisors(max(int(_per_replica(row)), 1)))}",
    ),
    Rule(
        "tokens of a microbatch split evenly",
        "tensor_parallel",
        ("tensor_parallel", "microbatch_size", "seq_len"),
        lambda v: np.equal(
            v["microbatch_size"] * v["seq_len"] % np.maximum(v["tensor_parallel"], 1), 0
        ),
        lambda row: (
            f"does not divide the {row['microbatch_size'] * row['seq_len']} tokens of a microbatch"
        ),
        lambda _: "",
    ),
    Rule(
        "interleaving takes microbatches in rounds of stages",
        "virtual_pipeline",
        (
            "virtual_pipeline",
            "pipeline_parallel",
            "microbatch_size",
            "global_batch_size",
            "data_parallel",
        ),
        lambda v: (
            np.less_equal(v["virtual_pipeline"], 1)
            | np.equal(_microbatches(v) % np.maximum(v["pipeline_parallel"], 1), 0)
        ),
        lambda row: (
            f"needs a multiple of {row['pipeline_parallel']} microbatches, not {_microbatches(row)}"
        ),
        lambda _: "use another microbatch_size, or 1",
    ),
)

EXACT_SEQUENCE = divides("tensor_parallel", "seq_len")
"""Mend R4: no token may be lost in a floored split."""

BATCH_RULES = (
    _used_only("tensor_parallel_2", 1),
    _used_only("context_parallel", 1),
    _used_only("summa_panels", 0),
    Rule(
        "degrees multiply to the GPUs",
        "num_gpus",
        ("num_gpus", "data_parallel", "tensor_parallel", "pipeline_parallel"),
        lambda v: np.equal(
            v["num_gpus"], v["data_parallel"] * v["tensor_parallel"] * v["pipeline_parallel"]
        ),
        lambda row: (
            f"is not data x tensor x pipeline parallel, {row['data_parallel']} x "
            f"{row['tensor_parallel']} x {row['pipeline_parallel']}"
        ),
        lambda row: (
            f"use {row['data_parallel'] * row['tensor_parallel'] * row['pipeline_parallel']}"
        ),
    ),
    *(divides(placement, degree) for placement, degree in DEGREES.items()),
    Rule(
        "placement fits the domain",
        "nvlink_size",
        ("nvlink_size", *DEGREES),
        lambda v: np.less_equal(prod(v[name] for name in DEGREES), v["nvlink_size"]),
        lambda row: (
            "is smaller than the members placed in one domain, "
            + " x ".join(str(row[name]) for name in DEGREES)
        ),
        lambda _: "place fewer, or use a larger domain",
    ),
)


def split_rules(mends: Mends) -> tuple[Rule, ...]:
    """Return the rules of a split under `mends`."""
    return (*SPLIT_RULES, EXACT_SEQUENCE) if "R4" in mends else SPLIT_RULES


def resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check what is not layout: shape, system, batch, choices."""
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
    searched = tuple(STRATEGIES)
    unknown = ~np.isin(inputs["strategy"], searched)
    inputs.refuse("strategy", unknown, "is not modelled", f"use {', '.join(searched)}")
    inputs.apply(PROBLEM_RULES)


def resolve_layout(inputs: Inputs, mends: Mends) -> None:
    """Complete and check the layout of every row."""
    for name in ROW_COLUMNS:
        if name in DEFAULTS:
            inputs.default(name, DEFAULTS[name])
    others = inputs["tensor_parallel"] * inputs["pipeline_parallel"]
    with np.errstate(all="ignore"):
        inputs.default("data_parallel", np.maximum(inputs["num_gpus"] // others, 1))
    inputs.default("data_parallel", 1)
    inputs.default("num_gpus", others * inputs["data_parallel"])
    inputs.require(("num_gpus",), "")
    inputs.check((*ROW_COLUMNS, *PLACEMENT_COLUMNS, "num_gpus"))
    _default_placement(inputs)
    inputs.apply((*split_rules(mends), *ROW_RULES, *BATCH_RULES))


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
