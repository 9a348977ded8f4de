"""Arguments of Megatron-LM from columns: its table, and its functions, read backwards.

A column's entry in megatron.toml inverts by itself. Each function here is the inverse of the one of
its name in megatron.py, and adds what the program asks for besides (NVIDIA/Megatron-LM @d98e8a64
megatron/training/arguments.py `validate_args`, megatron/core/transformer/transformer_config.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from estimators.contract import Refusal

if TYPE_CHECKING:
    from warehouse.launch.arguments import Value
    from warehouse.launch.table import Flag, ProgramTable

Values = Mapping[str, Any]
Found = dict[str, "Value"]

_ALWAYS = ("position-embedding-type", "moe-token-dispatcher-type", "moe-router-topk")
"""Arguments that are given at their defaults, too: the defaults are no choice of a plan."""

_AT = {"activation-func-clamp-value": "7.0"}
"""Arguments with a value of which a column has only whether they are given: that of gpt-oss."""

_FORMATS = {"delayed": "hybrid", "tensorwise": "hybrid", "blockwise": "e4m3", "mxfp8": "e4m3"}
"""Recipe -> the 8 bits of its operands, as the recipes of Megatron-Bridge take them; source:
NVIDIA-NeMo/Megatron-Bridge @067f987d src/megatron/bridge/training/mixed_precision.py."""


def arguments_of(values: Values, known: ProgramTable) -> Found:
    """Return the arguments that say these columns, in the order of the table.

    Some cannot be said; who reads the arguments sees which.
    """
    found: Found = {}
    done: set[str] = set()
    for name, flag in known.flags.items():
        if (flag.by or flag.column) in done or (flag.beside and flag.beside not in found):
            continue
        done.add(flag.by or flag.column or name)
        if flag.by:
            inverse = _INVERSES.get(flag.by.rpartition(".")[2])
            found |= {} if inverse is None else inverse(values)
        elif flag.is_switch:
            if _is_on(flag, values):
                found[name] = _AT.get(name, True)
        elif (text := _said(name, flag, values)) is not None:
            found[name] = text
    return _agreed(found, values)


def _is_on(flag: Flag, values: Values) -> bool:
    if flag.on:
        return all(text_of(values.get(column)) == text for column, text in flag.on.items())
    return any(text_of(values.get(column)) != text for column, text in flag.off.items())


def _said(name: str, flag: Flag, values: Values) -> str | None:
    """Return the value of an argument for its column; None where it is left out."""
    text = text_of(values.get(flag.column))
    if text == "" or (text == flag.default and name not in _ALWAYS):
        return None
    if not flag.values:
        return text
    return next((theirs for theirs, ours in flag.values.items() if ours == text), None)


def text_of(value: object) -> str:
    """Return a value as a launch file has it; "" for none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None or value != value else str(value)  # NaN


def _agreed(found: Found, values: Values) -> Found:
    """Return the arguments without those that the program refuses beside others, and change nothing."""
    left_out = set()
    if values["zero_stage"] == 0 or "overlap-grad-reduce" not in found:
        left_out.add("overlap-param-gather")  # of the distributed optimizer
    if not values["uses_sequence_parallel"]:
        left_out.add("tp-comm-overlap")
    if values["pipeline_parallel"] == 1 or values["virtual_pipeline"] == 1:
        left_out |= {"num-virtual-stages-per-pipeline-rank", "no-overlap-p2p-communication"}
    if "pipeline-model-parallel-layout" in found:  # has the chunks
        left_out.add("num-virtual-stages-per-pipeline-rank")
    if values["uses_linear_bias"]:  # the router is linear, too
        left_out.add("moe-router-enable-expert-bias")
    if "moe-router-num-groups" not in found:
        left_out.add("moe-router-group-topk")
    if values["kv_lora_rank"]:  # its norms are those of the latents
        found["qk-layernorm"] = True
    return {name: value for name, value in found.items() if name not in left_out}


