"""Arguments of DeepSpeed and of Hugging Face's trainer that are read together.

hugging_face.toml and deepspeed.toml name each function at its arguments, with the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.launch.arguments import Arguments

_ZERO, _DS = "deepspeed.zero_optimization", "deepspeed"
_OTHERS = (
    ("full_shard", "3"),
    ("hybrid_shard_zero2", "2"),
    ("hybrid_shard", "3"),
    ("shard_grad_op", "2"),
    ("no_shard", "0"),
)
"""Words of `fsdp` -> the stage that they mean."""


def model(given: Arguments) -> None:
    """Note a model that is named alone: without its config.json."""
    if given.has("model_name_or_path") and "model" not in {*given.columns, *given.settled}:
        does = "it is not beside the file; give --model, or the path of its config.json"
        given.notes["model_name_or_path"] = does


def batch(given: Arguments) -> None:
    """Read the microbatch, and the batch of a step: of all, or of a GPU with its accumulation."""
    micro = _first(given, f"{_DS}.train_micro_batch_size_per_gpu", "per_device_train_batch_size")
    passes = _first(given, f"{_DS}.gradient_accumulation_steps", "gradient_accumulation_steps") or 1
    whole = _first(given, f"{_DS}.train_batch_size")
    split = given.whole("tensor_parallel", 1) * given.whole("context_parallel", 1)
    split *= given.whole("pipeline_parallel", 1)
    replicas = (given.num_gpus or 0) // split
    if not micro and whole and replicas:
        micro = whole // (replicas * passes)
    if micro:
        given.put("microbatch_size", micro)
    if whole:
        given.put("global_batch_size", whole)
    elif micro and replicas and "global_batch_size" not in given.columns:
        given.put("global_batch_size", micro * passes * replicas)


def _first(given: Arguments, *flags: str) -> int:
    """Return the first number that is given; "auto" leaves it to the next."""
    for flag in flags:
        if given.has(flag):
            return given.number(flag, 1)
    return 0


def precision(given: Arguments) -> None:
    """Read the format of the matmuls."""
    if given.settled & {"precision", "number_recipe"} or "precision" in given.columns:
        return
    named = given.text("torch_dtype", given.text("dtype"))
    for width, name in (("bf16", "bfloat16"), ("fp16", "float16")):
        if given.has(f"{_DS}.{width}.enabled") or given.has(width) or named == name:
            given.put("precision", width)
            given.put("number_recipe", "none")
            return
    reason = "is missing, as is fp16: matmuls in 32 bits, which the estimates do not have"
    given.refuse("bf16", None, reason, "add it there, or give precision=bf16 besides")


def recomputation(given: Arguments) -> None:
    """Read whether layers are recomputed."""
    flags = ("gradient_checkpointing", "activation_checkpointing")
    again = any(map(given.has, (*flags, "fsdp_config.activation_checkpointing")))
    given.put("activation_recompute", "full" if again else "none")


def zero(given: Arguments) -> None:
    """Read what is sharded, by DeepSpeed or FSDP; without either gradients alone are reduced."""
    if given.has("zero-stage") or any(name.startswith(f"{_DS}.") for name in given.values):
        given.put("framework", "deepspeed")
        stage = given.text("zero-stage", given.text(f"{_ZERO}.stage", "0"))
        given.put("zero_stage", stage, f"{_ZERO}.stage")
        if given.whole("zero_stage", 0) < 3 and not given.has(f"{_ZERO}.overlap_comm"):
            given.put("gradient_overlap_fraction", "0")
        if given.text(f"{_DS}.communication_data_type") in ("fp32", "torch.float32"):
            given.put("reduced_gradient_bytes", "4")
        return
    given.put("framework", "fsdp_compile" if given.has("torch_compile") else "fsdp")
    flags = ("fsdp", "fsdp_config.fsdp_sharding_strategy")
    text = " ".join(word for flag in flags for word in given.several(flag)).lower()
    stage = next(
        (stage for word, stage in _OTHERS if word in text), "3" if given.has("fsdp") else "0"
    )
    kept = "fsdp_config.reshard_after_forward"
    stage = "2" if stage == "3" and kept in given.values and not given.has(kept) else stage
    if "hybrid" in text:
        does = "states are sharded over a part of the replicas; the estimate shards over all"
        given.notes["fsdp"] = does
    given.put("zero_stage", stage)
