"""A function for torchtitan: a named configuration of its registry with the fields of a layout.

The configuration is one of the same shape; torchtitan.toml read backwards gives the fields. Source:
pytorch/torchtitan @b5bcd76c torchtitan/config/configs.py, trainer.py, config/manager.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS
from warehouse.launch.backwards import said, text_of
from warehouse.launch.table import table
from warehouse.launch.torchtitan import configurations

if TYPE_CHECKING:
    from warehouse.launch.backwards import Found

CHECKPOINT = "activation_checkpoint"


def same_shapes(values: Mapping[str, Any]) -> tuple[list[tuple[str, str]], str]:
    """Return the configurations of a model's shape; else in which columns the nearest differs."""
    found, nearest = [], ""
    for key, row in configurations().items():
        shape = {name: text for name, text in row.items() if text and name in COLUMNS}
        known = [name for name in shape if values.get(name) is not None]
        differing = [name for name in known if shape[name] != text_of(values[name])]
        if not shape or row["refused"] or "num_layers" in differing or "hidden_size" in differing:
            continue
        nearest = nearest or f"; {key[1]} has another {', '.join(differing)}"
        found += [] if differing else [key]
    return found, nearest


def fields_of(values: Mapping[str, Any]) -> Found:
    """Return the fields that say these columns; some cannot be said."""
    found: Found = {}
    for name, flag in table("torchtitan").flags.items():
        if flag.is_switch:
            column, text = next(iter(flag.on.items()))
            found[name] = text_of(values.get(column)) == text
        elif flag.column:
            found[name] = text_of(values[flag.column])
    batch, micro, seq = (
        int(values[name]) for name in ("global_batch_size", "microbatch_size", "seq_len")
    )
    stages = int(values["pipeline_parallel"]) * int(values["virtual_pipeline"] or 1)
    more = {"tokens": micro * seq, "step_tokens": batch * seq}
    more["microbatches"] = batch // (int(values["data_parallel"]) * micro)
    more["layers_a_stage"] = math.ceil((int(values["num_layers"]) + 2) / stages)
    return found | said("torchtitan", {**values, **more})


def command_of(module: str, name: str, fields: Found, num_gpus: int) -> str:
    """Return the command line that has the same fields, as it is read."""
    given = " ".join(f"--{field} {text_of(value)}" for field, value in fields.items())
    start = f"torchrun --nproc-per-node {num_gpus} -m torchtitan.train"
    return f"{start} --module {module} --config {name} {given}"


def function_of(module: str, name: str, fields: Found, steps: int) -> str:
    """Return the module with the function that returns the configuration."""
    given = {**fields, "training.steps": str(steps)}
    recompute = str(fields[CHECKPOINT])
    policies = {"selective": "SelectiveAC", "full": "FullAC"}
    imports = [f"from torchtitan.models.{module}.config_registry import {name}"]
    if recompute in policies:
        policy = policies[recompute]
        imports.insert(0, f"from torchtitan.distributed.activation_checkpoint import {policy}")
    lines = [f"    config = {name}()"]
    for field, value in given.items():
        text = repr(value) if isinstance(value, bool) else str(value)
        if field == CHECKPOINT:
            text = f"{policies[recompute]}.Config()" if recompute in policies else "None"
        elif not isinstance(value, bool) and not text.isdecimal():
            text = f'"{text}"'
        lines.append(f"    config.{field} = {text}")
    imports.append("from torchtitan.trainer import Trainer")
    head = "def planned() -> Trainer.Config:"
    return "\n".join([*imports, "", "", head, *lines, "    return config", ""])
