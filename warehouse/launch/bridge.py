"""A run_config.yaml of Megatron-Bridge from arguments of Megatron-LM: bridge.toml read backwards.

Its `ConfigContainer.from_yaml` makes the objects that `_target_` names; source: NVIDIA-NeMo/
Megatron-Bridge @067f987d src/megatron/bridge/training/config.py, comm_overlap.py, mixed_precision.py.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from warehouse.launch.megatron import layer_kinds
from warehouse.launch.table import table

if TYPE_CHECKING:
    from warehouse.launch.backwards import Found

_ROOT = "megatron.bridge.training"
_CLASSES = {
    "model": "megatron.bridge.models.gpt_provider.GPTModelProvider",
    "train": f"{_ROOT}.config.TrainingConfig",
    "optimizer": f"{_ROOT}.config.OptimizerConfig",
    "scheduler": f"{_ROOT}.config.SchedulerConfig",
    "ddp": f"{_ROOT}.config.DistributedDataParallelConfig",
    "dist": f"{_ROOT}.config.DistributedInitConfig",
    "comm_overlap": f"{_ROOT}.comm_overlap.CommOverlapConfig",
    "mixed_precision": f"{_ROOT}.mixed_precision.MixedPrecisionConfig",
    "dataset": f"{_ROOT}.config.MockGPTDatasetConfig",
    "tokenizer": f"{_ROOT}.tokenizers.config.TokenizerConfig",
    "checkpoint": f"{_ROOT}.config.CheckpointConfig",
    "logger": f"{_ROOT}.config.LoggerConfig",
    "rng": f"{_ROOT}.config.RNGConfig",
    "rerun_state_machine": f"{_ROOT}.config.RerunStateMachineConfig",
}
"""Section of the file -> its class."""

_LATENT = "megatron.bridge.models.mla_provider.MLAModelProvider"
_PLACES = {
    "train": ("micro-batch-size", "global-batch-size"),
    "ddp": ("data-parallel-sharding-strategy", "use-megatron-fsdp", "use-distributed-optimizer"),
    "optimizer": (
        *("use-precision-aware-optimizer", "main-params-dtype", "main-grads-dtype"),
        *("exp-avg-dtype", "exp-avg-sq-dtype"),
    ),
    "checkpoint": ("ckpt-format",),
    "comm_overlap": (
        *("tp-comm-overlap", "overlap-grad-reduce", "overlap-param-gather"),
        *("no-overlap-p2p-communication", "overlap-moe-expert-parallel-comm"),
    ),
    "mixed_precision": (
        *("bf16", "fp16", "fp8-format", "fp8-recipe", "fp8-param-gather", "fp4-format"),
        *("fp4-recipe", "fp4-param-gather", "first-last-layers-bf16", "grad-reduce-in-bf16"),
        *("num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"),
        "reuse-grad-buf-for-mxfp8-param-ag",
    ),
}
"""Section -> its arguments; others are the model's."""

_SECTION_OF = {flag: section for section, flags in _PLACES.items() for flag in flags}
_WITHOUT = {
    *("group-query-attention", "max-position-embeddings", "quick-geglu", "attention-backend"),
    *("no-check-for-nan-in-loss-and-grad", "multi-latent-attention"),
}
"""Arguments that other keys say, or none."""

_BACKENDS = {"flash": 1, "fused": 2, "unfused": 3, "auto": 5}
_SEQUENCE = "tag:yaml.org,2002:seq"
_TYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}


