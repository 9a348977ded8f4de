"""Inputs of number formats: the recipe, and the constants that it sets.

Table ``recipe_constant`` has the constants that differ under a recipe from those in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog
from estimators.inputs import Inputs
from estimators.training_step import recipes

TABLE = "recipe_constant"

OF_OPTIMIZER = ("moment_bytes", "main_weight_bytes")
"""Bytes of one moment, and of the weight that the optimizer updates: other inputs of
`stored_optimizer_bytes` and `optimizer_traffic_bytes`."""

FULL = 4.0
"""Bytes of either in 32 bits."""


def given_constants(inputs: Inputs, catalog: Catalog) -> dict[str, Array]:
    """Return for each constant that depends on the recipe the rows in which it is given."""
    names = {str(row["constant"]) for row in catalog.tables.get(TABLE, {}).values()}
    names |= {"stored_optimizer_bytes", "optimizer_traffic_bytes"}
    return {name: ~inputs.missing(name) for name in names}


def resolve_formats(inputs: Inputs, catalog: Catalog, given: Mapping[str, Array]) -> None:
    """Fill precision and recipe, and what follows from them.

    Parameters
    ----------
    given
        Result of `given_constants` before constants were filled.
    """
    inputs.default("precision", recipes.precision_of(inputs["number_recipe"]))
    recipe = recipes.recipe_of(inputs["precision"], inputs["transposes_operands"])
    inputs.default("number_recipe", recipe)
    _resolve_weights(inputs, catalog)
    for row in catalog.tables.get(TABLE, {}).values():
        name = str(row["constant"])
        own = np.equal(inputs["framework"], str(row["framework"]))
        own &= np.equal(inputs["number_recipe"], str(row["number_recipe"])) & ~given[name]
        inputs[name][own] = row["constant_value"]
    _resolve_optimizer(inputs, given)


def _resolve_weights(inputs: Inputs, catalog: Catalog) -> None:
    """Fill whether weights in few bits are the parameters, by program and recipe."""
    frameworks = catalog.tables.get("framework", {})
    keeps: Array = np.zeros(inputs.num_rows, dtype=bool)
    for name in dict.fromkeys(inputs["framework"].tolist()):
        recipes = str(frameworks.get(name, {}).get("quantized_weights") or "").split(";")
        own = np.isin(inputs["number_recipe"].astype(str), recipes)
        keeps |= np.equal(inputs["framework"], name) & own
    inputs.default("keeps_quantized_weights", keeps.astype(object))


def _resolve_optimizer(inputs: Inputs, given: Mapping[str, Array]) -> None:
    """Fill the bytes of an optimizer whose moments or weights have less than 32 bits."""
    rows: Array = np.zeros(inputs.num_rows, dtype=bool)
    for name in OF_OPTIMIZER:
        rows |= ~inputs.missing(name)
    if not rows.any():
        return
    inputs.check(OF_OPTIMIZER)
    moment, weight = (
        np.where(inputs.missing(name), FULL, inputs[name].astype(np.float64))
        for name in OF_OPTIMIZER
    )
    changes: dict[str, Any] = {
        "stored_optimizer_bytes": optimizer_bytes(moment, weight),
        "optimizer_traffic_bytes": inputs["optimizer_traffic_bytes"]
        - saved_traffic_bytes(moment, weight),
    }
    for name, found in changes.items():
        own = rows & ~given[name]
        inputs[name][own] = found[own]


def optimizer_bytes(moment: Any, weight: Any) -> Any:
    """Return the bytes kept of a parameter: its weight and two moments.

    A precision-aware optimizer reads gradients as they are in their buffer and keeps no copy of
    them (NVIDIA/Megatron-LM @d98e8a64 megatron/core/optimizer/optimizer_config.py
    `use_precision_aware_optimizer`; docs/user-guide/features/dist_optimizer.md).
    """
    return weight + 2.0 * moment


def saved_traffic_bytes(moment: Any, weight: Any) -> Any:
    """Return the bytes of memory traffic that an optimizer saves against one with 32 bits.

    It reads and writes a weight, and reads it once more to copy it; it reads and writes each of two
    moments: ``3 (4 - weight bytes) + 4 (4 - moment bytes)`` a parameter.
    """
    return 3.0 * (FULL - weight) + 4.0 * (FULL - moment)
