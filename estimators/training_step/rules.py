"""The rules of a layout, a named predicate each: for batches and for searches."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.divisors import divisors
from estimators.kernels.attention import BLOCK
from estimators.rules import Rule, at_most, divides, nearest
from estimators.structure import real
from estimators.training_step.dispatch_rules import DISPATCH_RULES
from estimators.training_step.modules import MODULE_RULES
from estimators.training_step.pipeline_rules import FILLING_RULES, PIPELINE_RULES
from estimators.training_step.recipes import SCALED_IN_HARDWARE, WIDTHS, precision_of


def _has_plain_heads(values: Values) -> np.ndarray:
    head = values["head_size"]
    plain = np.equal(values["qk_head_size"], head) & np.equal(values["v_head_size"], head)
    without = np.equal(values["q_lora_rank"], 0) & np.equal(values["qk_rotary_size"], 0)
    return np.asarray(plain & without)


_OF_EXPERTS = ("num_shared_experts", "shared_ffn_hidden_size", "num_dense_layers")


def _has_no_experts(values: Values) -> np.ndarray:
    """Return where no input of a mixture has a value that means something."""
    is_plain = np.equal(values["expert_ffn_hidden_size"], values["ffn_hidden_size"])
    for name in _OF_EXPERTS:
        is_plain &= np.equal(values[name], 0)
    return np.asarray(is_plain & np.equal(values["moe_period"], 1))


def _has_whole_heads(values: Values) -> np.ndarray:
    """Return where heads have a size, or share the width without remainder.

    Numbers below 1 are left to the limits of their columns.
    """
    width, heads = values["hidden_size"], values["num_heads"]
    known = ~np.isnan(values["head_size"]) | np.less(heads, 1) | np.less(width, 1)
    return np.asarray(known | np.equal(width % np.maximum(heads, 1), 0))


WHOLE_HEADS = Rule(
    "heads share the width without remainder",
    "num_heads",
    ("num_heads", "hidden_size", "head_size"),
    _has_whole_heads,
    lambda row: f"does not divide `hidden_size` {row['hidden_size']}, and no `head_size` is given",
    lambda row: (
        "give `head_size`, or use `num_heads` "
        f"{nearest(divisors(int(row['hidden_size'])), int(row['num_heads']))}"
    ),
)
"""Rule of a shape as it was given, before heads have their default size."""

SHAPE_RULES = (
    Rule(
        "only latent attention has heads of two widths",
        "kv_lora_rank",
        (
            *("kv_lora_rank", "q_lora_rank", "head_size", "qk_head_size", "qk_rotary_size"),
            "v_head_size",
        ),
        lambda v: np.greater(v["kv_lora_rank"], 0) | _has_plain_heads(v),
        lambda row: (
            f"has no latent, and `q_lora_rank` {row['q_lora_rank']}, `qk_head_size` "
            f"{row['qk_head_size']}, `qk_rotary_size` {row['qk_rotary_size']} or `v_head_size` "
            f"{row['v_head_size']} is that of latent attention"
        ),
        lambda _row: "give `kv_lora_rank`, or leave them out",
    ),
    Rule(
        "latent attention has a rotary part",
        "kv_lora_rank",
        ("kv_lora_rank", "qk_rotary_size"),
        lambda v: np.equal(v["kv_lora_rank"], 0) | np.greater(v["qk_rotary_size"], 0),
        lambda _row: "is a size of latent attention, and the model has no other one",
        lambda _row: "leave it out, or give `qk_rotary_size`, `qk_head_size` and `v_head_size` too",
    ),
    Rule(
        "only mixtures have inputs of experts",
        "num_experts",
        ("num_experts", *_OF_EXPERTS, "moe_period", "expert_ffn_hidden_size", "ffn_hidden_size"),
        lambda v: np.greater(v["num_experts"], 1) | _has_no_experts(v),
        lambda row: (
            "makes a dense model, which has no "
            + ", ".join(
                f"`{name}` {row[name]}"
                for name in (*_OF_EXPERTS, "moe_period", "expert_ffn_hidden_size")
                if row[name] not in (0, (1 if name == "moe_period" else row["ffn_hidden_size"]))
            )
        ),
        lambda _row: "leave them out, or give `num_experts` above 1",
    ),
    Rule(
        "chunks of attention need a window",
        "uses_chunked_attention",
        ("uses_chunked_attention", "attention_window"),
        lambda v: (
            ~np.equal(v["uses_chunked_attention"], True) | np.greater(v["attention_window"], 0)
        ),
        lambda _row: "needs `attention_window`, which is 0",
        lambda _row: "give `attention_window`, or use false",
    ),
    Rule(
        "each period of a mixture has one layer with experts",
        "num_dense_layers",
        ("num_dense_layers", "moe_period", "num_layers", "num_experts"),
        lambda v: (
            np.equal(v["moe_period"], 1)
            | np.equal(v["num_experts"], 1)
            | np.equal(
                v["num_dense_layers"],
                v["num_layers"] - v["num_layers"] // np.maximum(v["moe_period"], 1),
            )
        ),
        lambda row: (
            f"is not what `moe_period` {row['moe_period']} leaves of `num_layers` "
            f"{row['num_layers']}"
        ),
    ),
    divides("route_groups", "num_experts"),
    at_most("no more kept groups than groups", "route_groups_kept", "route_groups"),
    Rule(
        "a window period needs a window",
        "window_period",
        ("window_period", "attention_window"),
        lambda v: np.equal(v["window_period"], 0) | np.greater(v["attention_window"], 0),
        lambda _row: "needs `attention_window`, which is 0",
        lambda _row: "give `attention_window`, or use 0",
    ),
)
"""Rules of a decoder's shape: latent attention, mixtures, windows."""


