"""Inputs of the megatron_flops estimator: shape, rate and run, and the shapes that it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Record, RefusedError, Values
from estimators.inputs import Inputs
from estimators.rules import Rule

SHAPE = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
    *("seq_len", "vocab_size"),
)
NEEDED = ("num_layers", "hidden_size", "seq_len")
"""Columns that the equations need."""

PEAK, REACHED = "matrix_flops_per_second", "achieved_flops_per_second_per_gpu"
PROBLEM = (
    *("model", *SHAPE, "accelerator", PEAK, REACHED),
    *("num_gpus", "global_batch_size", "dataset_tokens"),
)
CHECKED = ("num_experts", "head_size")
"""Columns of a shape for which the equations admit one value: checked, but not stored."""

OTHER_INPUTS = ("flops_efficiency", *CHECKED)
OPTIONAL = ("num_heads", "num_kv_heads", "vocab_size", PEAK, "dataset_tokens")
SYSTEM = (PEAK, "flops_efficiency")
MOST_TOKENS = 1e30
"""The limit of macro `training_run_for`: the time of a run stays finite."""

ALIASES = {
    "l": "num_layers",
    "h": "hidden_size",
    "s": "seq_len",
    "V": "vocab_size",
    "B": "global_batch_size",
    "T": "dataset_tokens",
    "n": "num_gpus",
    "X": REACHED,
}
"""The paper's letters."""

_TRAINING_STEP = "estimate it with training_step, which counts any decoder"


def _same(column: str, other: str, factor: int, need: str) -> Rule:
    """Return the rule that `column` is `factor` times `other`, where both are known."""
    multiple = f"{factor} x " if factor > 1 else ""

    def holds(values: Values) -> Array:
        left = np.asarray(values[column], dtype=np.float64)
        right = factor * np.asarray(values[other], dtype=np.float64)
        return np.asarray((left == right) | np.isnan(left) | np.isnan(right))

    return Rule(
        f"{column} is {multiple}{other}",
        column,
        (column, other),
        holds,
        lambda row: f"is not {multiple}`{other}` {row[other]}: {need}",
        lambda _: _TRAINING_STEP,
    )


def _heads_fill_the_width(values: Values) -> Array:
    width = np.asarray(values["head_size"], dtype=np.float64) * values["num_heads"]
    return np.asarray((width == values["hidden_size"]) | np.isnan(width))


SHAPE_RULES = (
    Rule(
        "experts",
        "num_experts",
        ("num_experts",),
        lambda values: np.equal(values["num_experts"], 1),
        lambda _: "is a mixture, and equations 2 and 3 are of a dense model",
        lambda _: _TRAINING_STEP,
    ),
    Rule(
        "gate",
        "uses_glu",
        ("uses_glu",),
        lambda values: np.not_equal(values["uses_glu"], True),
        lambda _: "is a third matrix in the feed-forward layer; equations 2 and 3 have two",
        lambda _: _TRAINING_STEP,
    ),
    _same("ffn_hidden_size", "hidden_size", 4, "equations 2 and 3 have no other width"),
    _same("num_kv_heads", "num_heads", 1, "equations 2 and 3 have no grouped queries"),
    Rule(
        "head size",
        "head_size",
        ("head_size", "num_heads", "hidden_size"),
        _heads_fill_the_width,
        lambda row: (
            f"times `num_heads` {row['num_heads']} is not `hidden_size`"
            f" {row['hidden_size']}: equations 2 and 3 have no other width of attention"
        ),
        lambda _: _TRAINING_STEP,
    ),
)
RATE_RULES = (
    Rule(
        "rate",
        REACHED,
        (REACHED, PEAK),
        lambda values: ~np.greater(values[REACHED], values[PEAK]),
        lambda row: f"is more than the peak rate `{PEAK}` {row[PEAK]:g}",
        lambda _: "give FLOP/s of one GPU, recomputation counted",
    ),
)


def resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    """Complete and check shape, rate, run and recomputation."""
    _resolve_shape(inputs, catalog)
    _resolve_rate(inputs, catalog)
    inputs.require(("num_gpus", "global_batch_size"), "say how many GPUs and sequences a step has")
    inputs.default("activation_recompute", "full")
    inputs.check((*PROBLEM, *CHECKED, "activation_recompute"))
    inputs.refuse(
        "activation_recompute",
        np.equal(inputs["activation_recompute"], "selective"),
        "is not in equation 3, which computes all activations again",
        "use none or full; training_step has selective recomputation",
    )
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(inputs["dataset_tokens"]) & (inputs["dataset_tokens"] > MOST_TOKENS)
    inputs.refuse("dataset_tokens", beyond, f"must be at most {MOST_TOKENS:g}")
    inputs.apply((*SHAPE_RULES, *RATE_RULES))


def _resolve_shape(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the shape from the model, or by defaults."""
    _look_up(inputs, "model", {"model": {n: n for n in (*SHAPE, *CHECKED)}}, catalog, NEEDED)
    inputs.require(NEEDED, "name a `model`, or give its shape")
    inputs.default("uses_glu", False)
    inputs.default("num_experts", 1)
    with np.errstate(all="ignore"):
        inputs.default("ffn_hidden_size", 4 * inputs["hidden_size"])
    inputs.default("num_kv_heads", inputs["num_heads"])


def _resolve_rate(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the peak rate, and the rate that is reached: given, a share of the peak, or all of it.

    Systems come first: one may have the name of an accelerator and another rate.
    """
    tables = {"system": {PEAK: PEAK}, "accelerator": {PEAK: "bf16_flops_per_second"}}
    _look_up(inputs, "accelerator", tables, catalog, (PEAK,), (REACHED,))
    inputs.check(("flops_efficiency",))
    share = np.where(inputs["flops_efficiency"] > 0, inputs["flops_efficiency"], np.nan)
    with np.errstate(all="ignore"):
        reached = share * inputs[PEAK]
        differs = np.abs(inputs[REACHED] / reached - 1) > 1e-9
    inputs.refuse(
        "flops_efficiency", ~np.isnan(share) & np.isnan(inputs[PEAK]), "needs a peak rate"
    )
    inputs.refuse(
        "flops_efficiency",
        differs,
        f"of the peak rate is not `{REACHED}`, which is given too",
        "leave one of them out",
    )
    inputs.default(REACHED, np.where(np.isnan(share), inputs[PEAK], reached))
    inputs.require(
        (REACHED,), f"name an `accelerator`, give its `{PEAK}`, or the rate that is reached"
    )


def _look_up(
    inputs: Inputs,
    key: str,
    tables: Mapping[str, Mapping[str, str]],
    catalog: Catalog,
    *needed: Iterable[str],
) -> None:
    """Fill columns from the first of `tables` that has a row's `key`.

    An unknown name is refused, unless all `needed` columns are given: then it is only a label.

    Parameters
    ----------
    tables
        Table -> column -> its name in that table.
    """
    is_whole = np.zeros(inputs.num_rows, dtype=bool)
    for names in needed:
        is_whole |= ~np.any([inputs.missing(name) for name in names], axis=0)
    for label in dict.fromkeys(inputs[key].tolist()):
        if label is None:
            continue
        rows = np.equal(inputs[key], label)
        found, columns = _first(tables, catalog, label)
        if found is None:
            known = ", ".join(
                sorted({n for table in tables for n in catalog.tables.get(table, {})})
            )
            words = " or ".join(f"`{table}`" for table in tables)
            reason = f"is not in the {words} table"
            inputs.refuse(key, rows & ~is_whole, reason, f"known: {known}")
            continue
        inputs[key][rows] = found.get(key, label)
        for name, column in columns.items():
            if found.get(column) is not None:
                inputs[name][rows & inputs.missing(name)] = found[column]


def _first(
    tables: Mapping[str, Mapping[str, str]], catalog: Catalog, label: Any
) -> tuple[Record | None, Mapping[str, str]]:
    """Return the row of the first table that has it, and its columns by their names here."""
    for table, columns in tables.items():
        try:
            return catalog.find(table, label), columns
        except RefusedError:
            continue
    return None, {}
