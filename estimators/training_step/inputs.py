"""Inputs of the training_step estimator: shape, system, constants, layout, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.catalog import NARROW_RATES, product_of, until
from estimators.columns import names_in
from estimators.contract import Array, Catalog, Record, Scalar
from estimators.estimator import IdleChoices
from estimators.inputs import Inputs
from estimators.kernels.attention import IN_8_BITS
from estimators.kernels.gemms import FORMULA
from estimators.training_step.chips import OF_CHIPS, resolve_chips
from estimators.training_step.dispatch_rules import OVERLAPS_WITH, can_overlap
from estimators.training_step.modules import NONE, can_recompute
from estimators.training_step.placement import IN_A_V, num_stages
from estimators.training_step.rules import (
    LAYOUT_RULES,
    PROBLEM_RULES,
    SHARDING_NEEDS_REPLICAS,
    WHOLE_HEADS,
)
from estimators.training_step.system_inputs import (
    CONSTANTS,
    HARDWARE,
    LIMIT,
    OF_OPTIMIZER,
    given_constants,
    releases_of,
    resolve_constants,
    resolve_formats,
    resolve_kernels,
    resolve_precision,
    resolve_system,
    rows_by,
)

COARSE = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
    *("head_size", "vocab_size", "ties_embedding", "num_experts", "experts_per_token"),
    *("expert_ffn_hidden_size", "num_shared_experts", "num_dense_layers"),
)
"""Columns that identify a known model by its shape."""

DETAILS = names_in("Shape of a decoder")
SHAPE = (*COARSE, "seq_len", *DETAILS)
NEEDED = ("num_layers", "hidden_size", "num_heads", "seq_len")
"""Columns without a default: a shape needs them."""

PROBLEM = (
    *("model", *SHAPE),
    *("accelerator", *HARDWARE, "nics_per_gpu", LIMIT, "framework", "profile", *CONSTANTS),
    *("kernels", "attention_program", "precision", "number_recipe"),
    *("num_bf16_layers_start", "num_bf16_layers_end"),
    *("keeps_quantized_weights", "quantizes_output_layer", "recompute_modules"),
    *names_in("Experts"),
    *("num_gpus", "global_batch_size"),
)
SYSTEM = (*HARDWARE, "nics_per_gpu", LIMIT, "kernels", "attention_program", *CONSTANTS)
CHOICES = ("attention", "activation_recompute", *names_in("Schedule of a pipeline"))
KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("uses_sequence_parallel", "microbatch_size"),
    *("pipeline_parallel", "virtual_pipeline", "data_parallel", "zero_stage"),
)
OTHER_INPUTS = (
    *("gpus_per_node", "bf16_flops_per_second", "nic_bytes_per_second", "num_microbatches"),
    *OF_OPTIMIZER,
)
OPTIONAL = (
    *("vocab_size", "uses_post_norm", "other_layer_parameters", *NARROW_RATES, LIMIT),
    *("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage", "microbatch_group"),
    "framework_release",
)
NEUTRAL_CHOICES: dict[str, Scalar] = {
    "schedule": "1f1b",
    "counts_embedding": False,
    "counts_loss": False,
}
"""Choices that cells of version 2 assumed."""

IDLE_CHOICES = (
    IdleChoices({"microbatch_group": None}, "virtual_pipeline"),
    IdleChoices(
        {
            "schedule": NEUTRAL_CHOICES["schedule"],
            "pipeline_layout": None,
            "layers_in_first_stage": None,
            "layers_in_last_stage": None,
            "counts_embedding": NEUTRAL_CHOICES["counts_embedding"],
            "counts_loss": NEUTRAL_CHOICES["counts_loss"],
        },
        "pipeline_parallel",
        implied=("virtual_pipeline",),
    ),
)
"""Choices without effect: the group of microbatches without chunks; the schedule and the place of
layers with one stage."""

DEFAULTS: dict[str, Any] = {
    "framework": "megatron_core",
    "profile": "default",
    "nics_per_gpu": 1,
    "uses_glu": False,
    "num_experts": 1,
    "experts_per_token": 1,
    "num_shared_experts": 0,
    "num_dense_layers": 0,
    "dispatcher": "alltoall",
    "dispatch_element_bytes": 2.0,
    "expert_load_ratio": 1.0,
    "expert_routing": "balanced",
    "overlaps_shared_experts": False,
    "overlaps_expert_comm": False,
    "activation_recompute": "none",
    "recompute_modules": NONE,
    **NEUTRAL_CHOICES,
    "num_bf16_layers_start": 0,
    "num_bf16_layers_end": 0,
    "quantizes_output_layer": False,
}
OF_EXPERTS = ("dispatcher", "overlaps_expert_comm")
"""Inputs whose defaults are in table `expert_default`."""

OF_RECIPES = (
    *("overlapped_expert_fraction", "uses_cuda_graphs", "captures_attention"),
    *("captures_whole_steps",),
    *("quantizes_output_layer", "attention_program", "recompute_modules"),
)
"""Inputs with a default elsewhere, which a row of table `expert_default` may replace."""

ONES = (
    *("tensor_parallel", "context_parallel", "expert_parallel"),
    *("pipeline_parallel", "virtual_pipeline", "microbatch_size"),
)


OF_DENSE = {
    name: DEFAULTS[name]
    for name in ("num_experts", "experts_per_token", "num_shared_experts", "num_dense_layers")
}
"""Values of a dense model, for shapes that leave them out."""


def resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check the problem: shape, system, constants, batch, choices."""
    inputs.offer("attention", "flash", "unfused")
    models = _resolve_shape(inputs, catalog)
    inputs.default("framework", DEFAULTS["framework"])
    inputs.default("profile", DEFAULTS["profile"])
    asked = {name: ~inputs.missing(name) for name in (*OF_RECIPES, *OF_CHIPS)}
    inputs.look_up(catalog, "framework", "framework", ("attention",))
    resolve_system(inputs, catalog)
    resolve_kernels(inputs, catalog)
    given = given_constants(inputs, catalog)
    resolve_constants(inputs, catalog)
    for name, value in DEFAULTS.items():
        if name not in OF_EXPERTS:
            inputs.default(name, value)
    inputs.default("attention", "flash")
    # recipes of dense models capture no graphs, but for those that the table names
    dense = np.less_equal(inputs["num_experts"], 1).astype(bool)
    inputs["uses_cuda_graphs"][dense & ~asked["uses_cuda_graphs"]] = False
    resolve_precision(inputs, catalog)
    resolve_chips(inputs, catalog, asked)
    resolve_formats(inputs, catalog, given)
    _resolve_experts(inputs, catalog, models, asked)
    is_cast = np.equal(inputs["attention_program"], IN_8_BITS)
    inputs.refuse(
        "attention_program",
        is_cast & np.not_equal(inputs["number_recipe"], "mxfp8"),
        "has operands that only `number_recipe` mxfp8 makes",
        "use cudnn, or `number_recipe` mxfp8",
    )
    inputs.check((*PROBLEM, *CHOICES))
    inputs.apply(PROBLEM_RULES)


