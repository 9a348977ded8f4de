"""Inputs of a system and its program: rates, kernels, constants, and number formats.

Table ``step_constant`` has the constants. Table ``recipe_constant`` has those that differ under a
recipe of number formats from those in 16 bits, table ``release_constant`` those of older releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from estimators.catalog import (
    NARROW_RATES,
    OF_CLUSTERS,
    OWN_SYSTEM,
    PRODUCT_COLUMNS,
    product_of,
)
from estimators.columns import COLUMNS, names_in
from estimators.contract import Array, Catalog, RefusedError, Scalar
from estimators.inputs import Inputs
from estimators.kernels.attention import BLOCK, chip_of, default_program, programs_of, record_of
from estimators.kernels.gemms import FORMULA, kernels_of, measured_accelerators
from estimators.names import did_you_mean, has_numbers_of
from estimators.training_step import recipes

HARDWARE = {"nvlink_size": "gpus_per_node", **PRODUCT_COLUMNS}
"""Attribute of the system -> its column in the table of accelerators."""

RATES = tuple(name for name in HARDWARE if name.endswith("_per_second"))
"""Rates among them."""

LINKS = (
    *("nics_per_gpu", "nvlink_efficiency", "nvlink_latency_seconds", "network_efficiency"),
    *("network_latency_seconds", "launch_seconds"),
)
LIMIT = "power_limit_watts"
"""The default is the power that the accelerator is designed for."""

OF_THE_CHIP = {"num_sms": "num_sms", LIMIT: "tdp_watts"}
"""Attribute of the chip -> its column in the table of accelerators."""

OF_THE_FORMULA = (
    *("gemm_efficiency", "fp8_gemm_efficiency", "fp4_gemm_efficiency"),
    *("gemm_half_depth", "small_tile_efficiency"),
)
"""Constants of the formula of products."""

MEASURED_IN = {
    "product_rate_factor": "kernels",
    "fp8_product_rate_factor": "kernels",
    "fp4_product_rate_factor": "kernels",
    "attention_rate_factor": "attention_program",
}
"""Constant whose range is the spread of measured kernels -> the column that names the kernels."""

CONSTANTS = (*LINKS[1:], *names_in("Constants of a training step"))
"""Columns whose defaults are rows of the table of constants."""

RECIPE_CONSTANT, RELEASE_CONSTANT = "recipe_constant", "release_constant"

OF_OPTIMIZER = ("moment_bytes", "main_weight_bytes")
"""Bytes of one moment, and of the weight that the optimizer updates: other inputs of
`stored_optimizer_bytes` and `optimizer_traffic_bytes`."""

FULL = 4.0
"""Bytes of either in 32 bits."""


def rows_by(*columns: Array) -> dict[tuple[Scalar, ...], Array]:
    """Return the rows of each combination of values in columns; none may be NaN."""
    cases: dict[tuple[Scalar, ...], int] = {}
    rows = zip(*(column.tolist() for column in columns), strict=True)
    case_of = np.array([cases.setdefault(case, len(cases)) for case in rows])
    return {case: np.equal(case_of, number) for case, number in cases.items()}


def releases_of(inputs: Inputs) -> Array:
    """Return the release of each row's program; infinite is the newest, which a row leaves out."""
    return np.nan_to_num(inputs["framework_release"], nan=np.inf)


