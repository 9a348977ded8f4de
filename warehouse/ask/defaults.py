"""Defaults that follow from a model and an accelerator, and the errors for unknown ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from estimators.accelerators import product_of
from estimators.contract import RefusedError, Scalar
from estimators.names import joined_hint
from warehouse.database.catalog import packaged_catalog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from estimators.contract import Catalog, Estimator

CUSTOM_MODEL = "custom model"
"""Name, in reports, of a model that is given by its shape alone."""

CUSTOM_SYSTEM = "custom system"
"""Name, in reports, of a system that is given by its rates alone."""

_ATTRIBUTES = {
    "matrix_flops_per_second": "{} of matrix products",
    "hbm_bytes": "{} of memory",
    "hbm_bytes_per_second": "memory bandwidth {}",
    "nvlink_bytes_per_second": "NVLink {} one way",
    "network_bytes_per_second": "network {} one way",
    "power_limit_watts": "power limit {}",
}
"""Attributes of an accelerator that decide a step -> how a line has each."""


def taken_over(values: Mapping[str, Scalar], given: Collection[str]) -> str | None:
    """Return which attributes of an accelerator hold although others were given, in words.

    Parameters
    ----------
    values
        The problem, resolved.
    given
        Names of the columns that the user gave.

    Returns
    -------
    str or None
        None where no attribute of a named accelerator was given.
    """
    from warehouse.show.units import in_words

    if values.get("accelerator") is None or not any(name in given for name in _ATTRIBUTES):
        return None
    kept = [
        words.format(in_words(name, values[name]))
        for name, words in _ATTRIBUTES.items()
        if name not in given and values.get(name) is not None
    ]
    return f"taken over from {values['accelerator']}: {', '.join(kept)}" if kept else None


def with_model_hint(
    error: RefusedError, estimator: Estimator, given: Iterable[str]
) -> RefusedError:
    """Return an error with hints on an unknown model: where models are listed, how to give a shape.

    Parameters
    ----------
    given
        Names of the inputs that were given.
    """
    shape = estimator.needed_shape
    missing = [name for name in shape if name not in given]
    pairs = f"or give its shape: {' '.join(f'{name}=...' for name in missing)}"
    listing = '`warehouse sql "select model from model"` lists all'
    refusals = []
    for one in error.refusals:
        if one.column == "model" and "table" in one.reason:
            own = pairs if missing else "or leave it out: the shape is given"
            refusals.append(replace(one, hint=joined_hint(one.hint, listing, own)))
        elif one.column in shape and one.reason == "is missing":
            refusals.append(replace(one, hint=f"name a model: {listing}; {pairs}"))
        else:
            refusals.append(one)
    return RefusedError(refusals)


def sold_domain(
    estimator: Estimator, accelerator: str, catalog: Catalog | None = None
) -> dict[str, Scalar]:
    """Return the NVLink domain of an accelerator as it is sold, as a column of the problem.

    Empty if the system is not a product, if the estimator has no domains, or if it takes the domain
    from its framework.

    Parameters
    ----------
    catalog
        The reference tables; None: those of the package.
    """
    columns = estimator.problem_columns
    if "nvlink_size" not in columns or "framework" in columns:
        return {}
    catalog = catalog or packaged_catalog()
    products = catalog.tables["accelerator"]
    for table in ("accelerator", "system"):
        try:
            name = catalog.find(table, accelerator)["accelerator"]
        except RefusedError:
            continue
        sold = products.get(product_of(catalog, name) or "", {}).get("gpus_per_node")
        if sold is not None:
            return {"nvlink_size": int(sold)}
    return {}