def _has_rate(width: str, values: Values) -> Any:
    rate = real(values[f"{width}_flops_per_second"])
    return np.not_equal(values["precision"], width) | ~np.isnan(rate)


def _other_width(width: str, row: Values) -> str:
    """Return the hint to use another format, or to give the rate."""
    has_fp8 = width == "fp4" and not np.isnan(real(row["fp8_flops_per_second"]))
    others = f"use {'fp8 or bf16' if has_fp8 else 'bf16'}, and leave `number_recipe` out"
    # tensor cores that do not apply the scales run no recipe of the width
    is_lacking = row["transposes_operands"] and row["number_recipe"] in SCALED_IN_HARDWARE
    return others if is_lacking else f"{others}; or give `{width}_flops_per_second`"


def _recipes_of(row: Values) -> str:
    """Return the recipes of the precision that run on the accelerator."""
    names = [name for name, width in WIDTHS.items() if width == row["precision"]] or ["none"]
    if row["transposes_operands"]:
        names = [name for name in names if name not in SCALED_IN_HARDWARE] or names
    return " or ".join(", ".join(names).rsplit(", ", 1))


PROBLEM_RULES = (
    *MODULE_RULES,
    *DISPATCH_RULES,
    *(
        Rule(
            f"{width} has a rate",
            "precision",
            (
                *("precision", "number_recipe", "transposes_operands"),
                *("fp8_flops_per_second", "fp4_flops_per_second"),
            ),
            partial(_has_rate, width),
            lambda _row: "has no published peak rate on this accelerator",
            partial(_other_width, width),
        )
        for width in ("fp8", "fp4")
    ),
    Rule(
        "a recipe makes its precision",
        "number_recipe",
        ("number_recipe", "precision", "transposes_operands"),
        lambda v: (
            np.equal(precision_of(v["number_recipe"]), v["precision"])
            | (np.equal(v["number_recipe"], "none") & np.equal(v["precision"], "fp16"))
        ),
        lambda row: f"does not make `precision` {row['precision']}",
        lambda row: f"use {_recipes_of(row)}",
    ),
    Rule(
        "no more layers in 16 bits than layers",
        "num_bf16_layers_end",
        ("num_bf16_layers_start", "num_bf16_layers_end", "num_layers"),
        lambda v: v["num_bf16_layers_start"] + v["num_bf16_layers_end"] <= v["num_layers"],
        lambda row: (
            f"and `num_bf16_layers_start` {row['num_bf16_layers_start']} are more than "
            f"`num_layers` {row['num_layers']}"
        ),
        varies=("num_bf16_layers_end", "num_bf16_layers_start"),
    ),
    Rule(
        "scales of past steps hold for all layers",
        "num_bf16_layers_start",
        ("num_bf16_layers_start", "num_bf16_layers_end", "number_recipe"),
        lambda v: (
            ~np.equal(v["number_recipe"], "delayed")
            | (v["num_bf16_layers_start"] + v["num_bf16_layers_end"] == 0)
        ),
        lambda _row: "and layers at the end in 16 bits are not possible with delayed scales",
        lambda _row: "use 0 of both, or `number_recipe` tensorwise",
    ),
    Rule(
        "tensor cores apply scales of small blocks",
        "number_recipe",
        ("number_recipe", "transposes_operands", "fp8_flops_per_second"),
        lambda v: (
            ~np.isin(np.asarray(v["number_recipe"], dtype=str), SCALED_IN_HARDWARE)
            | ~np.equal(v["transposes_operands"], True)
        ),
        lambda _row: "has scales that the tensor cores of this accelerator do not apply",
        lambda row: (
            "use none, with `precision` bf16"
            if np.isnan(real(row["fp8_flops_per_second"]))
            else "use tensorwise, delayed or blockwise, with `precision` fp8"
        ),
    ),
    Rule(
        "a power limit leaves room for work",
        "power_limit_watts",
        ("power_limit_watts", "gpu_idle_watts"),
        lambda v: ~(real(v["power_limit_watts"]) <= v["gpu_idle_watts"]),
        lambda row: f"is not above `gpu_idle_watts` {row['gpu_idle_watts']:g}",
        lambda _row: "give the limit of the whole board, such as 700 of an H100",
    ),
    divides("num_kv_heads", "num_heads", name="key heads divide heads"),
    at_most("no more experts a token than experts", "experts_per_token", "num_experts"),
    at_most("no more dense layers than layers", "num_dense_layers", "num_layers"),
    *SHAPE_RULES,
)