def conflicts(values: Values) -> list[Refusal]:
    """Return the columns that Megatron-Core refuses beside others."""
    is_split = values["counts_embedding"] or values["counts_loss"]
    is_sized = values["layers_in_first_stage"] or values["layers_in_last_stage"]
    graphs = values["uses_cuda_graphs"] and not values["captures_whole_steps"]
    is_plain = values["pipeline_parallel"] > 1 and values["virtual_pipeline"] == 1
    rules = (
        ("vocab_size", not values["vocab_size"], "is missing: the program trains on tokens"),
        ("counts_loss", is_split and is_sized, "goes with no layers_in_first_stage or _last_stage"),
        (
            "uses_cuda_graphs",
            graphs and values["activation_recompute"] == "full",
            "captures no layers that are recomputed as a whole; captures_whole_steps=true does",
        ),
        (
            "recompute_modules",
            graphs and "moe" in text_of(values["recompute_modules"]).split("+"),
            "has moe, whose router is captured; uses_cuda_graphs=false, or without moe",
        ),
        (
            "overlaps_expert_comm",
            values["overlaps_expert_comm"] and is_plain,
            "needs chunks where there are stages: virtual_pipeline of 2 or more",
        ),
        (
            "overlaps_expert_comm",
            values["overlaps_expert_comm"] and values["activation_recompute"] == "full",
            "goes with no layers that are recomputed as a whole",
        ),
        (
            "keeps_quantized_weights",
            values["keeps_quantized_weights"] and values["zero_stage"] == 0,
            "needs a sharded optimizer: zero_stage=1, or keeps_quantized_weights=false",
        ),
    )
    is_mixture = values["num_experts"] > 1
    return [
        Refusal(name, values[name], reason)
        for name, is_one, reason in rules
        if is_one and (is_mixture or name != "overlaps_expert_comm")
    ]


# ---- one function for each that reads ----


def _ffn(values: Values) -> Found:
    width = text_of(values["ffn_hidden_size"])
    found: Found = {"ffn-hidden-size": width} if width else {}
    if values["uses_glu"]:
        is_clamped = bool(values["uses_gate_clamp"])
        found |= (
            {"quick-geglu": True, "glu-linear-offset": "1.0"} if is_clamped else {"swiglu": True}
        )
    return found


def _query_groups(values: Values) -> Found:
    if values["kv_lora_rank"] or values["num_kv_heads"] == values["num_heads"]:
        return {}
    return {"group-query-attention": True, "num-query-groups": text_of(values["num_kv_heads"])}


def _latents(values: Values) -> Found:
    return {"multi-latent-attention": True} if values["kv_lora_rank"] else {}


def _qkv_bias(values: Values) -> Found:
    biases = (values["num_heads"] + 2 * values["num_kv_heads"]) * values["head_size"]
    is_one = values["other_layer_parameters"] == biases and not values["uses_linear_bias"]
    return {"add-qkv-bias": True} if is_one else {}


def _windows(values: Values) -> Found:
    window, period = values["attention_window"], values["window_period"]
    if not window:
        return {}
    found: Found = {"window-size": f"{int(window) - 1},0"}
    return found | ({"window-attn-skip-freq": text_of(period)} if period else {})


def _shared_experts(values: Values) -> Found:
    width = values["shared_ffn_hidden_size"]
    is_one = values["num_experts"] > 1 and width
    return {"moe-shared-expert-intermediate-size": text_of(width)} if is_one else {}


def _expert_layers(values: Values) -> Found:
    layers, dense, period = (
        int(values[name] or 0) for name in ("num_layers", "num_dense_layers", "moe_period")
    )
    if values["num_experts"] == 1 or (dense == 0 and period <= 1):
        return {}
    kinds = f"([0]*{dense}+[1]*{layers - dense})"
    if period > 1:
        rest = f"+[0]*{layers % period}" if layers % period else ""
        kinds = f"(([0]*{period - 1}+[1])*{layers // period}{rest})"
    return {"moe-layer-freq": kinds}


def _batch(values: Values) -> Found:
    return {"global-batch-size": text_of(values["global_batch_size"])}


def _placement(values: Values) -> Found:
    text = text_of(values["pipeline_layout"])
    return {"pipeline-model-parallel-layout": text} if text else {}