def keys_of(found: Found, replicas: int, env: Mapping[str, str], steps: int) -> str:
    """Return the sections of a configuration as YAML."""
    keys: dict[str, dict[str, Any]] = {name: {"_target_": cls} for name, cls in _CLASSES.items()}
    model = keys["model"]
    same = {meaning: key for key, meaning in table("bridge").same.items() if "." not in key}
    is_off = {flag: False for flag in _PLACES["comm_overlap"] if not flag.startswith("no-")}
    defaults = {flag: False for flag in ("swiglu", "add-qkv-bias", "qk-layernorm")}
    opposite = ("disable-bias-linear", "untie-embeddings-and-output-weights", "grad-reduce-in-bf16")
    for flag, value in ({**is_off, **defaults, **dict.fromkeys(opposite, False)} | found).items():
        if flag not in _WITHOUT:
            key, is_opposite = same.get(flag), f"!{flag}" in same
            key = same[f"!{flag}"] if is_opposite else key or flag.replace("-", "_")
            section = keys[_SECTION_OF.get(flag, "model")]
            section[key] = (not value) if is_opposite else _typed(flag, value)
    if "multi-latent-attention" in found:
        model |= {"_target_": _LATENT, "multi_latent_attention": True}
    is_clamped = "quick-geglu" in found
    model["gated_linear_unit"] = bool(found.get("swiglu")) or is_clamped
    gated = (
        "megatron.core.fusions.fused_bias_geglu.quick_gelu"
        if is_clamped
        else "torch.nn.functional.silu"
    )
    is_gated = model["gated_linear_unit"]
    model["activation_func"] = _named(gated if is_gated else "torch.nn.functional.gelu")
    if (backend := str(found.get("attention-backend", ""))) in _BACKENDS:
        target = "megatron.core.transformer.enums.AttnBackend"
        model["attention_backend"] = {
            "_target_": target,
            "_call_": True,
            "_args_": [_BACKENDS[backend]],
            "_name_": backend,
        }
    model["bias_activation_fusion"] = is_gated or model["add_bias_linear"]
    fused = ("bias_dropout_fusion", "apply_rope_fusion", "persist_layer_norm", "should_pad_vocab")
    model |= dict.fromkeys(fused, True)
    if "cuda-graph-impl" in found:
        model["use_te_rng_tracker"] = keys["rng"]["te_rng_tracker"] = True
    if "no-check-for-nan-in-loss-and-grad" in found:
        keys["rerun_state_machine"]["check_for_nan_in_loss"] = False
        keys["ddp"]["check_for_nan_in_grad"] = False
    keys["mixed_precision"] |= _types("bf16" if "bf16" in found else "fp16")
    sharded = "use-distributed-optimizer" in found
    keys["ddp"]["use_distributed_optimizer"] = sharded
    keys["optimizer"] |= {"optimizer": "adam", "use_distributed_optimizer": sharded}
    keys["dist"]["use_megatron_fsdp"] = "use-megatron-fsdp" in found
    keys["comm_overlap"]["data_parallel_size"] = replicas
    keys["train"]["train_iters"] = steps
    keys["optimizer"] |= {"lr": 1e-4, "min_lr": 1e-5}
    keys["scheduler"] |= {"lr_decay_style": "cosine", "lr_warmup_fraction": 0.01}
    keys["dataset"] |= {
        "seq_length": model["seq_length"],
        "random_seed": 1234,
        **dict.fromkeys(("reset_position_ids", "reset_attention_mask", "eod_mask_loss"), False),
    }
    keys["tokenizer"] |= {"tokenizer_type": "NullTokenizer", "vocab_size": model["vocab_size"]}
    whole = {"_target_": f"{_ROOT}.config.ConfigContainer", "env_vars": dict(env), **keys}
    return yaml.dump(whole, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=100)


class _Dumper(yaml.SafeDumper):
    """YAML with a key on each line, and lists in one."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence(_SEQUENCE, data, flow_style=True)
)


def _types(name: str) -> dict[str, Any]:
    of = ("params_dtype", "pipeline_dtype", "autocast_dtype")
    return {key: _named(_TYPES[name]) for key in of} | {"autocast_enabled": False}


def _named(target: str) -> dict[str, Any]:
    return {"_target_": target, "_call_": False}


def _typed(flag: str, value: object) -> Any:
    """Return a value as YAML has it: numbers, lists, types of PyTorch."""
    if isinstance(value, str):
        if flag.endswith("-dtype") and value in _TYPES and flag in _SECTION_OF:
            return _named(_TYPES[value])
        if flag == "window-size":
            return [int(part) for part in value.split(",")]
        if flag == "moe-layer-freq":
            return [int(kind) for kind in layer_kinds(ast.parse(value, mode="eval").body)]
        number = _number(value)
        return value if number is None else number
    return list(value) if isinstance(value, Sequence) else value


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
