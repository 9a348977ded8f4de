"""Why a layout is not the best: its rank, where it loses time, the rules that it breaks.

Every layout of the problem is evaluated in memory; nothing is stored. Layouts that do the same
work under different names count separately, as in the views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators import registry
from estimators.contract import Array, Catalog, Mends, RefusedError, Scalar
from estimators.inputs import Broken
from estimators.interval import fit_risk
from warehouse.ask.configuration import read_configuration
from warehouse.ask.defaults import with_model_hint
from warehouse.errors import require_capability
from warehouse.evaluate.inputs import resolve_rows, scalars
from warehouse.evaluate.one import (
    Evaluation,
    show_configuration,
)
from warehouse.evaluate.space import Layouts, OnEvaluated, cells_of_problem, evaluated
from warehouse.limits import FIT_PROBABILITY
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Relation
    from estimators.estimator import Estimator
    from warehouse.ask.configuration import LayoutQuery
    from warehouse.options import ConfigurationOptions

FOLLOWING = ("data_parallel", "num_gpus")
"""Degrees that follow from the others."""

_SAME = 1e-12
"""Relative difference below which two times are equal: a different order of arithmetic changes them
by about 1e-16."""


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a layout breaks, with the values that it reads and the reason in words."""

    rule: str
    column: str
    value: Scalar
    reason: str
    hint: str
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class PartComparison:
    """The seconds of one part of the step, in the layout and in the best layout."""

    name: str
    seconds: float
    best_seconds: float

    @property
    def difference_seconds(self) -> float:
        """Seconds that the layout takes longer."""
        return self.seconds - self.best_seconds


@dataclass(frozen=True)
class Neighbour:
    """A faster layout that fits and differs in one choice; data parallelism follows."""

    changed: str
    old: Scalar
    new: Scalar
    layout: Mapping[str, Scalar]
    step_seconds: float
    memory_bytes: float


@dataclass(frozen=True)
class Diagnosis:
    """A layout compared with every layout of its problem, or the rules that exclude it.

    Attributes
    ----------
    broken
        Rules that exclude the layout; then `shown` is None and the rest is empty.
    rank
        1 + the number of better layouts: the likely ones by time, then the others, the likeliest
        first (macro ``layout_order``); None if the layout does not fit.
    fit_probability, is_likely_to_fit
        Chance of the layout to fit in memory; None if the estimator gives none.
    num_layouts, num_fitting
        Layouts of the problem that a search finds, and those of them that fit. If `is_searched`,
        the layout is one of them.
    parts, memory
        Parts of the step, the largest loss first; bytes of the parts of the memory.
    excess_bytes
        Memory above the capacity; negative if the layout fits.
    neighbours
        For each choice, the fastest layout that differs in it alone, is faster and no riskier; the
        best first.
        If the layout does not fit, layouts that fit.
    """

    broken: tuple[BrokenRule, ...] = ()
    shown: Evaluation | None = None
    rank: int | None = None
    num_layouts: int = 0
    num_fitting: int = 0
    is_searched: bool = False
    best: Mapping[str, Scalar] | None = None
    parts: tuple[PartComparison, ...] = ()
    memory: tuple[tuple[str, float], ...] = ()
    excess_bytes: float = 0.0
    fit_probability: float | None = None
    is_likely_to_fit: bool = True
    neighbours: tuple[Neighbour, ...] = ()


def require_layouts(estimator: Estimator) -> None:
    """Raise unless the estimator searches the layouts of a step."""
    require_capability(estimator, "can_plan", "searches no layouts of a step on a number of GPUs")


def diagnose_pairs(
    database: Path,
    pairs: Sequence[str],
    options: ConfigurationOptions,
    *,
    estimator: str | None = None,
    variant: str | None = None,
    mend: str | None = None,
    fit_probability: float = FIT_PROBABILITY,
    on_evaluated: OnEvaluated | None = None,
) -> tuple[LayoutQuery, Diagnosis]:
    """Return the layout that texts such as ``num_gpus=64`` describe, completed, and its diagnosis.

    The database may be missing. The default batch follows from the tokens of the run.
    """
    chosen = registry.get(estimator or registry.default("why"))
    require_layouts(chosen)
    mends = mends_of_options(chosen, variant, mend)
    query, given, catalog = read_configuration(database, chosen, pairs, options, mends)
    try:
        return query, diagnose(
            *(chosen, query.given, mends, catalog, on_evaluated, _tried(query), fit_probability)
        )
    except RefusedError as error:
        raise with_model_hint(error, chosen, given) from None