def _resolve_shape(inputs: Inputs, catalog: Catalog) -> Array:
    """Fill the shape.

    Returns
    -------
    For each row the name of its model, or of the known model with the same shape.
    """
    is_known = _look_up_model(inputs, catalog)
    inputs.require(NEEDED, "name a `model`, or give its shape")
    inputs.default("uses_glu", False)
    gated = np.equal(inputs["uses_glu"], True)
    inputs.refuse(
        "ffn_hidden_size",
        gated & inputs.missing("ffn_hidden_size"),
        "is missing, and a gated layer has no usual width",
        "give it; 8/3 of hidden_size, rounded up, keeps the parameters of 4 x hidden_size",
    )
    inputs.default("ffn_hidden_size", 4 * inputs["hidden_size"])
    inputs.default("num_kv_heads", inputs["num_heads"])
    inputs.apply((WHOLE_HEADS,))
    with np.errstate(all="ignore"):
        inputs.default("head_size", np.maximum(inputs["hidden_size"] // inputs["num_heads"], 1))
    inputs.default("expert_ffn_hidden_size", inputs["ffn_hidden_size"])
    inputs.default("ties_embedding", np.where(gated, False, True).astype(object))
    models = _look_up_shape(inputs, catalog, is_known)
    _resolve_details(inputs, gated)
    return models


def _look_up_shape(inputs: Inputs, catalog: Catalog, is_known: Array) -> Array:
    """Fill latents, windows and biases of unnamed shapes that equal the shape of a known model.

    No two known models have the same widths, depth, heads, experts and vocabulary.

    Parameters
    ----------
    is_known
        Rows that name a known model: a missing detail is no detail of theirs.

    Returns
    -------
    For each row the model that has its shape, whatever name the row gives.
    """
    models: Array = np.full(inputs.num_rows, None, dtype=object)
    for label, record in catalog.tables.get("model", {}).items():
        rows = np.flatnonzero(inputs["hidden_size"] == record["hidden_size"])
        if not len(rows):
            continue
        for name, value in _coarse_shape(record).items():
            rows = rows[_is_value(inputs[name][rows], OF_DENSE.get(name), value)]
        models[rows] = label
        rows = rows[~is_known[rows]]
        for name in DETAILS:
            if record.get(name) is not None:
                inputs[name][rows[inputs.missing(name)[rows]]] = record[name]
    return models


def _coarse_shape(record: Record) -> dict[str, Scalar]:
    """Return the columns of `COARSE` of a known model, with the defaults of a shape."""
    gated, hidden, heads = (record[name] for name in ("uses_glu", "hidden_size", "num_heads"))
    width = record["ffn_hidden_size"] or 4 * float(hidden or 0)
    defaults = OF_DENSE | {
        "uses_glu": False,
        "num_kv_heads": heads,
        "ffn_hidden_size": width,
        "expert_ffn_hidden_size": width,
        "head_size": float(hidden or 0) // float(heads or 1),
        "ties_embedding": not gated,
    }
    return {
        name: defaults.get(name) if record.get(name) is None else record[name] for name in COARSE
    }


def _is_value(given: Array, usual: Scalar, value: Scalar) -> Array:
    """Return where a column has a value; `usual` stands for missing ones."""
    is_number = given.dtype == np.float64
    missing = np.isnan(given) if is_number else np.equal(given, np.array(None))
    if value is None:
        return np.asarray(missing)
    same = np.equal(given, value).astype(bool)
    return np.asarray(same | missing) if usual == value else np.asarray(same)


def _resolve_details(inputs: Inputs, gated: Array) -> None:
    """Fill the rest of the shape: heads of one width, no windows, experts in every layer."""
    inputs.default("num_experts", DEFAULTS["num_experts"])
    inputs.default("num_shared_experts", DEFAULTS["num_shared_experts"])
    for name in ("q_lora_rank", "kv_lora_rank", "qk_rotary_size", "num_mtp_layers"):
        inputs.default(name, 0)
    inputs.default("qk_head_size", inputs["head_size"])
    inputs.default("v_head_size", inputs["head_size"])
    shared = inputs["num_shared_experts"] * inputs["expert_ffn_hidden_size"]
    inputs.default("shared_ffn_hidden_size", shared)
    inputs.default("moe_period", 1)
    with np.errstate(all="ignore"):
        every = np.maximum(inputs["moe_period"], 1)
        first = inputs["num_layers"] - inputs["num_layers"] // every
    inputs.default("num_dense_layers", np.where(inputs["num_experts"] > 1, first, 0))
    inputs.default("route_groups", 1)
    inputs.default("route_groups_kept", inputs["route_groups"])
    inputs.default("attention_window", 0)
    inputs.default("window_period", 0)
    for name in ("uses_chunked_attention", "uses_qk_norm", "uses_attention_sinks"):
        inputs.default(name, False)
    for name in ("uses_router_bias", "uses_gate_clamp", "uses_yarn"):
        inputs.default(name, False)
    # Megatron-LM's layers have biases where they are not gated, Llama's have none
    inputs.default("uses_linear_bias", np.where(gated, False, True).astype(object))


def _look_up_model(inputs: Inputs, catalog: Catalog) -> Array:
    """Fill the shape of a known model; if the shape is given, an unknown name is only a label.

    Returns
    -------
    For each row whether it names a known model.
    """
    is_whole = np.ones(inputs.num_rows, dtype=bool)
    for name in NEEDED:
        is_whole &= ~inputs.missing(name)
    labels = inputs["model"].copy()
    unknown = np.zeros(inputs.num_rows, dtype=bool)
    for label in {label for label in labels.tolist() if label is not None}:
        if catalog.known("model", label) is None:
            unknown |= np.equal(labels, label) & is_whole
    known = labels.copy()
    known[unknown] = None
    inputs.replace("model", known)
    inputs.look_up(catalog, "model", "model", SHAPE)
    is_known = ~inputs.missing("model")
    inputs["model"][unknown] = labels[unknown]
    return is_known


def _resolve_experts(
    inputs: Inputs, catalog: Catalog, models: Array, asked: Mapping[str, Array]
) -> None:
    """Fill the exchange of tokens from the most specific row of table `expert_default`.

    Its rows are for a framework; or for one on an accelerator; with a model; under a recipe.

    Parameters
    ----------
    models
        Names of the rows' models.
    asked
        For each of `OF_RECIPES` the rows in which it is given.
    """
    table = catalog.tables.get("expert_default", {})
    names = ("framework", "accelerator", "number_recipe")
    cases = rows_by(models, *(inputs[name] for name in names), releases_of(inputs))
    for (named, framework, accelerator, recipe, release), rows in cases.items():
        product = product_of(catalog, accelerator)
        model = (catalog.known("model", str(named)) or {"model": named})["model"]
        place = f"{framework}@{product}"
        keys = (f"{place}@{model}@{recipe}", f"{place}@{model}", place, str(framework))
        found = next((row for key in keys for row in until(table, key, float(str(release)))), {})
        for name in OF_EXPERTS:
            if name in found:
                free = rows & inputs.missing(name)
                if name == "overlaps_expert_comm" and found[name]:
                    free[free] = can_overlap({each: inputs[each][free] for each in OVERLAPS_WITH})
                inputs[name][free] = found[name]
        if found.get("expert_tensor_parallel") is not None:
            free = rows & inputs.missing("expert_tensor_parallel")
            inputs["expert_tensor_parallel"][free] = found["expert_tensor_parallel"]
        for name in OF_RECIPES:
            if found.get(name) is not None:
                free = rows & ~asked[name]
                if name == "attention_program":
                    free &= np.not_equal(inputs[name], FORMULA)
                if name == "recompute_modules":
                    free &= can_recompute(str(found[name]), str(recipe), inputs["kv_lora_rank"])
                inputs[name][free] = found[name]
    for name in OF_EXPERTS:
        inputs.default(name, DEFAULTS[name])


def resolve_layout(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check the layout of every row."""
    _default_chunks(inputs)
    for name in ONES:
        inputs.default(name, 1)
    inputs.check(ONES)
    _default_choices(inputs, catalog)
    others = inputs["tensor_parallel"] * inputs["context_parallel"] * inputs["pipeline_parallel"]
    with np.errstate(all="ignore"):
        inputs.default("data_parallel", np.maximum(inputs["num_gpus"] // others, 1))
    inputs.default("data_parallel", 1)
    inputs.default("num_gpus", others * inputs["data_parallel"])
    _default_expert_tensors(inputs, catalog)
    asked = ~inputs.missing("num_microbatches")
    inputs.default("num_microbatches", 1)
    sequences = inputs["data_parallel"] * inputs["microbatch_size"] * inputs["num_microbatches"]
    inputs.default("global_batch_size", sequences)
    inputs.refuse(
        "num_microbatches",
        asked & (inputs["global_batch_size"] != sequences),
        "times `data_parallel` and `microbatch_size` is not `global_batch_size`",
        "leave one of them out",
    )
    inputs.check((*KEYS, "num_gpus", "global_batch_size"))
    inputs.apply(LAYOUT_RULES)
    # programs shard nothing over one replica: the layout is that of a search
    shards = SHARDING_NEEDS_REPLICAS.holds(inputs)
    inputs.replace("zero_stage", np.where(shards, inputs["zero_stage"], 0))


def _default_chunks(inputs: Inputs) -> None:
    """Fill the chunks of pipelines whose layers a text places: its stages over the ranks."""
    texts = inputs["pipeline_layout"].tolist()
    asked = inputs.missing("virtual_pipeline") & ~inputs.missing("pipeline_layout")
    if asked.any():
        stages = np.array([0 if text is None else num_stages(text) for text in texts])
        # a rank in a V has two stages and no chunks
        of_rank = np.where(np.isin(inputs["schedule"].astype(str), IN_A_V), 2, 1)
        with np.errstate(all="ignore"):
            chunks = np.maximum(stages // (inputs["pipeline_parallel"] * of_rank), 1)
        inputs.default("virtual_pipeline", np.where(asked, chunks, np.nan))


def _default_expert_tensors(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the GPUs that share an expert: a program's default is 1, or those of other tensors.

    Where ranks of experts of that size would not fill a stage, it is 1: no such run exists.
    """
    frameworks = catalog.tables.get("framework", {})
    splits: Array = np.zeros(inputs.num_rows, dtype=bool)
    for (name,), rows in rows_by(inputs["framework"]).items():
        record = frameworks.get(str(name), {})
        since = float(record.get("whole_experts_from_release") or np.inf)
        is_whole = (inputs["framework_release"] >= since) & (inputs["expert_parallel"] > 1)
        splits |= rows & bool(record.get("splits_experts")) & ~is_whole
    tensor, experts = inputs["tensor_parallel"], inputs["expert_parallel"]
    with np.errstate(all="ignore"):
        in_stage = inputs["num_gpus"] // inputs["pipeline_parallel"]
        splits &= (inputs["num_experts"] > 1) & (np.remainder(in_stage, tensor * experts) == 0)
    inputs.default("expert_tensor_parallel", np.where(splits, tensor, 1))


def _default_choices(inputs: Inputs, catalog: Catalog) -> None:
    """Fill ZeRO stage and sequence parallelism with the defaults of the framework."""
    frameworks = catalog.tables.get("framework", {})
    stage: Array = np.zeros(inputs.num_rows)
    splits: Array = np.full(inputs.num_rows, False, dtype=object)
    for (name,), rows in rows_by(inputs["framework"]).items():
        record = frameworks.get(str(name), {})
        stage[rows] = record.get("zero_stage") or 0
        splits[rows] = bool(record.get("uses_sequence_parallel"))
    inputs.default("zero_stage", stage)
    tensor, experts = inputs["tensor_parallel"], inputs["num_experts"]
    with np.errstate(all="ignore"):
        rest = np.remainder(inputs["seq_len"], tensor * inputs["context_parallel"])
    # a mixture needs sequence parallelism where tensors are split; no framework's default counts
    splits = (splits.astype(bool) | (experts > 1)) & (tensor > 1) & (rest == 0)
    inputs.default("uses_sequence_parallel", splits)
    # programs ignore it without a tensor-parallel group
    given = inputs["uses_sequence_parallel"]
    inputs.replace("uses_sequence_parallel", np.where(tensor == 1, False, given))
