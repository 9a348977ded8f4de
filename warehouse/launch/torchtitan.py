"""Arguments of torchtitan that are read together, and the configurations that they override.

torchtitan.toml names each function at its arguments; pytorch/torchtitan @b5bcd76c has what they
mean, in the places named there.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.columns import COLUMNS
from warehouse.errors import InputError
from warehouse.studies.toml_files import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.launch.arguments import Arguments, Value

_RECIPES = {
    "bf16": ("bf16", "none"),
    "float8": ("fp8", "tensorwise"),
    "mxfp8": ("fp8", "mxfp8"),
    "nvfp4": ("fp4", "nvfp4"),
}
_SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "interleaved1f1b": ("1f1b", 2),
    "zbvzerobubble": ("zbv", 1),
    "dualpipev": ("dualpipev", 1),
}
"""Schedule -> ours, and its chunks of a rank; a rank in a V has two stages and no chunks."""


@cache
def configurations() -> dict[tuple[str, str], dict[str, str]]:
    """Return the named configurations of the registry by module and name."""
    path = Path(__file__).with_name("torchtitan_configs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["module"], row["config"]): row for row in csv.DictReader(file)}


def named(module: str, config: str, file: str) -> tuple[dict[str, str], dict[str, Value]]:
    """Return the columns of a configuration, and the arguments that it sets."""
    row = configurations().get((module, config))
    if row is None:
        known = [name for each, name in configurations() if each == module]
        hint = nearest(config, known or sorted({each for each, _ in configurations()}))
        reason = (
            f"--module {module or '?'} --config {config or '?'} is no configuration that is known"
        )
        raise InputError(f"{file}: {reason}", f"{hint}; those of pytorch/torchtitan @b5bcd76c")
    if row["refused"]:
        reason = f"--config {config} has {row['refused']}, which the estimates do not have"
        raise InputError(f"{file}: {reason}", "choose a text model")
    filled = {name: text for name, text in row.items() if text}
    columns = {name: text for name, text in filled.items() if name in COLUMNS}
    others = ("module", "config", "refused", *columns)
    switch: dict[str, Value] = {"true": True, "false": False}
    return columns, {n: switch.get(text, text) for n, text in filled.items() if n not in others}


def chosen(words: Sequence[str], values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the recomputation that a word such as ``activation_checkpoint:full-ac`` chooses."""
    for word in words:
        section, colon, name = word.replace("-", "_").partition(":")
        if colon and section == "activation_checkpoint":
            kind = name.lower().removesuffix("ac").removesuffix("_config").strip("_")
            return {**values, "activation_checkpoint": kind}
    return dict(values)


def compiled(given: Arguments) -> None:
    """Read whether the model is compiled, which makes another program."""
    parts = given.text("compile.components", "model,loss").split(",")
    if given.has("compile.enable") and "model" in parts:
        given.put("framework", "fsdp_compile")


def batch(given: Arguments) -> None:
    """Read the sequences of a microbatch, and those of a step."""
    flag = "training.num_tokens_per_microbatch_per_dp_rank"
    length = max(given.whole("seq_len", 1), 1)
    tokens = given.number(flag, 16_384)
    if tokens % length or tokens < length:
        reason = f"is no multiple of the {length} tokens of a sequence"
        given.refuse(flag, tokens, reason, "give training.max_context_length, or seq_len besides")
        return
    given.put("microbatch_size", tokens // length, flag)
    stages = given.whole("pipeline_parallel", 1)
    passes = given.number("parallelism.num_pp_microbatches", 1) if stages > 1 else 1
    split = stages * given.whole("tensor_parallel", 1) * given.whole("context_parallel", 1)
    step = given.number("training.num_tokens_per_train_step", -1)
    if step > 0 and step % length == 0:
        given.put("global_batch_size", step // length, "training.num_tokens_per_train_step")
    elif given.num_gpus and given.num_gpus % split == 0:
        replicas = given.num_gpus // split
        given.put("global_batch_size", replicas * passes * tokens // length)


def states(given: Arguments) -> None:
    """Read the format of weights and states."""
    if given.text("training.dtype", "float32") == "bfloat16":
        does = "weights, gradients and states are kept in 16 bits; the estimate has 32"
        given.notes["training.dtype"] = does


def zero(given: Arguments) -> None:
    """Read what is sharded: all of it, gathered again in the backward pass or not, or nothing."""
    sharded = given.text("parallelism.data_parallel_shard_degree", "-1")
    replicas = given.number("parallelism.data_parallel_replicate_degree", 1)
    policy = given.text("parallelism.fsdp_reshard_after_forward", "default")
    again = policy == "always" or (policy == "default" and given.whole("pipeline_parallel", 1) == 1)
    is_plain = sharded == "1" and given.whole("context_parallel", 1) == 1
    given.put("zero_stage", 0 if is_plain else 3 if again else 2)
    if replicas > 1 and sharded != "1":
        does = "states are sharded over a part of the replicas; the estimate shards over all"
        given.notes["parallelism.data_parallel_replicate_degree"] = does


def pipeline(given: Arguments) -> None:
    """Read the schedule and the chunks of a rank: two if it has several, unless layers say."""
    stages = given.whole("pipeline_parallel", 1)
    if stages == 1:
        return
    flag = "parallelism.pipeline_parallel_schedule"
    text = given.text(flag, "1F1B")
    if text.lower() not in _SCHEDULES:
        known = "known: 1F1B, Interleaved1F1B, ZBVZeroBubble, DualPipeV"
        given.refuse(flag, text, "is a schedule that is not modelled", known)
        return
    schedule, chunks = _SCHEDULES[text.lower()]
    flag = "parallelism.pipeline_parallel_layers_per_stage"
    if given.has(flag) and chunks > 1:
        layers = given.whole("num_layers", 0)
        for end in ("first", "last"):
            layers += given.number(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1)
        chunks = math.ceil(layers / max(given.number(flag, 1), 1)) // stages
    given.put("schedule", schedule)
    given.put("virtual_pipeline", max(chunks, 1), flag)


def precision(given: Arguments) -> None:
    """Read the format of the matmuls that the converters of a configuration make."""
    if given.settled & {"precision", "number_recipe"}:
        return
    kind = given.text("model.precision", "bf16")
    width, recipe = _RECIPES[kind]
    given.put("precision", width)
    given.put("number_recipe", recipe)
    if kind == "float8":
        given.notes["model.precision"] = "scales are those of rows; read as those of tensors"
    if width != "bf16":
        given.put("num_bf16_layers_end", given.text("model.num_bf16_layers_end", "0"))
        given.put("quantizes_output_layer", given.text("model.quantizes_output_layer", "false"))


def experts(given: Arguments) -> None:
    """Read the ranks of experts, which are whole, and how tokens reach them."""
    if given.whole("num_experts", 1) < 2:
        return
    flag = "parallelism.expert_parallel_degree"
    given.put("expert_parallel", given.text(flag, "1"), flag)
    given.put("expert_tensor_parallel", "1")
    dispatcher = given.text("model.dispatcher", "alltoall")
    given.put("dispatcher", "alltoall" if dispatcher == "alltoall" else "flex")
    if dispatcher not in ("alltoall", "deepep", "hybridep"):
        given.notes["model.dispatcher"] = f"{dispatcher} sends tokens; read as DeepEP"
