"""Answers that are more than one table: figures as attributes, tables as polars frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from warehouse.database.meanings import meaning_of
from warehouse.plan.document import document
from warehouse.plan.several import none_answered
from warehouse.plan.several_page import ranked

if TYPE_CHECKING:
    from estimators.contract import Scalar
    from warehouse.ask.configuration import LayoutQuery
    from warehouse.ask.explain import Explanation
    from warehouse.ask.why import Diagnosis
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.several import Answered

_TYPES: Mapping[str, type[pl.DataType]] = {
    "int": pl.Int64,
    "float": pl.Float64,
    "bool": pl.Boolean,
    "str": pl.String,
}
"""Kind of a column -> its type in a frame."""

_FLOATS = (
    *("seconds", "best_seconds", "difference_seconds"),
    *("lowest", "highest", "at_lowest", "at_highest"),
)
"""Columns of parts and constants that the data dictionary does not have."""


def frame_of_rows(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], **types: type[pl.DataType]
) -> pl.DataFrame:
    """Return rows as a frame, with the given types or those of the data dictionary.

    A column that neither has takes the type of its values.
    """
    known = {name: meaning_of(name) for name in columns}
    overrides = {name: _TYPES[column.kind] for name, column in known.items() if column is not None}
    overrides |= {name: pl.Float64 for name in _FLOATS if name in columns}
    frame = pl.DataFrame(
        [tuple(row) for row in rows],
        schema=list(columns),
        schema_overrides=overrides | types,
        orient="row",
        infer_schema_length=None,
    )
    return frame.with_columns(pl.col(pl.Null).cast(pl.String))  # notes that no row has


def frame_of_records(
    records: Iterable[Mapping[str, Any]], **types: type[pl.DataType]
) -> pl.DataFrame:
    """Return records as a frame with the columns of all; a missing value is null."""
    listed = list(records)
    names = list(dict.fromkeys(name for record in listed for name in record))
    return frame_of_rows(
        names, ([record.get(name) for name in names] for record in listed), **types
    )


Interval = tuple[float, float]
"""Low and high end."""


@dataclass(frozen=True)
class PlannedRun:
    """A planned training run, in base units.

    Attributes
    ----------
    num_gpus
        The given number of GPUs, or the best one within the limits.
    likely_training_seconds
        Range of the run's steady steps with a tuned program; None of an estimator without one.
    cost_usd, energy_kwh
        Of the best layout; None where no price or power is published.
    layouts
        The best layouts on `num_gpus`, best first: shape (at most `top`, columns).
    counts
        Every number of GPUs that was tried, with the figures of its best layout and a note.
    costs, energies
        Dollars of the best layout by basis of the price, and its energy by grid.
    published_runs
        Published runs of the model, with the GPU-hours that the plan has for their tokens.
    errors
        Errors of the time on the published steps most like the plan, by group.
    document
        All of it as `warehouse plan --json` prints it.
    answers, comparison
        If several questions were asked: their answers, the best first, of which this is the first;
        and a row for each question, with the reason where it has no answer.
    """

    num_gpus: int
    training_seconds: float
    gpu_hours: float
    likely_training_seconds: Interval | None
    cost_usd: float | None
    energy_kwh: float | None
    layouts: pl.DataFrame = field(repr=False)
    counts: pl.DataFrame = field(repr=False)
    costs: pl.DataFrame = field(repr=False)
    energies: pl.DataFrame = field(repr=False)
    published_runs: pl.DataFrame = field(repr=False)
    errors: pl.DataFrame = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    answers: Sequence[PlannedRun] = field(default=(), repr=False)
    comparison: pl.DataFrame = field(default_factory=pl.DataFrame, repr=False)


def compared_runs(answered: Sequence[Answered], top: int) -> PlannedRun:
    """Return the best of several answers, with all of them; one at least must be an answer."""
    rows = frame_of_records(ranked(answered))
    answers = [planned_run(one.answer, top) for one in answered if one.answer is not None]
    if not answers:
        raise none_answered(answered)
    return replace(answers[0], answers=answers, comparison=rows)


def planned_run(answer: PlanAnswer, top: int) -> PlannedRun:
    """Return the answer of a plan with `top` layouts."""
    figures = document(answer, top)
    likely, record = figures["likely_training_seconds"], answer.uncertainty.record
    return PlannedRun(
        num_gpus=answer.num_gpus,
        training_seconds=figures["training_seconds"],
        gpu_hours=figures["gpu_hours"],
        likely_training_seconds=None if likely is None else (likely[0], likely[1]),
        cost_usd=figures["cost_usd"],
        energy_kwh=figures["energy_kwh"],
        layouts=frame_of_records(answer.layouts[:top]),
        counts=frame_of_records(answer.counts),
        costs=frame_of_records(answer.costs),
        energies=frame_of_records(answer.energies),
        published_runs=frame_of_records(answer.published_runs),
        errors=frame_of_records([] if record is None else record.groups),
        document=figures,
    )


@dataclass(frozen=True)
class LayoutDiagnosis:
    """A layout compared with every layout of its problem, or the rules that exclude it.

    Attributes
    ----------
    is_admitted
        Whether no rule excludes the layout. If one does, `rules` has the reason and a hint, and the
        figures are None or 0.
    rank
        1 + the number of faster layouts that fit; None if the layout does not fit.
    excess_bytes
        Memory above the capacity of a GPU; negative if the layout fits.
    inputs
        Every input of the estimate with its value, defaults included.
    best
        The best layout that fits; None if none fits.
    parts, memory
        Parts of the step, the largest loss against the best layout first; parts of the memory.
    changes
        Layouts that differ in one choice and are faster, best first; `old` and `new` are texts.
    """

    is_admitted: bool
    rank: int | None
    num_layouts: int
    num_fitting_layouts: int
    step_seconds: float | None
    best_step_seconds: float | None
    excess_bytes: float
    inputs: Mapping[str, Scalar] = field(repr=False)
    best: Mapping[str, Scalar] | None = field(repr=False)
    parts: pl.DataFrame = field(repr=False)
    memory: pl.DataFrame = field(repr=False)
    changes: pl.DataFrame = field(repr=False)
    rules: pl.DataFrame = field(repr=False)


def layout_diagnosis(query: LayoutQuery, diagnosis: Diagnosis) -> LayoutDiagnosis:
    """Return the diagnosis of a layout."""
    shown, best = diagnosis.shown, diagnosis.best
    inputs = query.problem if shown is None else {**shown.problem, **shown.layout}
    return LayoutDiagnosis(
        is_admitted=shown is not None,
        rank=diagnosis.rank,
        num_layouts=diagnosis.num_layouts,
        num_fitting_layouts=diagnosis.num_fitting,
        step_seconds=None if shown is None else float(shown.results["step_seconds"] or 0),
        best_step_seconds=None if best is None else float(str(best["step_seconds"])),
        excess_bytes=diagnosis.excess_bytes,
        inputs=dict(inputs),
        best=best,
        parts=frame_of_rows(
            ("part", "seconds", "best_seconds", "difference_seconds"),
            [(p.name, p.seconds, p.best_seconds, p.difference_seconds) for p in diagnosis.parts],
        ),
        memory=frame_of_rows(("part", "memory_bytes"), diagnosis.memory),
        changes=frame_of_rows(
            ("changed", "old", "new", "step_seconds", "memory_bytes"),
            [
                (to.changed, str(to.old), str(to.new), to.step_seconds, to.memory_bytes)
                for to in diagnosis.neighbours
            ],
        ),
        rules=frame_of_rows(
            ("rule", "column", "value", "reason", "hint"),
            [
                (rule.rule, rule.column, str(rule.value), rule.reason, rule.hint)
                for rule in diagnosis.broken
            ],
        ),
    )


@dataclass(frozen=True)
class StepExplanation:
    """A step as the sum of its parts, and the constants that it depends on.

    Attributes
    ----------
    likely_step_seconds
        Interval that holds nine steps in ten, by independent errors of the constants.
    extreme_step_seconds
        The step with every constant at its fast end, and at its slow end.
    constants
        Each constant with its range, the elasticity of the step, the step at both ends of the range
        and the source; the one whose range moves the step most comes first.
    differing_columns
        Columns in which the stored problems differ that were searched for the fastest layout.
    """

    step_seconds: float
    likely_step_seconds: Interval
    extreme_step_seconds: Interval
    inputs: Mapping[str, Scalar] = field(repr=False)
    results: Mapping[str, Scalar] = field(repr=False)
    parts: pl.DataFrame = field(repr=False)
    constants: pl.DataFrame = field(repr=False)
    differing_columns: tuple[str, ...] = field(repr=False)


def step_explanation(explanation: Explanation) -> StepExplanation:
    """Return the explanation of a step."""
    shown = explanation.shown
    return StepExplanation(
        step_seconds=explanation.step_seconds,
        likely_step_seconds=explanation.likely,
        extreme_step_seconds=explanation.extreme,
        inputs={**shown.problem, **shown.layout},
        results=dict(shown.results),
        parts=frame_of_rows(
            ("part", "seconds", "step_fraction", "formula", "source"),
            [
                (p.name, p.seconds, p.share, p.formula.text, p.formula.source)
                for p in explanation.parts
            ],
        ),
        constants=frame_of_records(map(vars, explanation.sensitivities), value=pl.Float64),
        differing_columns=explanation.differing,
    )
