"""Defaults that follow from a model and an accelerator, and the errors for unknown ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from estimators.catalog import product_of, stated_of
from estimators.columns import COLUMNS
from estimators.contract import RefusedError, Scalar
from estimators.names import joined_hint
from warehouse.database.catalog import packaged_catalog
from warehouse.studies.definitions import known_definitions, stored_shape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from estimators.contract import Catalog
    from estimators.estimator import Estimator
    from warehouse.studies.definitions import Definitions

CUSTOM_MODEL = "custom model"
"""Name, in reports, of a model that is given by its shape alone."""

CUSTOM_SYSTEM = "custom system"
"""Name, in reports, of a system that is given by its rates alone."""

_ATTRIBUTES = {
    "matrix_flops_per_second": "{} of matmuls",
    "hbm_bytes": "{} of memory",
    "hbm_bytes_per_second": "memory bandwidth {}",
    "nvlink_bytes_per_second": "NVLink {} one way",
    "network_bytes_per_second": "network {} one way",
    "power_limit_watts": "power limit {}",
}
"""Attributes of an accelerator that decide a step -> how a line has each."""


def taken_over(values: Mapping[str, Scalar], given: Collection[str]) -> str | None:
    """Return which attributes of an accelerator hold although others were given, in words.

    None if no attribute of a named accelerator is among the columns `given`.
    """
    from warehouse.show.units import in_words

    if values.get("accelerator") is None or not any(name in given for name in _ATTRIBUTES):
        return None
    unchanged = [
        words.format(in_words(name, values[name]))
        for name, words in _ATTRIBUTES.items()
        if name not in given and values.get(name) is not None
    ]
    return f"taken over from {values['accelerator']}: {', '.join(unchanged)}" if unchanged else None


def note_on_model(catalog: Catalog, model: Scalar) -> str:
    """Return what the definition of a user's own model says of it; empty for published models."""
    row = catalog.known("model", str(model))
    if row is None or row["model"] in packaged_catalog().tables["model"]:
        return ""
    note = row.get("note")
    return f"{row['model']}: {note}" if note else ""


def with_model_hint(
    error: RefusedError, estimator: Estimator, given: Iterable[str]
) -> RefusedError:
    """Return an error with hints on an unknown model: how to list models, how to give a shape."""
    shape = estimator.needed_shape
    missing = [name for name in shape if name not in given]
    pairs = f"or give its shape: {' '.join(f'{name}=...' for name in missing)}"
    listing = '`warehouse sql "select model from model"` lists all'
    refusals = []
    for refusal in error.refusals:
        if refusal.column == "model" and "table" in refusal.reason:
            of_file = f"{pairs}, or the path of its config.json"
            shape_hint = of_file if missing else "or leave it out: the shape is given"
            hint = joined_hint(refusal.hint, listing, shape_hint)
            refusals.append(replace(refusal, hint=hint))
        elif refusal.column in shape and refusal.reason == "is missing":
            refusals.append(replace(refusal, hint=f"name a model: {listing}; {pairs}"))
        else:
            refusals.append(refusal)
    return RefusedError(refusals)


_OF_OPTIMIZER = ("moment_bytes", "main_weight_bytes")


def besides_gpus(estimator: Estimator) -> str:
    """Return what takes less memory where no layout fits, and what is not modelled, in words."""
    known = {*estimator.problem_columns, *estimator.input_columns}
    words = []
    if known.issuperset(_OF_OPTIMIZER):
        names = " and ".join(f"`{name}` 2" for name in _OF_OPTIMIZER)
        words.append(f"or use {names}, an optimizer in 16 bits")
    searched = ["microbatch"] if "microbatch_size" in estimator.relations[0].keys else []
    searched += ["recomputation"] if "activation_recompute" in estimator.searched_choices else []
    words += [f"every {' and '.join(searched)} was tried"] if searched else []
    return "; ".join((*words, "a chunked loss and offload are not modelled"))


def sold_domain(
    estimator: Estimator, accelerator: str, catalog: Catalog | None = None
) -> dict[str, Scalar]:
    """Return the NVLink domain of an accelerator as it is sold, as a column of the problem.

    Empty if the system is not a product, if the estimator has no domains, or if it takes the domain
    from its framework.
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
        stated = stated_of(catalog, name).get("nvlink_size")
        sold = stated or products.get(product_of(catalog, name) or "", {}).get("gpus_per_node")
        if sold is not None:
            return {"nvlink_size": int(sold)}
    return {}


def with_stored_shape(
    database: Path, estimator: Estimator, given: dict[str, str], catalog: Path | None
) -> tuple[dict[str, str], str]:
    """Return inputs with the shape that a stored study gave their model, and the study.

    Only a name that no table and no catalog file has is looked up. Values of the user take
    precedence.
    """
    model = given.get("model")
    if model is None or all(name in given for name in estimator.needed_shape):
        return given, ""
    if definitions_of(database, given, catalog).has_model(model):
        return given, ""
    attributes = {name for row in packaged_catalog().tables["model"].values() for name in row}
    columns = ({*attributes, *estimator.needed_shape} & COLUMNS.keys()) - {"model"}
    shape, study = stored_shape(database, model, sorted(columns))
    return {**shape, **given}, study


def definitions_of(
    database: Path, configuration: Mapping[str, object], catalog: Path | None
) -> Definitions:
    """Return the user's own model and system of a configuration."""
    names = (configuration.get("model"), configuration.get("accelerator"))
    return known_definitions(database, names, catalog)