def _tried(query: LayoutQuery) -> Mapping[str, str]:
    """Return the layout on which hints are tried.

    A default batch is rounded for each layout; here any number of replicas divides it.
    """
    if not query.is_default_batch or query.batch is None:
        return query.given
    return {**query.given, "global_batch_size": str(query.batch * (query.num_gpus or 1))}


def diagnose(
    estimator: Estimator,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    on_evaluated: OnEvaluated | None = None,
    tried: Mapping[str, str] | None = None,
    least_fit_probability: float = FIT_PROBABILITY,
) -> Diagnosis:
    """Return the diagnosis of the layout that `given` describes, in texts.

    A layout that breaks a rule is diagnosed, with hints that are tried on `tried`, by default the
    same layout. An unknown or faulty input is refused.
    """
    require_layouts(estimator)
    relation = estimator.relations[0]
    try:
        shown = show_configuration(estimator, relation, given, mends, catalog)
    except RefusedError as error:
        broken = broken_rules(estimator, relation, given, mends, catalog, error, tried or given)
        if not broken:
            raise
        return Diagnosis(broken=broken)
    return compared(shown, on_evaluated, least_fit_probability)


def compared(
    shown: Evaluation,
    on_evaluated: OnEvaluated | None = None,
    least_fit_probability: float = FIT_PROBABILITY,
) -> Diagnosis:
    """Return an admitted layout compared with every layout of its problem.

    Every layout fits where the estimator does not model memory. The parts of the step are evaluated
    for the best layout and for the single changes, no others.
    """
    estimator, relation = shown.estimator, shown.relation
    cells = cells_of_problem(estimator, relation, shown.problem, shown.mends)
    choices = estimator.choice_columns
    known = ("step_seconds", "memory_bytes", "fits_memory", "fit_probability")
    columns = (*relation.keys, *(name for name in known if name in relation.outputs))
    space = evaluated(estimator, relation, cells, columns, shown.catalog, on_evaluated)
    layout = {**shown.layout, **{choice: shown.problem[choice] for choice in choices}}
    steps, num_layouts = space.columns["step_seconds"], len(space)
    own_row = _row_of(space, layout)
    fits = space.columns.get("fits_memory", np.ones(num_layouts)).astype(bool)
    seconds = float(shown.results["step_seconds"] or 0)
    if own_row is not None:
        seconds = float(steps[own_row])
    is_faster = fits & (steps < seconds * (1 - _SAME))
    has_room = bool(shown.results.get("fits_memory", True))
    risk = fit_risk(
        space.columns.get("fit_probability", np.ones(num_layouts)), least_fit_probability
    )
    chance = shown.results.get("fit_probability")
    own_risk = 0.0
    if chance is not None:
        own_risk = float(fit_risk(np.array([chance]), least_fit_probability)[0])
    is_surer = fits & (risk < own_risk - _SAME)
    is_as_sure = risk <= own_risk + _SAME
    best_row = _best(space, fits, risk)
    others = _neighbours(space, layout, is_faster & is_as_sure if has_room else fits)
    shown_rows = [*others.values(), *([] if best_row is None else [best_row])]
    parts = space.more_of(shown_rows, estimator.step.parts)
    best = None if best_row is None else {**space.row(best_row), **parts[best_row]}
    memory = {**shown.problem, **shown.results}
    memory_parts = [(part, float(memory[part] or 0)) for part in estimator.step.memory]
    capacity = float(memory.get("hbm_bytes") or 0)
    return Diagnosis(
        shown=shown,
        rank=int((is_surer | (is_faster & is_as_sure)).sum()) + 1 if has_room else None,
        num_layouts=num_layouts,
        num_fitting=int(fits.sum()),
        is_searched=own_row is not None,
        best=best,
        parts=_parts(shown, best, estimator.step.parts),
        memory=tuple(sorted(memory_parts, key=lambda part: -part[1])),
        excess_bytes=float(memory.get("memory_bytes") or 0) - capacity,
        fit_probability=None if chance is None else float(chance),
        is_likely_to_fit=has_room and own_risk == 0,
        neighbours=tuple(
            _neighbour(name, layout[name], {**space.row(row), **parts[row]})
            for name, row in others.items()
        ),
    )


def _row_of(space: Layouts, layout: Mapping[str, Scalar]) -> int | None:
    rows = np.arange(len(space))
    for name, value in layout.items():
        rows = rows[~space.differs(name, value, rows)]
    return int(rows[0]) if len(rows) else None


