"""A plan as one object for programs, in base units.

Its schema, which `warehouse schema --json-schema plan` prints, follows from the types here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.database.stamp import reference_version
from warehouse.plan.accuracy import fit_probability_of
from warehouse.plan.published_runs import COLUMNS as PUBLISHED
from warehouse.plan.queries import EXPERT_COLUMNS
from warehouse.plan.track_record import TrackRecord
from warehouse.show.json_schema import Rows, as_json
from warehouse.show.units import STEP_PARTS

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun

Line = Mapping[str, Any]

LAYOUTS = (
    *(*LAYOUT_COLUMNS, "step_seconds", "training_seconds", "gpu_hours", "mfu"),
    *("tokens_per_second", "memory_bytes", "hbm_bytes", "headroom_bytes", "fit_probability"),
    *("is_likely_to_fit", *STEP_PARTS),
)
"""Columns of a layout; estimators with an interval also have its ends."""

_COUNTS = (
    *("num_gpus", "problem_id", "step_seconds", "training_seconds", "gpu_hours", "cost_usd"),
    *("energy_kwh", "power_watts", "mfu", "memory_bytes", "fit_probability"),
    *("is_likely_to_fit", "note"),
)

Layout = Annotated[Line, Rows(LAYOUTS)]
Layouts = Annotated[Sequence[Line], Rows(LAYOUTS)]


@dataclass(frozen=True)
class PlanQuestion:
    """The question, with the defaults that it took."""

    estimator: str
    variant: str
    model: str | None
    accelerator: str
    dataset_tokens: float
    critical_batch_tokens: float | None
    global_batch_size: int
    is_default_batch: bool
    seq_len: int
    shape: Mapping[str, Any]
    nvlink_size: int | None
    framework: str | None
    inputs: Mapping[str, Any]
    held: Mapping[str, Any]
    headroom_bytes: float
    goodput: float
    basis: str
    usd_per_gpu_hour: float | None
    pue: float | None
    usd_per_kwh: float | None
    kg_co2e_per_kwh: Sequence[float] | None
    watts_per_gpu: float | None
    budget_usd: float | None
    days: float | None
    max_mw: float | None


@dataclass(frozen=True)
class SweptSize:
    """How much was evaluated for the plan."""

    cells: int
    rows: int


@dataclass(frozen=True)
class PlanDocument:
    """A planned run. The time is `training_seconds`, that of steady steps `steady_seconds`.

    It trains on `trained_tokens`: those of the question, or with a critical batch those that its
    batch takes.
    """

    question: PlanQuestion
    reference_data: str
    swept: SweptSize
    num_gpus: int
    num_idle_gpus: int
    problem_id: int
    trained_tokens: float
    training_seconds: float
    steady_seconds: float
    likely_training_seconds: Sequence[float] | None
    extreme_training_seconds: Sequence[float] | None
    gpu_hours: float
    cost_usd: float | None
    cost_basis: str
    energy_kwh: float | None
    power_watts: float | None
    headroom_bytes: float | None
    fit_probability: float | None
    own_memory_bias: float | None
    limited_by: str
    layouts: Layouts
    alternatives: Annotated[Sequence[Line], Rows(("name", *LAYOUTS))]
    other_kind: Layout | None
    expert_degrees: Annotated[Sequence[Line], Rows(EXPERT_COLUMNS)]
    batches: Annotated[Sequence[Line], Rows(("global_batch_size", "training_seconds"))]
    batch_note: str
    counts: Annotated[Sequence[Line], Rows(("num_gpus", "problem_id", "note"), _COUNTS)]
    costs: Annotated[Sequence[Line], Rows(("basis", "year", "usd_per_gpu_hour", "cost_usd"))]
    energies: Annotated[Sequence[Line], Rows(("grid", "energy_kwh", "power_watts", "kg_co2e"))]
    published_runs: Annotated[Sequence[Line], Rows((*PUBLISHED, "planned_share", "source"))]
    unlike_published: Sequence[str]
    own_runs: Annotated[Sequence[Line], Rows(("reference", "accelerator", "framework", "why_not"))]
    track_record: TrackRecord | None
    memory_errors: Annotated[Sequence[Line], Rows(("reference", "num_rows", "memory_bias"))]
    queries: Mapping[str, str]


@dataclass(frozen=True)
class Unanswered:
    """A question without an answer, and why; `num_gpus` is the GPU count that was asked for."""

    question: PlanQuestion
    num_gpus: int | None
    error: str
    hint: str


@dataclass(frozen=True)
class PlanAnswers:
    """The answers of several questions, the best first; questions without an answer are last."""

    answers: Sequence[PlanDocument | Unanswered]


PlanOutput = PlanDocument | PlanAnswers
"""The JSON of `warehouse plan`: one answer, or those of several questions."""


def document(answer: PlanAnswer, top: int) -> dict[str, Any]:
    """Return the plan with `top` layouts as one JSON-able object."""
    run, best, sure = answer.run, answer.best, answer.uncertainty
    energy = answer.energies[0] if answer.energies else {}
    steps = best["training_seconds"] / best["step_seconds"]
    found = PlanDocument(
        question=question_document(run),
        reference_data=reference_version(),
        swept=SweptSize(
            sum(sweep.missing_cells for sweep in answer.sweeps),
            sum(sweep.missing_rows for sweep in answer.sweeps),
        ),
        num_gpus=answer.num_gpus,
        num_idle_gpus=answer.num_idle_gpus,
        problem_id=answer.problem_id,
        trained_tokens=run.tokens,
        training_seconds=best["training_seconds"],
        steady_seconds=best["training_seconds"],
        likely_training_seconds=sure.likely and [steps * end for end in sure.likely],
        extreme_training_seconds=sure.extreme and [steps * end for end in sure.extreme],
        gpu_hours=best["gpu_hours"],
        cost_usd=answer.own_count["cost_usd"],
        cost_basis=run.terms.price_basis,
        energy_kwh=energy.get("energy_kwh"),
        power_watts=energy.get("power_watts"),
        headroom_bytes=best["headroom_bytes"],
        fit_probability=sure.fit_probability,
        own_memory_bias=sure.own_memory_bias,
        limited_by=max(
            (name for name in STEP_PARTS if best[name] is not None), key=lambda name: best[name]
        ),
        layouts=answer.layouts[:top],
        alternatives=[
            {
                "name": name,
                **line,
                "fit_probability": fit_probability_of(run, line, sure.memory_factor),
            }
            for name, line in answer.alternatives
        ],
        other_kind=answer.other_kind,
        expert_degrees=[
            {name: line[name] for name in EXPERT_COLUMNS} for line in answer.expert_degrees
        ],
        batches=answer.batches,
        batch_note=answer.batch_note,
        counts=answer.counts,
        costs=answer.costs,
        energies=answer.energies,
        published_runs=answer.published_runs,
        unlike_published=sure.unlike,
        own_runs=sure.own_runs,
        track_record=sure.record,
        memory_errors=sure.memory,
        queries=answer.queries,
    )
    plain: dict[str, Any] = as_json(found)
    return plain


def question_document(run: TrainingRun) -> PlanQuestion:
    """Return the question of a run, with the defaults that it took."""
    request, terms, values = run.request, run.terms, run.problem
    known: dict[str, Any] = {
        name: values.get(name)
        for name in ("model", "accelerator", "seq_len", "nvlink_size", "framework")
    }
    return PlanQuestion(
        **known,
        estimator=run.estimator.name,
        variant=run.variant,
        dataset_tokens=request.tokens,
        critical_batch_tokens=None if run.critical_batch is None else run.critical_batch.tokens,
        global_batch_size=run.batch,
        is_default_batch=run.is_default_batch,
        shape={name: values[name] for name in run.estimator.shape_columns if name in values},
        inputs=request.inputs,
        held=request.held,
        headroom_bytes=request.headroom_bytes,
        goodput=run.goodput,
        basis=terms.price_basis,
        usd_per_gpu_hour=terms.price,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
        kg_co2e_per_kwh=[carbon.value for carbon in terms.carbons] or None,
        watts_per_gpu=terms.watts,
        **vars(request.limits),
    )
