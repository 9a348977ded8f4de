"""Inputs of the pipeline estimator: columns, defaults, look-ups, and rules in the source's order.

Source: davidsj/ml_par_sim simple_transformer.py @520dcff.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Mends, Values
from estimators.inputs import Inputs, nearly_whole
from estimators.rules import INTERLEAVING_NEEDS_STAGES, Rule, divides, divides_number

DEVICE = ("flops_8bit_per_second", "memory_bytes_per_second", "network_bytes_per_second")
PROBLEM = (
    "source_version",
    "accelerator",
    *DEVICE,
    "base_utilization",
    "precision_bits",
    "num_layers",
    "hidden_size",
    "internal_size",
    "num_experts",
    "experts_per_token",
    "dataset_tokens",
    "global_batch_size",
    "seq_len",
    "num_gpus",
)
INPUTS = ("internal_ratio",)
DEGREES = ("pipeline_parallel", "data_parallel", "tensor_parallel", "tensor_parallel_external")
KEYS = (*DEGREES, "virtual_pipeline", "microbatch_size")

DEFAULTS: dict[str, Any] = {
    "source_version": "current",
    "base_utilization": 0.6,
    "precision_bits": 8,
    "internal_ratio": 5,
    "num_experts": 1,
    "experts_per_token": 1,
    "global_batch_size": 2048,
    "seq_len": 2048,
}
"""Those of the source's command line."""

DEFAULT_CHIP = "H100"
"""Device of the current version if neither a device nor its attributes are given."""

TOKENS_PER_PARAMETER = 20
"""Source: arXiv 2203.15556. As published it counts the parameters of all experts, see mend P3."""

ALIASES = {
    "chip": "accelerator",
    "chip_type": "accelerator",
    "n_layers": "num_layers",
    "d_model": "hidden_size",
    "d_internal_ratio": "internal_ratio",
    "n_experts": "num_experts",
    "n_routed_experts": "experts_per_token",
    "dataset_size": "dataset_tokens",
    "batch_size": "global_batch_size",
    "network_bandwidth": "network_bytes_per_second",
    "pp": "pipeline_parallel",
    "pipeline_interleaving": "virtual_pipeline",
    "dp": "data_parallel",
    "tp": "tensor_parallel",
    "tp2": "tensor_parallel_external",
}
"""The source's flags."""


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
        "a matmul has a whole number of tokens",
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


def resolve_problem(inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
    """Complete and check the problem."""
    inputs.default("source_version", DEFAULTS["source_version"])
    inputs.check(("source_version",))
    is_readme = np.equal(inputs["source_version"], "readme")
    _look_up_device(inputs, catalog, is_readme)
    _refuse_override(inputs, "base_utilization", is_readme, np.ones(inputs.num_rows))
    inputs.default("base_utilization", np.where(is_readme, 1.0, DEFAULTS["base_utilization"]))
    for name in ("precision_bits", *INPUTS, "num_experts", "experts_per_token"):
        inputs.default(name, DEFAULTS[name])
    for name in ("global_batch_size", "seq_len"):
        inputs.default(name, DEFAULTS[name])
    inputs.require(("num_layers", "hidden_size"), "give the model's shape")
    inputs.check(("internal_ratio", "hidden_size", "num_layers"))
    inputs.default("internal_size", nearly_whole(inputs["internal_ratio"] * inputs["hidden_size"]))
    inputs.check(tuple(n for n in PROBLEM if n not in ("dataset_tokens", "num_gpus")))
    inputs.default("dataset_tokens", _default_tokens(inputs, is_readme, mends))
    inputs.check(("dataset_tokens",))
    inputs.apply(PROBLEM_RULES)
    if "P4" in mends:
        _refuse_less_than_a_batch(inputs, ~is_readme)


def resolve_layout(inputs: Inputs) -> None:
    """Complete and check the layout of every row; the degrees multiply to the GPUs."""
    for name in KEYS:
        inputs.default(name, 1)
    inputs.check(KEYS)
    with np.errstate(all="ignore"):
        gpus = inputs["num_experts"].copy()
        for name in DEGREES:
            gpus = gpus * inputs[name]
    inputs.replace("num_gpus", gpus)
    inputs.check(("num_gpus",))
    inputs.apply(LAYOUT_RULES)


def resolve_ranks(inputs: Inputs, mends: Mends) -> None:
    """Complete and check the GPUs of a search."""
    inputs.require(("num_gpus",), "say how many GPUs the run has")
    inputs.check(("num_gpus",))
    inputs.apply((NUMBER_OF_RANKS,))
    if mends:
        inputs.refuse(
            "source_version",
            np.equal(inputs["source_version"], "readme"),
            "has no mends: its figures are published ones",
            'use variant = "published", or source_version = "current"',
        )


def _look_up_device(inputs: Inputs, catalog: Catalog, is_readme: Array) -> None:
    """Fill the device's rates; the README's version has other devices, and no override."""
    missing = inputs.missing("accelerator")
    inputs.refuse(
        "accelerator", missing & is_readme, "is missing", "the README's version has no default"
    )
    incomplete = np.any([inputs.missing(name) for name in DEVICE], axis=0)
    chips = np.full(inputs.num_rows, None, dtype=object)
    chips[missing & incomplete & ~is_readme] = DEFAULT_CHIP
    inputs.default("accelerator", chips)
    network = np.full(inputs.num_rows, np.nan)
    for name in dict.fromkeys(inputs["accelerator"][is_readme].tolist()):
        record = catalog.tables.get("device", {}).get(name) if name is not None else None
        if record is None:
            continue  # refused below
        rows = is_readme & np.equal(inputs["accelerator"], name)
        if not record["is_in_readme"]:
            inputs.refuse("accelerator", rows, "is not in the README's version")
        else:
            network[rows] = record["readme_network_bytes_per_second"]
    _refuse_override(inputs, "network_bytes_per_second", is_readme, network)
    inputs.default("network_bytes_per_second", network)
    inputs.look_up(catalog, "device", "accelerator", DEVICE)
    inputs.require(DEVICE, "name an `accelerator` of table device, or give its attributes")


def _refuse_override(inputs: Inputs, name: str, is_readme: Array, own: Array) -> None:
    """Refuse inputs that the README's version does not take; stored rows have its own values."""
    inputs.refuse(
        name,
        is_readme & ~inputs.missing(name) & (inputs[name] != own),
        "cannot be given in the README's version",
        "leave it out, or use source_version = current",
    )


def _default_tokens(inputs: Inputs, is_readme: Array, mends: Mends) -> Any:
    """Return 20 tokens a parameter: of all experts, or under mend P3 of the active ones."""
    per_expert = 2 * inputs["num_layers"] * inputs["hidden_size"] * inputs["internal_size"]
    experts = inputs["num_experts"]
    if "P3" in mends:
        experts = np.where(is_readme, experts, inputs["experts_per_token"])
    return TOKENS_PER_PARAMETER * experts * per_expert


def _refuse_less_than_a_batch(inputs: Inputs, rows: Array) -> None:
    """Mend P4: a data set below one batch takes no steps, and so no time."""
    batch = inputs["global_batch_size"] * inputs["seq_len"]
    with np.errstate(invalid="ignore"):
        below = rows & (inputs["dataset_tokens"] < batch)
    inputs.refuse("dataset_tokens", below, "is less than one batch", "use a smaller batch")
