"""Defaults, look-ups and rules of the cluster estimator's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from estimators.catalog import base_of
from estimators.cluster.memory import parameters
from estimators.cluster.relations import (
    CHOICES,
    COMMUNICATION,
    LATENCY,
    MEMORY,
    MODEL,
    POWER,
    PROBLEM,
    RUN,
    SHAPE,
)
from estimators.cluster.runs import critical_batch
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Mends, RefusedError, Relation
from estimators.inputs import Inputs
from estimators.rules import Rule, at_most, divides

OPTIONAL = tuple(name for name in PROBLEM if name != "parameters")
"""Problem columns that may be missing."""

PARAMETERS = 70e9
DEFAULT_MODEL = "llama3_70B"
PEAK_FLOPS_PER_SECOND = 989e12
USD_PER_GPU_HOUR = 2
WATTS_PER_GPU = 1275
LEFT_OVER_GPUS = 33_973
"""Idle GPUs in the source: a variable left over from an earlier table (C3)."""

DEFAULTS: Mapping[str, Any] = {
    "target_step_seconds": 1,
    "goodput": 1,
    "activation_recompute": "selective",
    "overlaps_exchange": False,
    "medium": "vacuum",
    "pue": 1,
    "mfu": 0.40,
    "gradient_accumulation": 1,
    "num_sites": 10,
    "gradient_bytes_per_parameter": 2,
    "sync_interval_steps": 1,
    "zero_stage": 0,
    "data_parallel": 1,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "uses_sequence_parallel": False,
    "batch_sequences": 1,
}
"""Defaults, from the source where it has one."""

ALIASES = {
    "model_size": "parameters",
    "dataset_size": "dataset_tokens",
    "global_batch_size": "global_batch_tokens",
    "num_grad_accum": "gradient_accumulation",
    "bandwidth": "site_bytes_per_second",
    "world_size": "num_sites",
    "n_layers": "num_layers",
    "n_heads": "num_heads",
    "n_key_value_heads": "num_kv_heads",
    "ctx_length": "seq_len",
    "tp_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "batch_size_per_replicas": "batch_sequences",
}
"""The source's names."""


MEMORY_RULES = (
    divides("tensor_parallel", "num_heads"),
    at_most("stages have layers", "pipeline_parallel", "num_layers"),
)


def _of_known(rule: Rule) -> Rule:
    """Return a rule that skips rows without its columns; a run may have no shape."""
    return replace(
        rule,
        holds=lambda v: np.any([np.isnan(v[n]) for n in rule.needs], axis=0) | rule.holds(v),
    )


SHAPE_RULES = (
    _of_known(divides("num_kv_heads", "num_heads")),
    _of_known(divides("num_heads", "hidden_size")),
    _of_known(
        at_most(
            "no more active parameters than parameters",
            "active_parameters",
            "parameters",
            advice=lambda _: "give the parameters that a token passes through: a part of all",
        )
    ),
)
"""Heads share the width, and queries their keys, evenly."""
HAS_A_BATCH = _of_known(
    at_most(
        "the run takes a step",
        "global_batch_tokens",
        "dataset_tokens",
        advice=lambda _: "use a smaller batch, or more tokens",
    )
)
"""Under C15 every token of a step is paid for; as published, such a run takes no step."""
WHOLE_LAYERS = Rule(
    "activations are not split",
    "tensor_parallel",
    ("tensor_parallel",),
    lambda v: np.equal(v["tensor_parallel"], 1),
    lambda _: "must be 1: the published formula of activations does not split them",
    lambda _: "use 1, or mend C17",
)