def _product(values: Values) -> Any:
    """Return the product of the degrees: the GPUs of a layout."""
    return (
        values["tensor_parallel"]
        * values["context_parallel"]
        * values["pipeline_parallel"]
        * values["data_parallel"]
    )


_DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")


def _other_degrees(row: Values) -> dict[str, list[int]]:
    """Return the product, and the replicas or else the degrees that the others leave."""
    listed = {"num_gpus": [int(_product(row))]}
    for name in reversed(_DEGREES):
        others = int(_product(row)) // max(int(row[name]), 1)
        degree, rest = divmod(int(row["num_gpus"]), max(others, 1))
        if degree and not rest:
            listed[name] = [degree]
            if name == "data_parallel":
                break
    return listed


_OF_STAGE = ("tensor_parallel", "context_parallel", "data_parallel")


def stage_ranks(values: Values) -> Any:
    """Return the GPUs of a pipeline stage."""
    return values["tensor_parallel"] * values["context_parallel"] * values["data_parallel"]


LAYER_RULES = (
    divides("tensor_parallel", "num_heads"),
    divides("tensor_parallel", "ffn_hidden_size"),
    Rule(
        "shared experts are split over tensors",
        "tensor_parallel",
        ("tensor_parallel", "shared_ffn_hidden_size", "num_experts"),
        lambda v: (
            np.equal(v["num_experts"], 1)
            | np.equal(
                np.remainder(v["shared_ffn_hidden_size"], np.maximum(v["tensor_parallel"], 1)), 0
            )
        ),
        lambda row: f"does not divide `shared_ffn_hidden_size` {row['shared_ffn_hidden_size']}",
    ),
    Rule(
        "the tensor degree of experts divides their width",
        "expert_tensor_parallel",
        ("expert_tensor_parallel", "expert_ffn_hidden_size", "num_experts"),
        # without experts there is a width of 1 to split
        lambda v: np.equal(
            np.remainder(
                np.where(np.greater(v["num_experts"], 1), v["expert_ffn_hidden_size"], 1),
                np.maximum(v["expert_tensor_parallel"], 1),
            ),
            0,
        ),
        lambda row: (
            f"does not divide `expert_ffn_hidden_size` {row['expert_ffn_hidden_size']}"
            if row["num_experts"] > 1
            else "splits experts, and the model has none"
        ),
    ),
    Rule(
        "key heads are split or copied evenly",
        "tensor_parallel",
        ("tensor_parallel", "num_kv_heads"),
        lambda v: (
            (np.remainder(v["num_kv_heads"], np.maximum(v["tensor_parallel"], 1)) == 0)
            | (np.remainder(v["tensor_parallel"], np.maximum(v["num_kv_heads"], 1)) == 0)
        ),
        lambda row: f"neither divides `num_kv_heads` {row['num_kv_heads']} nor is divided by it",
    ),
    Rule(
        "context parallelism needs fused attention",
        "context_parallel",
        ("context_parallel", "attention"),
        lambda v: np.equal(v["context_parallel"], 1) | np.equal(v["attention"], "flash"),
        lambda row: f"needs fused attention, not {row['attention']}",
        varies=("context_parallel", "attention"),
    ),
    Rule(
        "shares of a sequence fill blocks of attention",
        "context_parallel",
        ("context_parallel", "seq_len"),
        # two shares a rank, one early and one late, balance the work under a causal mask
        lambda v: (
            np.equal(v["context_parallel"], 1)
            | (
                (np.remainder(v["seq_len"], 2 * np.maximum(v["context_parallel"], 1)) == 0)
                & (v["seq_len"] >= 2 * BLOCK * v["context_parallel"])
            )
        ),
        lambda row: (
            f"does not split `seq_len` {row['seq_len']} into two shares a rank of "
            f"{BLOCK} tokens or more"
        ),
    ),
    divides("expert_parallel", "num_experts", name="experts are split evenly"),
    Rule(
        "sequence parallelism splits over tensors",
        "uses_sequence_parallel",
        ("uses_sequence_parallel", "tensor_parallel", "context_parallel", "seq_len"),
        lambda v: (
            ~np.equal(v["uses_sequence_parallel"], True)
            | (
                (v["tensor_parallel"] > 1)
                & (
                    np.remainder(
                        v["seq_len"], np.maximum(v["tensor_parallel"] * v["context_parallel"], 1)
                    )
                    == 0
                )
            )
        ),
        lambda row: (
            f"needs `tensor_parallel` above 1 that splits `seq_len` {row['seq_len']} evenly; it is "
            f"{row['tensor_parallel']}"
        ),
        varies=("uses_sequence_parallel", "tensor_parallel"),
    ),
    Rule(
        "experts over tensors need sequence parallelism",
        "uses_sequence_parallel",
        ("uses_sequence_parallel", "tensor_parallel", "num_experts"),
        lambda v: (
            np.equal(v["uses_sequence_parallel"], True)
            | (v["tensor_parallel"] == 1)
            | (v["num_experts"] == 1)
        ),
        lambda _row: "is needed by a mixture of experts under tensor parallelism",
        varies=("uses_sequence_parallel", "tensor_parallel"),
    ),
)
"""Rules of the degrees that split a layer."""

