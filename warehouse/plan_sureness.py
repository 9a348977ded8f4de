"""How sure a plan is: the interval of its step, and the estimator's error on published steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.contract import Array, RefusedError
from warehouse import plan_queries as queries
from warehouse.batch_inputs import input_names, read_columns
from warehouse.catalog import packaged_catalog
from warehouse.explain import explain
from warehouse.published import IS_OWN, MEASURED, published_reference, published_tables
from warehouse.ranking import records
from warehouse.showing import show_configuration

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Catalog
    from warehouse.plan import Run

EXPLAINED = "training_step"
"""The estimator whose constants have ranges, and that is compared with published steps here."""

OWN, OTHER = "its own programs", "other programs, by the nearest one"
"""Groups of the rows that are evaluated now."""


@dataclass(frozen=True)
class Sureness:
    """How far the answer may be off.

    Attributes
    ----------
    likely, extreme
        Step seconds with the constants' errors independent, and all at their worst; None of an
        estimator whose constants have no ranges.
    explain_command
        The command that shows where the interval comes from.
    errors
        Errors of the step's time by table of published steps and group of its rows, each with how
        many rows it is of and how many were published.
    query
        What the stored ones of them were asked with; empty where all were evaluated just now.
    note
        How to get what is missing.
    """

    likely: tuple[float, float] | None
    extreme: tuple[float, float] | None
    explain_command: str
    errors: Sequence[Mapping[str, Any]]
    query: str
    note: str


def sureness(
    run: Run, connection: DuckDBPyConnection, layout: Mapping[str, Any], num_gpus: int
) -> Sureness:
    """Return how far the estimate of a layout may be off."""
    catalog = packaged_catalog()
    likely = extreme = None
    command = note = ""
    if run.estimator.name == EXPLAINED:
        given = _pairs(run, layout, num_gpus)
        command = "warehouse explain " + " ".join(_shell(k, v) for k, v in given.items())
        relation = run.estimator.relations[0]
        shown = show_configuration(run.estimator, relation, given, run.mends, catalog)
        if np.isclose(float(shown.results["step_seconds"] or 0), layout["step_seconds"]):
            found = explain(shown, catalog)
            likely, extreme = found.likely, found.extreme
    query = queries.accuracy(run)
    errors, is_stored = _errors(run, records(connection, query), catalog)
    if not errors:
        study = f"{run.estimator.name}_published"
        note = f"not compared with published steps yet: `warehouse sweep {study}`"
    return Sureness(likely, extreme, command, errors, query if is_stored else "", note)


def _errors(
    run: Run, stored: Sequence[Mapping[str, Any]], catalog: Catalog
) -> tuple[list[dict[str, Any]], bool]:
    """Return the errors by table, and whether any is the stored one.

    A sweep may happen to hold a few rows of a table. Their error is not the table's: stored figures
    are taken where every row is there, or where the table is a team's own measurements; the others
    are evaluated now, all of them.
    """
    published = {name: published_reference(name).frame.height for name in published_tables()}
    whole: dict[str, list[dict[str, Any]]] = {}
    for line in stored:
        total = published.get(line["reference"])
        own = [each for each in stored if each["reference"] == line["reference"]]
        # `all groups` repeats the others
        covered = sum(e["num_rows"] for e in own if e["published_group"] != "all groups")
        if total is None or covered >= total:
            told = {**line, "num_published": total or covered, "is_stored": True}
            whole.setdefault(line["reference"], []).append(told)
    errors = [line for lines in whole.values() for line in lines]
    if run.estimator.name == EXPLAINED:
        errors += published_errors(run, catalog, [n for n in published if n not in whole])
    elif not errors:
        partial = [
            {**line, "num_published": published[line["reference"]], "is_stored": True}
            for line in stored
        ]
        return partial, bool(partial)
    return sorted(errors, key=lambda e: (e["reference"], e["published_group"])), bool(whole)


def _pairs(run: Run, layout: Mapping[str, Any], num_gpus: int) -> dict[str, str]:
    """Return the layout as `explain` takes it."""
    relation = run.estimator.relations[0]
    wanted = {
        "model": run.facts.problem["model"],
        "accelerator": run.facts.problem["accelerator"],
        **run.asked.inputs,
        "num_gpus": num_gpus,
        "global_batch_size": run.batch,
        "activation_recompute": layout["activation_recompute"],
        **{name: layout[name] for name in relation.keys},
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in wanted.items()
    }


def _shell(name: str, value: str) -> str:
    pair = f"{name}={value}"
    return f"'{pair}'" if " " in pair or "(" in pair else pair


def published_errors(run: Run, catalog: Catalog, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the errors on tables of published steps, evaluated now; nothing is stored.

    Rows of a program that is none of the estimator's, evaluated by the constants of the nearest
    one, have a line of their own: they are further off, and leaving them out would flatter.
    """
    found = []
    for name in names:
        frame = published_reference(name).frame
        for is_own in (True, False):
            rows = frame.filter(pl.col(IS_OWN) == is_own)
            predicted, published = _predicted(run, rows, catalog)
            if len(predicted) == 0:
                continue
            errors = predicted / published - 1
            found.append(
                {
                    "reference": name,
                    "published_group": OWN if is_own else OTHER,
                    "num_rows": len(errors),
                    "num_published": frame.height,
                    "time_mean_absolute_relative_error": float(np.abs(errors).mean()),
                    "time_max_absolute_relative_error": float(np.abs(errors).max()),
                    "time_bias": float(errors.mean()),
                    "is_stored": False,
                }
            )
    return found


def _predicted(run: Run, frame: pl.DataFrame, catalog: Catalog) -> tuple[Array, Array]:
    """Return predicted and published seconds of the rows that the estimator admits."""
    estimator, relation = run.estimator, run.estimator.relations[0]
    empty = np.empty(0)
    if frame.height == 0:
        return empty, empty
    columns, refusals = read_columns(frame, input_names(estimator, relation), relation)
    try:
        resolved, refused = estimator.resolve(relation, columns, catalog, run.mends)
    except RefusedError:
        return empty, empty
    good = np.ones(frame.height, dtype=bool)
    for refusal in (*refusals, *refused):
        good[slice(None) if refusal.row is None else refusal.row] = False
    good &= frame[MEASURED].is_not_null().to_numpy()
    own = {name: values[good] for name, values in resolved.items()}
    layouts = {name: own.pop(name) for name in relation.keys}
    out: dict[str, Array] = {"step_seconds": np.empty(int(good.sum()))}
    if good.any():
        estimator.estimate(relation, own, layouts, run.mends, out)
    published: Array = frame[MEASURED].to_numpy()[good]
    return out["step_seconds"], published