def resolve_problem(inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
    """Complete and check problem and choices of one relation."""
    for name in relation.unread:
        inputs.replace(name, _missing(inputs, name))
    _resolve_model(inputs, relation, catalog, mends)
    _resolve_device(inputs, relation, catalog, mends)
    if relation is not MEMORY:
        _resolve_run(inputs)
    if relation in (COMMUNICATION, LATENCY) and "C3" not in mends:
        inputs.default("idle_num_gpus", LEFT_OVER_GPUS)
    if relation is COMMUNICATION:
        inputs.default("site_links", "per_site" if "C14" in mends else "shared")
        inputs.default("exchange", "ring" if "C14" in mends else "gather")
    if relation is LATENCY:
        _resolve_sites(inputs, catalog, mends)
    for name in (*RUN, *CHOICES, *POWER):
        if name in DEFAULTS and name not in relation.unread:
            inputs.default(name, DEFAULTS[name])
    inputs.check((*PROBLEM, *CHOICES))
    inputs.apply(SHAPE_RULES)
    _refuse_beyond_limits(inputs, ("peak_flops_per_second", "hbm_bytes"))


def resolve_keys(inputs: Inputs, relation: Relation, mends: Mends) -> None:
    """Complete and check the keys of one relation, its problem being complete."""
    if "global_batch_tokens" in relation.keys:
        sizes = (inputs["parameters"], inputs["active_parameters"], inputs["dataset_tokens"])
        with np.errstate(all="ignore"):
            batch = critical_batch(*sizes, mends)
        inputs.default("global_batch_tokens", np.where(np.isfinite(batch), batch, np.nan))
    if "batch_sequences" in relation.keys:
        inputs.check(("global_batch_tokens",))
        tokens = inputs["global_batch_tokens"]
        length = inputs["seq_len"] if "C13" in mends else 1.0
        inputs.default("batch_sequences", tokens / length)
    for name in relation.keys:
        inputs.default(name, default_key(name, mends))
    inputs.check(relation.keys)
    if "mfu" in relation.keys:
        reason = "must be above 0 and at most 1"
        inputs.refuse("mfu", (inputs["mfu"] <= 0) | (inputs["mfu"] > 1), reason, "write 0.4")
    if relation is not MEMORY and "C15" in mends:
        inputs.apply((HAS_A_BATCH,))
    if relation is MEMORY:
        inputs.apply(MEMORY_RULES if "C17" in mends else (*MEMORY_RULES, WHOLE_LAYERS))


def default_key(name: str, mends: Mends) -> Any:
    """Return the default of a key; NaN if it depends on the problem."""
    if name == "site_bytes_per_second":
        return 10e9 if "C19" in mends else 10 * 2**30
    return DEFAULTS.get(name, np.nan)


def _missing(inputs: Inputs, name: str) -> Array:
    number = COLUMNS[name].kind in ("int", "float")
    return np.full(inputs.num_rows, np.nan if number else None, dtype=float if number else object)


LIMITS = {
    "parameters": (1, 1e18),
    "active_parameters": (1, 1e18),
    "dataset_tokens": (1, 1e21),
    "tokens_per_parameter": (1e-9, 1e9),
    "peak_flops_per_second": (1, 1e30),
    "hbm_bytes": (1, 1e30),
}
"""Limits of inputs: beyond them a product of several could overflow."""


def _refuse_beyond_limits(inputs: Inputs, names: Iterable[str]) -> None:
    """Refuse values outside `LIMITS`, except those that the dictionary refuses."""
    for name in names:
        beyond = ~_is_within_limits(inputs, name) & ~inputs.missing(name)
        least, most = LIMITS[name]
        # The dictionary refuses values that are not finite and above 0.
        beyond &= (inputs[name] > 0) & np.isfinite(inputs[name])
        inputs.refuse(name, beyond, f"must be from {least:g} to {most:g}")


def _is_within_limits(inputs: Inputs, name: str) -> Array:
    least, most = LIMITS[name]
    with np.errstate(invalid="ignore"):
        return (inputs[name] >= least) & (inputs[name] <= most)


def _resolve_model(inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
    """Fill the shape of a named model, and parameters from a shape."""
    if relation is MEMORY:
        shapeless = inputs.missing("num_layers") & inputs.missing("hidden_size")
        inputs.default("model", _text_where(shapeless, DEFAULT_MODEL))
    inputs.look_up(catalog, "model", "model", SHAPE)
    inputs.default("num_kv_heads", inputs["num_heads"])
    inputs.default("ffn_hidden_size", 4 * inputs["hidden_size"])
    plain = ~inputs.missing("hidden_size") & inputs.missing("uses_glu")
    inputs.replace("uses_glu", np.where(plain, False, inputs["uses_glu"]))
    if relation is MEMORY:
        needed = ("num_layers", "hidden_size", "num_heads", "seq_len")
        inputs.require(needed, "name a `model`, or give its shape")
    inputs.check(MODEL)
    with np.errstate(all="ignore"):
        if "C18" in mends:
            size = parameters({name: inputs[name] for name in SHAPE})
        else:
            hidden = inputs["hidden_size"]
            size = inputs["num_layers"] * (12 * hidden * hidden + 4 * hidden)
        inputs.default("parameters", size)
    inputs.default("parameters", PARAMETERS)
    if relation is MEMORY:
        _refuse_beyond_limits(inputs, ("parameters",))


def _resolve_device(inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
    """Fill the attributes of the accelerator; without a name, those of the source's H100.

    Only the source's H100 has a default price: a named accelerator has none.
    """
    nameless = inputs.missing("accelerator")
    for name in dict.fromkeys(inputs["accelerator"][~nameless].tolist()):
        rows = np.equal(inputs["accelerator"], name)
        try:
            known = device(catalog, name)
        except RefusedError as error:
            [refusal] = error.refusals
            inputs.refuse("accelerator", rows, refusal.reason, refusal.hint)
            continue
        for column, value in known.items():
            if value is not None and column not in relation.unread:
                inputs.default(column, np.where(rows, value, np.nan))
    sources_own = {
        "peak_flops_per_second": PEAK_FLOPS_PER_SECOND,
        "hbm_bytes": 80e9 if "C19" in mends else 80 * 2**30,
        "usd_per_gpu_hour": USD_PER_GPU_HOUR,
        "watts_per_gpu": WATTS_PER_GPU,
    }
    for column, value in sources_own.items():
        if column not in relation.unread:
            inputs.default(column, np.where(nameless, value, np.nan))
    if "peak_flops_per_second" not in relation.unread:
        inputs.require(("peak_flops_per_second",), "give the peak rate of the accelerator")


def device(catalog: Catalog, name: str) -> dict[str, Any]:
    """Return the rate, memory and server's power of an accelerator in the catalog.

    A system, of table `system` or of a study, takes precedence over an accelerator of the same
    name: its figures may differ.

    Raises
    ------
    RefusedError
        If it is neither a system nor an accelerator.
    """
    found: dict[str, Any] = {}
    try:
        row = catalog.find("accelerator", base_of(catalog, name) or name)
        found["peak_flops_per_second"] = row.get("bf16_flops_per_second")
        found["watts_per_gpu"] = row.get("server_watts_per_gpu")
        found["hbm_bytes"] = row.get("hbm_bytes")
    except RefusedError:
        catalog.find("system", name)
    try:
        row = catalog.find("system", name)
    except RefusedError:
        return found
    own = {
        "peak_flops_per_second": row.get("matrix_flops_per_second"),
        "hbm_bytes": row.get("hbm_bytes"),
    }
    return {**found, **own}


def _resolve_run(inputs: Inputs) -> None:
    """Fill the tokens of the run: given, or a number for each parameter."""
    inputs.check(("active_parameters", "tokens_per_parameter", "dataset_tokens"))
    sizes = ("parameters", "active_parameters", "tokens_per_parameter")
    _refuse_beyond_limits(inputs, sizes)
    inputs.default("active_parameters", inputs["parameters"])
    both = ~inputs.missing("tokens_per_parameter") & ~inputs.missing("dataset_tokens")
    inputs.refuse(
        "tokens_per_parameter", both, "and `dataset_tokens` are both given", "give one of the two"
    )
    inputs.default("tokens_per_parameter", 20)
    with np.errstate(all="ignore"):
        tokens = inputs["tokens_per_parameter"] * inputs["active_parameters"]
    sound = np.all([_is_within_limits(inputs, name) for name in sizes], axis=0)
    inputs.default("dataset_tokens", np.where(sound, tokens, np.nan))
    _refuse_beyond_limits(inputs, ("dataset_tokens",))


def _resolve_sites(inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
    """Fill the coordinates of the two sites from their names, unless the coordinates are given."""
    for end, default in (("a", "JEAN_ZAY"), ("b", "JOLIOT_CURIE")):
        place = (f"latitude_{end}", f"longitude_{end}")
        nowhere = inputs.missing(place[0]) & inputs.missing(place[1])
        for name, other in (place, place[::-1]):
            alone = inputs.missing(name) & ~inputs.missing(other)
            inputs.refuse(
                name, alone, f"is missing, but `{other}` is given", "give both coordinates"
            )
        inputs.default(f"site_{end}", _text_where(nowhere, default))
        for name in dict.fromkeys(inputs[f"site_{end}"].tolist()):
            if name is not None:
                _place(inputs, catalog, mends, end, name)
        inputs.require(place, "name a site, or give both coordinates")


def _place(inputs: Inputs, catalog: Catalog, mends: Mends, end: str, name: str) -> None:
    """Fill the coordinates of one end from the name of its site, and refuse contradictions."""
    column = f"site_{end}"
    rows = np.equal(inputs[column], name)
    known = ~(inputs.missing(f"latitude_{end}") | inputs.missing(f"longitude_{end}"))
    try:
        site = catalog.find("site", name)
        if "C10" in mends and site.get("true_site"):
            site = catalog.find("site", str(site["true_site"]))
    except RefusedError as error:
        [refusal] = error.refusals
        # An unknown place may be named with its coordinates.
        inputs.refuse(column, rows & ~known, refusal.reason, refusal.hint)
        return
    for place in ("latitude", "longitude"):
        degrees: Any = site[place]
        # A stored row has the coordinates of its site.
        other = rows & known & (inputs[f"{place}_{end}"] != degrees)
        reason = f"is not that of `{column}` {name}"
        inputs.refuse(f"{place}_{end}", other, reason, "leave the coordinates or the name out")
        inputs.default(f"{place}_{end}", np.where(rows, degrees, np.nan))


def _text_where(rows: Array, text: str) -> Array:
    """Return a column with a text in some rows and None in the others."""
    found = np.full(len(rows), None, dtype=object)
    found[rows] = text
    return found