SPLIT_RULES = (
    Rule(
        "degrees multiply to the GPUs",
        "num_gpus",
        ("num_gpus", *_DEGREES),
        lambda v: np.equal(_product(v), v["num_gpus"]),
        lambda row: f"is not the product of the degrees, {_product(row)}",
        listed=_other_degrees,
    ),
    *PIPELINE_RULES,
    Rule(
        "expert groups fill a stage",
        "expert_parallel",
        ("expert_tensor_parallel", "expert_parallel", *_OF_STAGE),
        lambda v: np.equal(
            np.remainder(
                stage_ranks(v), np.maximum(v["expert_tensor_parallel"] * v["expert_parallel"], 1)
            ),
            0,
        ),
        lambda row: (
            f"times `expert_tensor_parallel` {row['expert_tensor_parallel']} does not divide the "
            f"{stage_ranks(row)} GPUs of a stage"
        ),
        varies=("expert_parallel", "expert_tensor_parallel"),
    ),
    Rule(
        "replicas divide the batch",
        "microbatch_size",
        ("global_batch_size", "data_parallel", "microbatch_size"),
        lambda v: np.equal(
            np.remainder(
                v["global_batch_size"], np.maximum(v["data_parallel"] * v["microbatch_size"], 1)
            ),
            0,
        ),
        lambda row: (
            f"times `data_parallel` {row['data_parallel']} does not divide `global_batch_size` "
            f"{row['global_batch_size']}"
        ),
        varies=("microbatch_size", "global_batch_size", "data_parallel"),
    ),
    *FILLING_RULES,
)
"""Rules of how layers and batch are split over stages and replicas."""

SHARDING_NEEDS_REPLICAS = Rule(
    "sharding needs replicas",
    "zero_stage",
    ("zero_stage", "data_parallel", "context_parallel"),
    lambda v: np.equal(v["zero_stage"], 0) | (v["data_parallel"] * v["context_parallel"] > 1),
    lambda _row: "has nothing to shard over: there is one replica",
    lambda _row: "use 0, or more replicas",
)
"""Searches apply it, so that they have a layout once; a batch has stage 0 there."""

LAYOUT_RULES = (*LAYER_RULES, *SPLIT_RULES)
