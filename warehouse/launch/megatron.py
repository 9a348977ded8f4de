"""Arguments of Megatron-LM, and of programs on Megatron-Core, that are read together.

Each function reads some arguments; megatron.toml names it at each of them. What they mean is in
NVIDIA/Megatron-LM @d98e8a64 megatron/training/arguments.py `validate_args`,
megatron/core/transformer/transformer_config.py and the places named below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from warehouse.studies.toml_files import nearest

if TYPE_CHECKING:
    from warehouse.launch.arguments import Arguments

MOST_LAYERS = 100_000
"""Layers of a list that says which layers have experts or windows."""

_MODULES = ("core_attn", "layernorm", "moe_act", "mlp", "shared_experts", "mla_up_proj", "moe")
_RECIPES = {
    "delayed": "delayed",
    "tensorwise": "tensorwise",
    "blockwise": "blockwise",
    "mxfp8": "mxfp8",
}
_BYTES = {"fp32": "4", "float32": "4", "bf16": "2", "bfloat16": "2", "fp16": "2", "float16": "2"}
_SHARDED = {"no_shard": "0", "optim": "1", "optim_grads": "2", "optim_grads_params": "3"}


def ffn(given: Arguments) -> None:
    """Read the feed-forward layer: a gated one is two thirds as wide, in multiples of 64."""
    gated = given.has("swiglu") or given.has("quick-geglu")
    gated = gated or given.text("activation-func").lower().endswith("glu")
    given.put("uses_glu", "true" if gated else "false", "swiglu")
    hidden = given.whole("hidden_size", 0)
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    if given.has("ffn-hidden-size"):
        given.put("ffn_hidden_size", given.text("ffn-hidden-size"), "ffn-hidden-size")
    elif hidden:
        given.put("ffn_hidden_size", usual)


def query_groups(given: Arguments) -> None:
    """Read the heads of keys: without --group-query-attention as many as of queries."""
    if given.has("group-query-attention") and given.has("num-query-groups"):
        given.put("num_kv_heads", given.text("num-query-groups"), "num-query-groups")
    elif given.has("group-query-attention") and "group-query-attention" not in given.table.implied:
        given.put("num_kv_heads", "1", "group-query-attention")
    else:
        given.put("num_kv_heads", given.columns.get("num_heads"))


def latents(given: Arguments) -> None:
    """Read latent attention: each query has its head, and norms are those of the latents."""
    if given.has("multi-latent-attention"):
        given.put("num_kv_heads", given.columns.get("num_heads"))
        given.put("head_size", given.columns.get("qk_head_size"))
        given.columns["uses_qk_norm"] = "false"


def qkv_bias(given: Arguments) -> None:
    """Read the biases of queries, keys and values alone."""
    heads, size = given.whole("num_heads", 1), given.whole("head_size", 0)
    size = size or given.whole("hidden_size", 0) // max(heads, 1)
    if given.has("add-qkv-bias") and given.columns.get("uses_linear_bias") == "false":
        biases = (heads + 2 * given.whole("num_kv_heads", heads)) * size
        given.put("other_layer_parameters", biases, "add-qkv-bias")


def windows(given: Arguments) -> None:
    """Read a window (left, right), which has the token itself, too, and the layers without."""
    if not given.has("window-size"):
        return
    left = re.findall(r"-?\d+", " ".join(given.several("window-size")))[:1]
    if not left:
        given.refuse("window-size", given.text("window-size"), "must be two numbers", "as 127,0")
        return
    if int(left[0]) < 0:
        return
    given.put("attention_window", int(left[0]) + 1, "window-size")
    kinds = _kinds(given, "window-attn-skip-freq", lambda number, n: number % n != 0)
    full = [number for number, kind in enumerate(kinds, 1) if not kind]
    period = full[0] if full else 0
    if full != [n for n in range(1, len(kinds) + 1) if period and n % period == 0]:
        does = "layers without a window are not each last of a number of layers; read as if"
        given.notes["window-attn-skip-freq"] = does
    given.put("window_period", period, "window-attn-skip-freq")


def shared_experts(given: Arguments) -> None:
    """Read the width of all shared experts together."""
    if not given.has("num-experts"):
        return
    width = given.number("moe-shared-expert-intermediate-size", 0)
    routed = given.whole("expert_ffn_hidden_size", 0)
    count = width // routed if routed and width % routed == 0 else min(width, 1)
    given.put("num_shared_experts", count)
    given.put("shared_ffn_hidden_size", width, "moe-shared-expert-intermediate-size")


def expert_layers(given: Arguments) -> None:
    """Read which layers have experts: each n-th, or a list of ones and zeros."""
    if not given.has("num-experts"):
        return
    if given.columns.get("uses_linear_bias") == "true":  # the router is linear, too
        given.put("uses_router_bias", "true")
    kinds = _kinds(given, "moe-layer-freq", lambda number, n: (number - 1) % n == 0)
    dense, layers = kinds.index(True) if True in kinds else len(kinds), len(kinds)
    periods = (
        n
        for n in range(2, layers)
        if any(kinds == [(at + first) % n == 0 for at in range(layers)] for first in (0, 1))
    )
    if all(kinds[dense:]):
        given.put("num_dense_layers", dense, "moe-layer-freq")
    elif (period := next(periods, 0)) > 0:
        given.put("moe_period", period, "moe-layer-freq")
    else:
        given.put("num_dense_layers", kinds.count(False), "moe-layer-freq")
        does = "layers with and without experts alternate; read as if those without came first"
        given.notes["moe-layer-freq"] = does


def _kinds(given: Arguments, flag: str, is_kind: Callable[[int, int], bool]) -> list[bool]:
    """Return the kind of each layer, from a number or from a list such as ``([0]*3+[1]*58)``."""
    layers = min(given.whole("num_layers", 0), MOST_LAYERS)
    texts = given.several(flag)
    text = "[" + ",".join(texts) + "]" if len(texts) > 1 else given.text(flag, "")
    if not text:
        return [True] * layers
    if text.isdecimal() and len(text) < 10:
        return [is_kind(number, max(int(text), 1)) for number in range(1, layers + 1)]
    try:
        kinds = layer_kinds(ast.parse(text.strip("'\" "), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        kinds = []
    if len(kinds) != layers:
        reason = f"is no list of {layers} ones and zeros" if layers else "needs --num-layers"
        given.refuse(flag, text, reason, "as ([0]*3+[1]*58), or a number")
        return [True] * layers
    return kinds


def layer_kinds(node: ast.expr) -> list[bool]:
    """Return the value of a list of ones and zeros, with + and *."""
    if isinstance(node, ast.List):
        return [bool(_whole(each)) for each in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        found = layer_kinds(node.left) + layer_kinds(node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        times = _whole(node.right)
        part = layer_kinds(node.left)
        found = part * times if 0 <= times * len(part) <= MOST_LAYERS else []
    else:
        raise ValueError
    if not 0 < len(found) <= MOST_LAYERS:
        raise ValueError
    return found


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    raise ValueError


# ---- layout and batch ----


def batch(given: Arguments) -> None:
    """Read the batch, by default one microbatch of each replica."""
    if given.has("global-batch-size"):
        given.put("global_batch_size", given.text("global-batch-size"), "global-batch-size")
        return
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel")
    split = 1
    for name in degrees:
        split *= given.whole(name, 1)
    if given.num_gpus and given.num_gpus % split == 0 and "microbatch_size" in given.columns:
        replicas = given.num_gpus // split
        given.put("global_batch_size", given.whole("microbatch_size", 1) * replicas)


def chunks(given: Arguments) -> None:
    """Read the chunks of a stage, from the layers of a chunk."""
    flag = "num-layers-per-virtual-pipeline-stage"
    if not given.has(flag):
        return
    layers = given.whole("num_layers", 0)
    layers += sum(given.columns.get(name) == "true" for name in ("counts_embedding", "counts_loss"))
    per_chunk = max(given.number(flag, 1), 1)
    stages = given.whole("pipeline_parallel", 1)
    if layers % (stages * per_chunk):
        reason = f"times {stages} stages does not divide {layers} layers"
        given.refuse(flag, given.text(flag), reason, "use a divisor of the layers of a stage")
        return
    given.put("virtual_pipeline", layers // (stages * per_chunk), flag)


def placement(given: Arguments) -> None:
    """Read the text that says which layers each stage has; the chunks follow from it."""
    if given.has("pipeline-model-parallel-layout") and "pipeline_layout" not in given.settled:
        text = given.text("pipeline-model-parallel-layout")
        if text == "PipelineParallelLayerLayout":
            reason = "is an object of which the file keeps nothing but its name"
            hint = "give it besides, as pipeline_layout='Et|(tt|)*30mL'"
            given.refuse("pipeline-model-parallel-layout", text, reason, hint)
            return
        given.put("pipeline_layout", text, "pipeline-model-parallel-layout")
        given.columns.pop("virtual_pipeline", None)


def zero(given: Arguments) -> None:
    """Read what is sharded: by the distributed optimizer, or by Megatron's or PyTorch's FSDP."""
    named = given.text("optimizer-name") in ("distributed_fused_adam", "mcore_distributed_optim")
    stage = "1" if given.has("use-distributed-optimizer") or named else "0"
    if given.has("use-megatron-fsdp"):
        strategy = given.text("data-parallel-sharding-strategy", "optim_grads_params")
        if strategy not in _SHARDED:
            hint = nearest(strategy, [*_SHARDED]) or f"known: {', '.join(_SHARDED)}"
            given.refuse("data-parallel-sharding-strategy", strategy, "is not known", hint)
        stage = _SHARDED.get(strategy, "3")
    elif given.has("use-torch-fsdp2"):
        stage = "2" if given.has("torch-fsdp2-no-reshard-after-forward") else "3"
        does = "PyTorch's FSDP shards; read as if Megatron's did"
        given.notes["use-torch-fsdp2"] = does
    given.put("zero_stage", stage)


# ---- precision ----


def precision(given: Arguments) -> None:
    """Read the format of the matmuls, and how their operands get scales."""
    if given.settled & {"precision", "number_recipe"}:
        return
    named = given.text("trainer-precision").lower()
    width = "fp16" if given.has("fp16") or named.startswith(("16", "fp16")) else "bf16"
    if not (given.has("fp16") or given.has("bf16") or width == "fp16" or "bf16" in named):
        reason = "is missing, as is fp16: matmuls in 32 bits, which the estimates do not have"
        given.refuse("bf16", None, reason, "add --bf16 there, or give precision=bf16 besides")
    recipe = "none"
    if given.has("fp8-format"):
        recipe = given.text("fp8-recipe", "delayed").lower()
        width = "fp8"
        if recipe not in _RECIPES:
            hint = f"known: {', '.join(_RECIPES)}"
            given.refuse("fp8-recipe", recipe, "is a recipe that is not modelled", hint)
            return
    elif given.has("fp4-format"):
        width, recipe = "fp4", "nvfp4"
    given.put("precision", width)
    given.put("number_recipe", recipe)
    if recipe == "none":
        return
    weights = given.has("fp8-param-gather" if width == "fp8" else "fp4-param-gather")
    given.put("keeps_quantized_weights", "true" if weights else "false")
    given.put("quantizes_output_layer", "true" if given.has("fp8-output-proj") else "false")
    if given.has("first-last-layers-bf16"):
        for column, flag in (
            ("num_bf16_layers_start", "num-layers-at-start-in-bf16"),
            ("num_bf16_layers_end", "num-layers-at-end-in-bf16"),
        ):
            given.put(column, given.text(flag, "1"), flag)


def optimizer(given: Arguments) -> None:
    """Read the formats of the state that a precision-aware optimizer keeps."""
    if not given.has("use-precision-aware-optimizer"):
        return
    first, second = given.text("exp-avg-dtype", "fp32"), given.text("exp-avg-sq-dtype", "fp32")
    if first != second:
        does = f"one moment is kept in {first}, the other in {second}; read as if both were {first}"
        given.notes["exp-avg-sq-dtype"] = does
    for column, flag, text in (
        ("moment_bytes", "exp-avg-dtype", first),
        ("main_weight_bytes", "main-params-dtype", given.text("main-params-dtype", "fp32")),
        ("stored_gradient_bytes", "main-grads-dtype", given.text("main-grads-dtype", "fp32")),
    ):
        if text.lower() not in _BYTES:
            known = ", ".join(_BYTES)
            given.refuse(flag, text, "is a format that is not modelled", f"known: {known}")
        elif column != "stored_gradient_bytes" or _BYTES[text.lower()] == "2":
            given.put(column, _BYTES[text.lower()], flag)


# ---- recomputation, kernels ----


def recomputation(given: Arguments) -> None:
    """Read what is recomputed: layers, the core of attention, or parts."""
    granularity = given.text("recompute-granularity", "none").lower()
    if given.has("recompute-activations"):
        granularity = "selective"
    older = ("checkpoint-activations", "activations-checkpoint-method")
    if any(given.has(flag) for flag in older):
        granularity = "full"
    if granularity not in ("none", "selective", "full"):
        hint = "known: selective, full"
        given.refuse("recompute-granularity", granularity, "is not known", hint)
        return
    given.put("activation_recompute", granularity)
    if granularity == "full":
        _layers_again(given)
    modules = _parts(given.several("recompute-modules"))
    if given.has("moe-layer-recompute"):
        modules.append("moe")
    if granularity == "full" or (granularity == "none" and modules != ["moe"]):
        modules = []
    unknown = [part for part in modules if part not in _MODULES]
    if unknown:
        does = f"{', '.join(unknown)} is recomputed, which the estimate does not have"
        given.notes["recompute-modules"] = does
    known = [part for part in _MODULES if part in modules]
    given.put("recompute_modules", "+".join(known) or "none", "recompute-modules")


def _layers_again(given: Arguments) -> None:
    """Note a number of layers other than all, or more than one as a piece."""
    method = given.text("recompute-method", given.text("activations-checkpoint-method", "uniform"))
    flag = "recompute-num-layers"
    flag = flag if given.has(flag) else "activations-checkpoint-num-layers"
    number = given.number(flag, 1)
    stages = given.whole("pipeline_parallel", 1) * given.whole("virtual_pipeline", 1)
    if method == "block" and given.has(flag):
        of_stage = given.whole("num_layers", 0) // max(stages, 1)
        if number < of_stage:
            does = f"{number} of {of_stage} layers of a stage are recomputed; read as if all were"
            given.notes[flag] = does
    elif number > 1:
        does = f"only the input of each {number} layers is kept; read as if that of each layer was"
        given.notes[flag] = does


def _parts(texts: Iterable[str]) -> list[str]:
    return [part for text in texts for part in re.split(r"[\s,]+", text) if part]


def dropout(given: Arguments) -> None:
    """Read both rates, which are 0.1 where the command line leaves them out."""
    rates = (given.real("attention-dropout", 0.1), given.real("hidden-dropout", 0.1))
    given.put("uses_dropout", "true" if max(rates) > 0 else "false")


def graphs(given: Arguments) -> None:
    """Read which parts of a layer are captured as CUDA graphs."""
    kind = given.text("cuda-graph-impl", "none").lower()
    if given.has("enable-cuda-graph") or given.has("external-cuda-graph"):
        kind = "local"
    modules = _parts([*given.several("cuda-graph-modules"), *given.several("cuda-graph-scope")])
    whole = kind == "full_iteration" or "full_iteration" in modules
    given.put("uses_cuda_graphs", "true" if kind != "none" or whole else "false")
    if kind != "none" or whole:
        given.put("captures_whole_steps", "true" if whole else "false")
        given.put("captures_attention", "true" if not modules or "attn" in modules else "false")
