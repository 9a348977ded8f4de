"""How sure a plan is: the interval of its step, and the estimator's error on published steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warehouse.ask.explain import explain
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import rows_as_dicts
from warehouse.evaluate.one import show_configuration
from warehouse.plan_errors import errors_of, memory_query, stored_query, unlike_published

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.plan.question import Run

EXPLAINED = "training_step"
"""The estimator whose constants have ranges."""


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
        Errors of the rate, and of the step's time, by table of published steps and group of its
        rows, each with how many rows it is of and how many were published.
    memory
        Errors of the memory by table of one's own runs; empty where none was measured.
    unlike
        In which ways no published step is like the run.
    queries
        What memory, and those errors that were stored, were asked with.
    note
        What is compared in part or not at all, and how to get it.
    """

    likely: tuple[float, float] | None
    extreme: tuple[float, float] | None
    explain_command: str
    errors: Sequence[Mapping[str, Any]]
    memory: Sequence[Mapping[str, Any]]
    unlike: Sequence[str]
    queries: Mapping[str, str]
    note: str


def sureness(
    run: Run, connection: DuckDBPyConnection, layout: Mapping[str, Any], num_gpus: int
) -> Sureness:
    """Return how far the estimate of a layout may be off."""
    catalog = packaged_catalog()
    likely = extreme = None
    command = ""
    if run.estimator.name == EXPLAINED:
        given = _pairs(run, layout, num_gpus)
        command = "warehouse explain " + " ".join(_shell(k, v) for k, v in given.items())
        relation = run.estimator.relations[0]
        shown = show_configuration(run.estimator, relation, given, run.mends, catalog)
        if np.isclose(float(shown.results["step_seconds"] or 0), layout["step_seconds"]):
            found = explain(shown, catalog)
            likely, extreme = found.likely, found.extreme
    asked = {"accuracy": stored_query(run), "memory_accuracy": memory_query(run)}
    stored, memory = (rows_as_dicts(connection, query) for query in asked.values())
    errors, is_stored, note = errors_of(run, stored, catalog)
    if not is_stored:
        del asked["accuracy"]
    return Sureness(
        likely, extreme, command, errors, memory, unlike_published(run, catalog), asked, note
    )


def _pairs(run: Run, layout: Mapping[str, Any], num_gpus: int) -> dict[str, str]:
    """Return the layout as `explain` takes it."""
    relation = run.estimator.relations[0]
    model = run.facts.problem["model"]
    choices = {n: v for n, v in run.asked.held.items() if n in run.estimator.choice_columns}
    wanted = {
        **({} if model is None else {"model": model}),
        "accelerator": run.facts.problem["accelerator"],
        **run.asked.inputs,
        **choices,
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
