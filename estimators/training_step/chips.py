"""Number formats and kernels that a chip lacks, by its compute capability: table `chips.csv`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from estimators.catalog import product_of
from estimators.contract import Array, Catalog, Scalar
from estimators.inputs import Inputs
from estimators.own_tables import rows_of

NEEDS = rows_of("training_step/chips")
"""Values of inputs that need a capability, and the value that a lesser chip takes."""

OF_CHIPS = tuple(dict.fromkeys(need["column"] for need in NEEDS))
"""Inputs among whose values a chip may lack one."""


def resolve_chips(inputs: Inputs, catalog: Catalog, asked: Mapping[str, Array]) -> None:
    """Replace defaults that the row's chip lacks, and refuse what was asked of it in vain.

    Parameters
    ----------
    asked
        For each of `OF_CHIPS` the rows in which it is given.
    """
    names = inputs["accelerator"]
    for name in dict.fromkeys(names.tolist()):
        capability, product = _capability(catalog, name)
        for need in NEEDS:
            if capability is None or capability >= float(need["least_capability"]):
                continue
            column = need["column"]
            rows = np.equal(names, name) & np.equal(inputs[column], need["value"])
            inputs[column][rows & ~asked[column]] = need["instead"]
            reason = (
                f"is not possible on {product}: it needs compute capability "
                f"{need['least_capability']}, and the chip has {capability}"
            )
            inputs.refuse(column, rows & asked[column], reason, f"use {need['instead']}")


def _capability(catalog: Catalog, accelerator: Scalar) -> tuple[float | None, str]:
    """Return the compute capability of an accelerator, None if no table has it; and its product."""
    product = product_of(catalog, accelerator)
    record = catalog.tables.get("accelerator", {}).get(str(product), {})
    capability = record.get("compute_capability")
    return (None if capability is None else float(capability)), str(product)