def _zero(values: Values) -> Found:
    stage = values["zero_stage"]
    if stage < 2:
        return {"use-distributed-optimizer": True} if stage else {}
    sharded = "optim_grads_params" if stage == 3 else "optim_grads"
    return {
        "use-distributed-optimizer": True,
        "use-megatron-fsdp": True,
        "data-parallel-sharding-strategy": sharded,
        "ckpt-format": "fsdp_dtensor",
    }


def _precision(values: Values) -> Found:
    width, recipe = values["precision"], values["number_recipe"]
    if width in ("bf16", "fp16"):
        return {width: True}
    found: Found = {"bf16": True, f"{width}-format": _FORMATS.get(recipe, "e2m1")}
    found[f"{width}-recipe"] = recipe
    if values["keeps_quantized_weights"]:
        found[f"{width}-param-gather"] = True
        if recipe == "mxfp8" and values["zero_stage"] == 1:
            found["reuse-grad-buf-for-mxfp8-param-ag"] = True
    if values["quantizes_output_layer"]:
        found["fp8-output-proj"] = True
    ends = [text_of(values[f"num_bf16_layers_{end}"]) or "0" for end in ("start", "end")]
    if ends != ["0", "0"]:
        found["first-last-layers-bf16"] = True
        names = ("num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16")
        found |= dict(zip(names, ends, strict=True))
    return found


def _optimizer(values: Values) -> Found:
    """Tell the formats by their bytes together: a main weight and two moments."""
    formats = {12: ("fp32", "fp32"), 10: ("fp16", "fp32"), 8: ("fp32", "bf16"), 6: ("fp16", "bf16")}
    main, moment = formats.get(values["stored_optimizer_bytes"], ("fp32", "fp32"))
    gradient = values["stored_gradient_bytes"] == 2 and values["reduced_gradient_bytes"] != 2
    if (main, moment) == ("fp32", "fp32") and not gradient:
        return {}
    found: Found = {"use-precision-aware-optimizer": True, "main-params-dtype": main}
    found |= {"exp-avg-dtype": moment, "exp-avg-sq-dtype": moment}
    return found | ({"main-grads-dtype": "bf16"} if gradient else {})


def _recomputation(values: Values) -> Found:
    kind, parts = values["activation_recompute"], text_of(values["recompute_modules"])
    if kind == "full":
        return {
            "recompute-granularity": "full",
            "recompute-method": "uniform",
            "recompute-num-layers": "1",
        }
    modules = parts.split("+") if parts not in ("", "none") else []
    if kind == "none" and not modules:
        return {}
    found: Found = {"recompute-granularity": "selective"}  # a list replaces core_attn
    return found | ({"recompute-modules": modules} if modules else {})


def _dropout(values: Values) -> Found:
    rate = "0.1" if values["uses_dropout"] else "0.0"
    return {"attention-dropout": rate, "hidden-dropout": rate}


def _graphs(values: Values) -> Found:
    if not values["uses_cuda_graphs"]:
        return {}
    if values["captures_whole_steps"]:
        return {"cuda-graph-impl": "full_iteration", "no-check-for-nan-in-loss-and-grad": True}
    attention = ["attn"] if values["captures_attention"] else []
    is_mixture, has_dense = values["num_experts"] > 1, bool(values["num_dense_layers"])
    modules = attention + (["mlp"] if has_dense or not is_mixture else [])
    modules += ["moe_router"] if is_mixture else []
    return {"cuda-graph-impl": "transformer_engine", "cuda-graph-modules": modules}


_INVERSES: dict[str, Callable[[Values], Found]] = {
    "ffn": _ffn,
    "query_groups": _query_groups,
    "latents": _latents,
    "qkv_bias": _qkv_bias,
    "windows": _windows,
    "shared_experts": _shared_experts,
    "expert_layers": _expert_layers,
    "batch": _batch,
    "placement": _placement,
    "zero": _zero,
    "precision": _precision,
    "optimizer": _optimizer,
    "recomputation": _recomputation,
    "dropout": _dropout,
    "graphs": _graphs,
}
