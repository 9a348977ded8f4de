"""Inputs of the dataflow estimator: columns, defaults, look-ups."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from estimators.contract import Catalog, RefusedError, Scalar
from estimators.dataflow.rules import LAYOUT_RULES, PROBLEM_RULES
from estimators.dataflow.run import Degrees
from estimators.inputs import Inputs, nearly_whole

PROBLEM = (
    "num_experts",
    "global_batch_size",
    "seq_len",
    "use_glu",
    "multi_query_attention",
    "sequential_attention_ffn",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "head_size",
    "num_heads",
    "dataset_tokens",
    "accelerator",
    "gpus_per_cluster",
    "cluster_flops_per_second",
    "network_bytes_per_element",
    "forward_only",
    "num_clusters",
)
CHOICES = ("activation_recompute", "skip_efficiency_check")
NEUTRAL_CHOICES: dict[str, Scalar] = {
    "activation_recompute": "none",
    "skip_efficiency_check": False,
}
INPUTS = ("ffn_ratio", "attention_width_ratio", "base_utilization")
OPTIONAL = ("accelerator", "gpus_per_cluster", "cluster_flops_per_second")
KEYS = tuple(field.name for field in fields(Degrees))

DEFAULTS: dict[str, Any] = {
    "num_experts": 1,
    "global_batch_size": 2048,
    "seq_len": 2048,
    "use_glu": False,
    "multi_query_attention": True,
    "sequential_attention_ffn": False,
    "head_size": 64,
    "network_bytes_per_element": 2,
    "forward_only": False,
    **NEUTRAL_CHOICES,
}
"""Those of the source's command line."""

ALIASES = {
    "batch_size": "global_batch_size",
    "dataset_size": "dataset_tokens",
    "d_model": "hidden_size",
    "d_ffn_ratio": "ffn_ratio",
    "d_ffn": "ffn_hidden_size",
    "d_head": "head_size",
    "total_attn_width_ratio": "attention_width_ratio",
    "consecutive_attn_and_ffn": "sequential_attention_ffn",
    "fwd_only": "forward_only",
    "net_precision_bytes": "network_bytes_per_element",
    "cluster_flop_rate": "cluster_flops_per_second",
    "p_data": "data_parallel",
    "p_pipe": "pipeline_parallel",
    "p_exp": "expert_parallel",
    "p_seq": "sequence_parallel",
    "p_tensor_int": "tensor_parallel",
    "p_tensor_ext": "tensor_parallel_external",
}
"""The source's flags."""


def resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check the problem."""
    inputs.offer("activation_recompute", "none", "full")
    for name, value in DEFAULTS.items():
        inputs.default(name, value)
    inputs.require(("num_layers", "hidden_size"), "give the model's shape")
    inputs.require(("dataset_tokens",), "give the tokens of the data set")
    inputs.check((*INPUTS, "hidden_size", "head_size", "ffn_hidden_size", "num_heads"))
    _either(inputs, "ffn_hidden_size", "ffn_ratio")
    _either(inputs, "num_heads", "attention_width_ratio")
    inputs.default("ffn_ratio", 4)
    inputs.default("ffn_hidden_size", nearly_whole(inputs["ffn_ratio"] * inputs["hidden_size"]))
    _default_heads(inputs)
    _default_rate(inputs, catalog)
    inputs.check(tuple(name for name in (*PROBLEM, *CHOICES) if name != "num_clusters"))
    inputs.apply(PROBLEM_RULES)
    _refuse_no_batch(inputs)


def resolve_layout(inputs: Inputs) -> None:
    """Complete and check the layout of every row; the degrees multiply to the clusters."""
    clusters = np.ones(inputs.num_rows)
    for name in KEYS:
        inputs.default(name, 1)
        with np.errstate(all="ignore"):
            clusters = clusters * inputs[name]
    inputs.check(KEYS)
    inputs.replace("num_clusters", clusters)
    inputs.check(("num_clusters",))
    inputs.apply(LAYOUT_RULES)


def _either(inputs: Inputs, size: str, ratio: str) -> None:
    both = ~inputs.missing(size) & ~inputs.missing(ratio)
    inputs.refuse(size, both, f"and `{ratio}` are both given", "give one of the two")


def _default_heads(inputs: Inputs) -> None:
    """Fill the heads from the width of all of them, which must be whole."""
    from_width = inputs.missing("num_heads")
    inputs.default("attention_width_ratio", 1)
    with np.errstate(all="ignore"):
        width = inputs["attention_width_ratio"] * inputs["hidden_size"]
        heads = nearly_whole(width / inputs["head_size"])
    broken = from_width & (heads != np.floor(heads)) & np.isfinite(heads)
    reason = "does not divide the width of all heads"
    inputs.refuse(
        "head_size", broken, reason, "give `num_heads`, or another `attention_width_ratio`"
    )
    inputs.default("num_heads", np.where(broken, 1.0, heads))


def _default_rate(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the rate of a cluster from its GPUs: their peak rate and the share of it reached."""
    given = ~inputs.missing("base_utilization")
    useless = inputs.missing("accelerator") | ~inputs.missing("cluster_flops_per_second")
    inputs.refuse(
        "base_utilization",
        given & useless,
        "has nothing to apply to",
        "name an `accelerator`, and leave `cluster_flops_per_second` out",
    )
    inputs.default("base_utilization", 1)
    names = [name for name in dict.fromkeys(inputs["accelerator"].tolist()) if name is not None]
    for name in names:
        rows = np.equal(inputs["accelerator"], name)
        try:
            record = catalog.find("system", name)
        except RefusedError as error:
            [refusal] = error.refusals
            inputs.refuse("accelerator", rows, refusal.reason, refusal.hint)
            continue
        gpus = np.where(rows & inputs.missing("gpus_per_cluster"), 1.0, inputs["gpus_per_cluster"])
        inputs.replace("gpus_per_cluster", gpus)
        peak = np.full(inputs.num_rows, np.nan)
        peak[rows] = record["matrix_flops_per_second"]
        inputs.default("cluster_flops_per_second", gpus * peak * inputs["base_utilization"])


def _refuse_no_batch(inputs: Inputs) -> None:
    """Refuse data sets that round to no batch at all."""
    with np.errstate(all="ignore"):
        batch = inputs["global_batch_size"] * inputs["seq_len"]
        none = np.equal(np.rint(inputs["dataset_tokens"] / batch), 0)
    hint = "use a smaller batch, or more tokens"
    inputs.refuse("dataset_tokens", none, "is at most half of one batch: no step is taken", hint)
