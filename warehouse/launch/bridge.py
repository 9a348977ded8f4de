"""A run_config.yaml of Megatron-Bridge from arguments of Megatron-LM: bridge.toml read backwards.

Its `ConfigContainer.from_yaml` makes the objects that `_target_` names, from written/bridge.toml.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import yaml

from warehouse.launch.backwards import rules
from warehouse.launch.megatron import layer_kinds
from warehouse.launch.table import table

if TYPE_CHECKING:
    from warehouse.launch.backwards import Found


def keys_of(found: Found, replicas: int, env: Mapping[str, str], steps: int) -> str:
    """Return the sections of a configuration as YAML."""
    rule = rules("bridge")
    keys: dict[str, dict[str, Any]] = deepcopy(rule["base"])
    model = keys["model"]
    same = {meaning: key for key, meaning in table("bridge").same.items() if "." not in key}
    section_of = {flag: section for section, flags in rule["places"].items() for flag in flags}
    for flag, value in {**dict.fromkeys(rule["off"], False), **found}.items():
        if flag not in rule["without"]:
            opposite = same.get(f"!{flag}")
            key = opposite or same.get(flag, flag.replace("-", "_"))
            section = keys[section_of.get(flag, "model")]
            section[key] = not value if opposite else _typed(flag, value, rule["types"])
        for name, more in (rule["when"].get(flag, {}) if value else {}).items():
            keys[name] |= more
    if not model["gated_linear_unit"]:
        model["bias_activation_fusion"] = model["add_bias_linear"]
    if backend := found.get("attention-backend"):
        target = {"_target_": "megatron.core.transformer.enums.AttnBackend", "_call_": True}
        number = rule["backends"][str(backend)]
        model["attention_backend"] = {**target, "_args_": [number], "_name_": str(backend)}
    width = _named(rule["types"]["bf16" if "bf16" in found else "fp16"])
    for key in ("params_dtype", "pipeline_dtype", "autocast_dtype"):
        keys["mixed_precision"][key] = width
    keys["comm_overlap"]["data_parallel_size"] = replicas
    keys["train"]["train_iters"] = steps
    keys["dataset"]["seq_length"] = model["seq_length"]
    keys["tokenizer"]["vocab_size"] = model["vocab_size"]
    whole = {"_target_": "megatron.bridge.training.config.ConfigContainer", "env_vars": dict(env)}
    text: str = yaml.dump(whole | keys, Dumper=_Dumper, sort_keys=False, width=100)
    return text


_Dumper: Any = type("_Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
"""YAML with a key on each line, and lists in one."""

_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence(_SEQUENCE, data, flow_style=True)
)
_SEQUENCE = "tag:yaml.org,2002:seq"


def _named(target: str) -> dict[str, Any]:
    return {"_target_": target, "_call_": False}


def _typed(flag: str, value: object, types: Mapping[str, str]) -> Any:
    """Return a value as YAML has it: numbers, lists, types of PyTorch."""
    if not isinstance(value, str):
        return value
    if flag.endswith("-dtype") and value in types and flag != "moe-router-dtype":
        return _named(types[value])
    if flag == "window-size":
        return [int(part) for part in value.split(",")]
    if flag == "moe-layer-freq":
        return [int(kind) for kind in layer_kinds(ast.parse(value, mode="eval").body)]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value