def resolve_system(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the system from a product of table `accelerator`, or from table `system`."""
    for name, column in HARDWARE.items():
        if name != column:
            both = ~inputs.missing(name) & ~inputs.missing(column)
            differ = both & (inputs[name] != inputs[column])
            inputs.refuse(column, differ, f"is not `{name}`, which is given too", "give one")
            inputs.default(name, inputs[column])
    for (value,), rows in rows_by(inputs["accelerator"]).items():
        if value is None:
            continue
        found = _system(catalog, str(value))
        if found is None:
            near = [*catalog.nearest("accelerator", value), *catalog.nearest(OWN_SYSTEM, value)]
            near = [each for each in dict.fromkeys(near) if has_numbers_of(each, value)]
            hint = catalog.hint_on_name("accelerator", value)
            if hint.startswith("known"):
                hint = did_you_mean(near) or (
                    f"{hint}; table `named_cluster` lists clouds and public machines; define "
                    "others in a study or a file of systems (--catalog)"
                )
            reason = "is neither in the `accelerator` nor in the `system` table"
            inputs.refuse("accelerator", rows, reason, hint)
            continue
        name, attributes = found
        inputs["accelerator"][rows] = name
        for attribute, number in attributes.items():
            if number is not None:
                inputs[attribute][rows & inputs.missing(attribute)] = number
    needed = tuple(name for name in HARDWARE if name not in NARROW_RATES)
    inputs.default("nvlink_size", 8)
    inputs.require(needed, "name an `accelerator`, or give its attributes")
    inputs.check_units((*RATES, "hbm_bytes"))


def _system(catalog: Catalog, name: str) -> tuple[str, dict[str, Scalar]] | None:
    """Return the name of an accelerator or system, and its attributes; None if no table has it.

    A user's system takes the attributes that it does not state from its base. Constants
    were measured on products, so a bare "A100" is a product here, as "H100" is; another estimator
    has a system of that name with the bandwidth of another product.
    """
    own = catalog.tables.get(OWN_SYSTEM, {}).get(name)
    if own is not None:
        base = own.get("based_on")
        _, attributes = (base and _system(catalog, str(base))) or (name, {})
        may_state = dict.fromkeys((*HARDWARE, *LINKS, *OF_CLUSTERS))
        stated = {each: own[each] for each in may_state if own.get(each) is not None}
        return name, {**attributes, **stated}
    for table in ("accelerator", "priced_as"):
        record = catalog.known(table, name) or {}
        product = catalog.known("accelerator", str(record.get("priced_as", name)))
        if record and product:
            columns = {**HARDWARE, **OF_THE_CHIP}
            attributes = {each: product.get(column) for each, column in columns.items()}
            # the driver shows less memory than the nominal size, or more
            shown = product.get("device_bytes") or product.get("hbm_bytes")
            return str(product["accelerator"]), {**attributes, "hbm_bytes": shown}
    if (system := catalog.tables.get("system", {}).get(name)) is not None:
        return name, {each: system.get(each) for each in (*HARDWARE, LINKS[0])}
    own = catalog.known(OWN_SYSTEM, name)  # in another spelling
    return None if own is None else _system(catalog, str(own["accelerator"]))


def resolve_kernels(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the accelerator whose measured kernels are read, or `formula`.

    Rows take the formula if their accelerator has no measured kernels, if they give a constant of
    the formula, or if the libraries of their program are older than the measured ones.
    """
    is_computed = np.equal(inputs["kernels"], FORMULA)
    asks: Array = np.zeros(inputs.num_rows, dtype=bool)
    for name in OF_THE_FORMULA:
        asks |= ~inputs.missing(name)
    known = measured_accelerators(catalog)
    for (value,), rows in rows_by(inputs["kernels"]).items():
        if value in (None, FORMULA):
            continue
        found = FORMULA
        # a short name, as `accelerator` takes it, is that of a product here
        for table in ("accelerator", "priced_as"):
            with suppress(RefusedError):
                found = kernels_of(catalog, catalog.find(table, str(value))["accelerator"])
                break
        if found == FORMULA:
            reason = "has no measured kernels"
            inputs.refuse("kernels", rows, reason, f"known: {', '.join((FORMULA, *known))}")
        else:
            inputs["kernels"][rows] = found
    default: Array = np.full(inputs.num_rows, FORMULA, dtype=object)
    frameworks = catalog.tables.get("framework", {})
    for (framework,), rows in rows_by(inputs["framework"]).items():
        if frameworks.get(str(framework), {}).get("uses_measured_kernels") is False:
            asks |= rows
    for (accelerator,), rows in rows_by(inputs["accelerator"]).items():
        default[rows & ~asks] = kernels_of(catalog, accelerator)
    inputs.default("kernels", default)
    _resolve_attention(inputs, catalog, is_computed)


def _resolve_attention(inputs: Inputs, catalog: Catalog, asks: Array) -> None:
    """Fill the program of fused attention: that of the framework, if its rate was measured.

    Rows whose `kernels` is the formula, or that give one of its efficiencies, take the formula. A
    program that a row names must have a rate on its accelerator.
    """
    _refuse_unknown_programs(inputs, catalog)
    asks = asks | ~inputs.missing("flash_forward_efficiency")
    asks |= ~inputs.missing("flash_backward_efficiency")
    default: Array = np.full(inputs.num_rows, FORMULA, dtype=object)
    names = ("framework", "kernels", "accelerator")
    cases = rows_by(*(inputs[name] for name in names), releases_of(inputs))
    for (framework, kernels, accelerator, release), rows in cases.items():
        chip = chip_of(catalog, kernels, accelerator)
        program = default_program(catalog, framework, chip, float(str(release)))
        if record_of(catalog, chip, program, BLOCK) is not None:
            default[rows & ~asks] = program
    inputs.default("attention_program", default)


def _refuse_unknown_programs(inputs: Inputs, catalog: Catalog) -> None:
    """Refuse programs of attention that were not measured on the row's accelerator."""
    cases = rows_by(inputs["attention_program"], inputs["kernels"], inputs["accelerator"])
    for (program, kernels, accelerator), rows in cases.items():
        if program in (None, FORMULA):
            continue
        chip = chip_of(catalog, kernels, accelerator)
        if record_of(catalog, chip, str(program), BLOCK) is not None:
            continue
        known = (FORMULA, *programs_of(catalog, chip))
        where = "" if chip == FORMULA else f" on {chip}"
        reason = f"has no measured rate{where}"
        inputs.refuse("attention_program", rows, reason, f"known: {', '.join(known)}")


def places(catalog: Catalog, framework: Scalar, accelerator: Scalar) -> tuple[str, ...]:
    """Return the suffixes of a constant's key, the most specific first.

    A system takes the constants of its product, or of the product that it is based on.
    """
    product = product_of(catalog, accelerator)
    return (f"@{product}@{framework}", f"@{framework}", f"@{product}", "")


def resolve_constants(inputs: Inputs, catalog: Catalog) -> None:
    """Fill constants: those of the framework, of the accelerator, or of all."""
    table = catalog.tables.get("step_constant", {})
    missing = {name: inputs.missing(name) for name in CONSTANTS}
    for (framework, accelerator), rows in rows_by(
        inputs["framework"], inputs["accelerator"]
    ).items():
        suffixes = places(catalog, framework, accelerator)
        for name in CONSTANTS:
            for suffix in suffixes:
                if (record := table.get(name + suffix)) is not None:
                    # an array of flags takes any number for one
                    is_flag, value = COLUMNS[name].kind == "bool", record["constant_value"]
                    inputs[name][rows & missing[name]] = bool(value) if is_flag else value
                    break
    _of_older_releases(inputs, catalog, missing)
    inputs.require(CONSTANTS, "the `step_constant` table has no default of it: give it")


def _of_older_releases(inputs: Inputs, catalog: Catalog, missing: Mapping[str, Array]) -> None:
    """Fill constants of releases that differ from the newest: table `release_constant`."""
    releases = releases_of(inputs)
    for row in catalog.tables.get(RELEASE_CONSTANT, {}).values():
        name = str(row["constant"])
        rows = np.equal(inputs["framework"], str(row["framework"])) & missing[name]
        rows &= releases < float(str(row["before_release"]))
        is_flag = COLUMNS[name].kind == "bool"
        inputs[name][rows] = bool(row["constant_value"]) if is_flag else row["constant_value"]


# ---- number formats ----


def given_constants(inputs: Inputs, catalog: Catalog) -> dict[str, Array]:
    """Return for each constant that depends on the recipe the rows in which it is given."""
    names = {"stored_optimizer_bytes", "optimizer_traffic_bytes"}
    names |= {str(row["constant"]) for row in catalog.tables.get(RECIPE_CONSTANT, {}).values()}
    return {name: ~inputs.missing(name) for name in names}


def resolve_precision(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the precision: that of the recipe, or the one in 16 bits that the program takes."""
    frameworks = catalog.tables.get("framework", {})
    precision = recipes.precision_of(inputs["number_recipe"])
    in_16_bits = inputs.missing("number_recipe") | np.equal(inputs["number_recipe"], "none")
    for (name,), rows in rows_by(inputs["framework"]).items():
        usual = frameworks.get(str(name), {}).get("precision")
        if usual is not None:
            precision[rows & in_16_bits] = usual
    inputs.default("precision", precision)


def resolve_formats(inputs: Inputs, catalog: Catalog, given: Mapping[str, Array]) -> None:
    """Fill the recipe, and what follows from it and the precision.

    Parameters
    ----------
    given
        Result of `given_constants` before constants were filled.
    """
    recipe = recipes.recipe_of(inputs["precision"], inputs["transposes_operands"])
    inputs.default("number_recipe", recipe)
    _resolve_weights(inputs, catalog)
    for row in catalog.tables.get(RECIPE_CONSTANT, {}).values():
        name = str(row["constant"])
        rows = np.equal(inputs["framework"], str(row["framework"]))
        rows &= np.equal(inputs["number_recipe"], str(row["number_recipe"])) & ~given[name]
        inputs[name][rows] = row["constant_value"]
    _resolve_optimizer(inputs, given)


def _resolve_weights(inputs: Inputs, catalog: Catalog) -> None:
    """Fill whether weights in few bits are the parameters, by program and recipe."""
    frameworks = catalog.tables.get("framework", {})
    keeps: Array = np.zeros(inputs.num_rows, dtype=bool)
    for (name,), rows in rows_by(inputs["framework"]).items():
        names = str(frameworks.get(str(name), {}).get("quantized_weights") or "").split(";")
        keeps |= rows & np.isin(inputs["number_recipe"].astype(str), names)
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
    for name, changed in changes.items():
        free = rows & ~given[name]
        inputs[name][free] = changed[free]


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
