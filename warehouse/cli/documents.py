"""The JSON that each command prints, as types, from which its schema follows.

A key that goes keeps its place for one more minor version (docs/stability.md). Only then, or where
a key gets another type or meaning, the number of the command in `DOCUMENTS` goes up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

from warehouse.ask import cost, rank
from warehouse.cli import calibrate, config, explain, plan, plot, status, sweep
from warehouse.measure.compare import SHOWN as MEASURED
from warehouse.plan.document import Line, PlanOutput
from warehouse.show.json_schema import Rows, Schema, schema_of

Values = Mapping[str, Any]
"""Columns with their values: which ones depends on the estimator."""

AnyRows = Annotated[Sequence[Line], Rows(())]
"""Rows of a query or a view, with the columns that it has."""

_THING = ("name", "kind", "role", "layer", "what", "grain", "key", "rows")


class ExcludedLayout(TypedDict):
    """A layout that rules exclude, and these rules."""

    question: Values
    reference_data: str
    is_admitted: bool
    rules: Annotated[Sequence[Line], Rows(("rule", "column", "value", "reason", "hint", "values"))]


class ComparedLayout(TypedDict):
    """A layout next to the best one of its problem."""

    question: Values
    reference_data: str
    is_admitted: bool
    inputs: Values
    results: Values
    is_searched: bool
    rank: int | None
    num_layouts: int
    num_fitting_layouts: int
    fits_memory: bool
    excess_bytes: float
    memory: Mapping[str, float]
    best: Values | None
    loss_seconds: float | None
    loss_fraction: float | None
    parts: Annotated[
        Sequence[Line], Rows(("name", "seconds", "best_seconds", "difference_seconds"))
    ]
    neighbours: Annotated[
        Sequence[Line], Rows(("changed", "old", "new", "layout", "step_seconds", "memory_bytes"))
    ]


class ExplainedStep(TypedDict):
    """A step as the sum of its parts, and the constants that it depends on."""

    reference_data: str
    inputs: Values
    results: Values
    step_seconds: float
    likely_step_seconds: Sequence[float]
    extreme_step_seconds: Sequence[float]
    differing_columns: Sequence[str]
    parts: Annotated[Sequence[Line], Rows(explain.ROWS)]
    constants: Annotated[
        Sequence[Line], Rows(("name", "value", "lowest", "highest", "elasticity", "source"))
    ]


class ShownConfiguration(TypedDict):
    """One configuration with its estimate."""

    reference_data: str
    estimator: str
    relation: str
    mends: Sequence[str]
    given: Sequence[str]
    inputs: Values
    results: Values


class FittedConstants(TypedDict):
    """Constants fitted to measured steps."""

    profile: str | None
    reference: str
    row_filters: Sequence[str]
    constants: AnyRows
    errors: AnyRows
    rows: AnyRows
    others: AnyRows
    notes: Sequence[str]


class FittedKernels(TypedDict):
    """Constants fitted to timed kernels."""

    profile: str | None
    files: Sequence[str]
    accelerator: str
    is_sustained: bool
    num_rows: int
    num_used: int
    kinds: AnyRows
    constants: AnyRows
    errors: AnyRows
    left_out: Mapping[str, int]
    notes: Sequence[str]


class ValidatedDatabase(TypedDict):
    """Checks that failed, and the rows of the views that compare estimates with measurements."""

    reference_data: str
    failed_checks: Sequence[str]
    published_accuracy: AnyRows
    interval_coverage: AnyRows
    published_comparison: AnyRows
    training_time_comparison: AnyRows
    training_time_at_published_rate: AnyRows
    megatron_layout_rank: AnyRows


class StoredStatus(TypedDict):
    """What a database holds."""

    database: str
    reference_data: str
    bytes: int
    facts: int
    running: None
    leftovers: Mapping[str, int]
    studies: Annotated[Sequence[Line], Rows(status.STUDIES)]
    plan_cache: Mapping[str, int]
    relations: Annotated[Sequence[Line], Rows(status.RELATIONS)]


class StudyStatus(TypedDict):
    """One stored study."""

    study: str
    estimator: str
    study_file: str | None
    created_at: str
    evaluated_at: str | None
    num_cells: int
    num_cells_done: int
    num_cells_without_rows: int
    num_rows: int
    superseded_rows: int
    estimator_versions: Sequence[int]
    variants: Sequence[str]
    definition: Values


class SweepStatus(TypedDict):
    """How far a running sweep is."""

    database: str
    bytes: int | None
    running: Annotated[Line, Rows(status.PROGRESS)]


class ListedSchema(TypedDict):
    """The tables, views and macros; `database` is null for those of the package."""

    database: str | None
    things: Annotated[Sequence[Line], Rows(_THING)]


class FoundSchema(TypedDict):
    """A table, view or macro, a column, or both, of one name."""

    database: str | None
    thing: Annotated[Line, Rows((*_THING, "columns", "arguments"))] | None
    column: Annotated[Line, Rows(("name", "meaning", "unit", "source", "choices", "uses"))] | None


class Document(NamedTuple):
    """The type of the JSON of a command, and the number of its version."""

    kind: Any
    version: int = 1


def _rows(*columns: str, optional: Sequence[str] = ()) -> Document:
    return Document(Annotated[Sequence[Line], Rows(columns, optional)])


_RANKED = (*rank.PROBLEM_NAMES, *rank.LAYOUT, *rank.RESULT)

DOCUMENTS = {
    "plan": Document(PlanOutput | Annotated[Sequence[Line], Rows(plan.STEPS)]),
    "why": Document(ComparedLayout | ExcludedLayout),
    "rank": _rows(*_RANKED, optional=(*rank.QUESTION, "rank", "rank_by_time")),
    "cost": _rows(*cost.COST_COLUMNS),
    "energy": _rows(*cost.ENERGY_COLUMNS),
    "explain": Document(ExplainedStep),
    "operations": _rows("problem_id", "operation", "operation_seconds", "step_fraction"),
    "show": Document(ShownConfiguration | AnyRows),
    "plot": _rows(*plot.LISTED),
    "measure": _rows(*MEASURED),
    "calibrate": Document(FittedConstants | FittedKernels),
    "profiles": _rows(*calibrate.PROFILES),
    "validate": Document(ValidatedDatabase),
    "sweep": _rows(*sweep.SIZES[2:6], optional=sweep.SIZES),
    "sql": Document(AnyRows),
    "schema": Document(ListedSchema | FoundSchema),
    "config": _rows(*config.COLUMNS),
    "status": Document(StoredStatus | StudyStatus | SweepStatus),
}
"""Command -> its JSON: every command that has `--format json`."""


def document_schema(command: str) -> Schema:
    """Return the schema of the JSON of a command; its ``$id`` ends in the number of the version."""
    kind, version = DOCUMENTS[command]
    schema = schema_of(kind)
    named = {"$id": f"urn:training-warehouse:{command}:{version}"}
    return {"$schema": schema.pop("$schema"), **named, "title": f"warehouse {command}", **schema}