def _best(space: Layouts, fits: Array, risk: Array) -> int | None:
    """Return the row of the best layout that fits; of equals the one with least memory."""
    rows = np.flatnonzero(fits)
    if not len(rows):
        return None
    rows = rows[risk[rows] == risk[rows].min()]
    steps = space.columns["step_seconds"][rows]
    rows = rows[steps == steps.min()]
    memory = space.columns.get("memory_bytes", space.columns["step_seconds"])[rows]
    return int(rows[np.argmin(memory)])


def _parts(
    shown: Evaluation, best: Mapping[str, Any] | None, times: Sequence[str]
) -> tuple[PartComparison, ...]:
    if best is None:
        return ()
    results = shown.results
    parts = [PartComparison(n, float(results[n] or 0), float(best[n])) for n in times]
    parts = [part for part in parts if part.seconds or part.best_seconds]
    return tuple(sorted(parts, key=lambda part: -part.difference_seconds))


def _neighbours(space: Layouts, layout: Mapping[str, Scalar], candidates: Array) -> dict[str, int]:
    """Return the row of the fastest candidate of each single change, the fastest first.

    A change of one degree may force other columns, which do not count as changes: data
    parallelism takes the GPUs that are left; sequence parallelism needs tensor parallelism; ZeRO
    needs replicas; chunks divide a stage; panels and the placement in domains follow the axes.
    """
    rows = np.flatnonzero(candidates)
    steps = space.columns["step_seconds"]
    differs = {name: space.differs(name, layout[name], rows) for name in layout}
    free = [name for name in layout if name not in FOLLOWING and not name.startswith("nvlink_")]
    changes = np.zeros(len(rows), dtype=np.int64)
    forced_by = {
        "uses_sequence_parallel": ("tensor_parallel",),
        "zero_stage": ("tensor_parallel", "context_parallel", "pipeline_parallel"),
        "virtual_pipeline": ("pipeline_parallel",),
        "summa_panels": ("tensor_parallel", "tensor_parallel_2", "strategy"),
    }
    counted: dict[str, Array] = {}
    for name in free:
        causes = [differs[cause] for cause in forced_by.get(name, ()) if cause in differs]
        follows = np.any(causes, axis=0) if causes else np.zeros(len(rows), dtype=bool)
        counted[name] = differs[name] & ~(follows & _is_forced(space, rows, name))
        changes += counted[name]
    fastest = {}
    for name in free:
        single = rows[(changes == 1) & counted[name]]
        if len(single):
            fastest[name] = int(single[np.argmin(steps[single])])
    return dict(sorted(fastest.items(), key=lambda item: steps[item[1]]))


def _neighbour(name: str, old: Scalar, layout: Mapping[str, Scalar]) -> Neighbour:
    seconds, memory = (layout.get(each) for each in ("step_seconds", "memory_bytes"))
    least = math.nan if memory is None else float(memory)
    return Neighbour(name, old, layout[name], layout, float(seconds or 0), least)


def _is_forced(space: Layouts, rows: Array, name: str) -> Array:
    columns = space.columns
    if name == "uses_sequence_parallel":
        return np.asarray(columns["tensor_parallel"][rows] == 1)
    if name == "zero_stage":
        replicas = columns["data_parallel"][rows] * columns["context_parallel"][rows]
        return np.asarray(replicas == 1)
    if name == "virtual_pipeline":  # a key of one estimator and a choice of another
        return ~space.differs(name, 1, rows)
    return np.ones(len(rows), dtype=bool)


def broken_rules(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    error: RefusedError,
    tried: Mapping[str, str],
) -> tuple[BrokenRule, ...]:
    """Return every rule that a refused layout breaks, with the values that it reads.

    Empty if a refusal in `error` comes from no rule: the input is faulty, not the layout.
    """
    resolved = resolve_rows(estimator, relation, given, catalog, mends)
    if not resolved.columns:
        return ()
    values = scalars(resolved.columns, resolved.columns)
    faults = []
    optional = frozenset(estimator.optional_columns)
    for rule in estimator.rules(mends):
        missing = (need for need in rule.needs if values.get(need) is None)
        if optional.issuperset(missing) and not rule.is_kept(values):
            faults.append(Broken(rule, 0, values))
    rows = resolve_rows(estimator, relation, tried, catalog, mends).given
    hints = estimator.hints(faults, relation, rows, catalog, mends)
    broken = []
    for rule, hint in zip((fault.rule for fault in faults), hints, strict=True):
        read = {need: values[need] for need in rule.needs if values[need] is not None}
        value, reason = values.get(rule.column), rule.reason(values)
        broken.append(BrokenRule(rule.name, rule.column, value, reason, hint, read))
    by_rules = {(rule.column, rule.reason) for rule in broken}
    is_explained = all((each.column, each.reason) in by_rules for each in error.refusals)
    return tuple(broken) if is_explained else ()
