"""The parts of a step with their formulas, and the rates and constants that the step depends on.

Each constant moves alone: up and down by a hundredth, and to the ends of its stated range. All
variations of a configuration are evaluated in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Formula, Scalar
from estimators.limits import limits_of
from warehouse.ask.names import with_known_names
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError, require_capability
from warehouse.evaluate.inputs import estimated, input_names
from warehouse.evaluate.one import read_values
from warehouse.evaluate.profiles import place_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator
    from warehouse.evaluate.one import Shown

NUDGE = 0.01
"""Relative change for an elasticity."""


@dataclass(frozen=True)
class StepPart:
    """One part of a step: seconds, share of the step, formula."""

    name: str
    seconds: float
    share: float
    formula: Formula


@dataclass(frozen=True)
class Sensitivity:
    """The effect of one constant on the step.

    Attributes
    ----------
    value, lowest, highest
        The constant and its stated range; None if the configuration itself gives the constant.
    elasticity
        d ln(step) / d ln(constant); None if the constant is zero or a flag.
    at_lowest, at_highest
        Step seconds at the ends of the range.
    """

    name: str
    value: float
    lowest: float | None
    highest: float | None
    elasticity: float | None
    at_lowest: float | None
    at_highest: float | None
    is_assumed: bool | None
    source: str


@dataclass(frozen=True)
class Explanation:
    """A step as the sum of its parts, and its sensitivities.

    Attributes
    ----------
    likely
        Step seconds if the constants err independently within their ranges: deviations of the
        logarithm add up as squares.
    extreme
        Step seconds with every constant at its fast end, and at its slow end.
    """

    shown: Shown
    step_seconds: float
    parts: tuple[StepPart, ...]
    sensitivities: tuple[Sensitivity, ...]
    likely: tuple[float, float]
    extreme: tuple[float, float]


def require_formulas(estimator: Estimator) -> None:
    """Raise unless the estimator has formulas for the parts of its step.

    Raises
    ------
    UsageError
        If it has none; the hint names those that have.
    """
    require_capability(estimator, "formulas", "has no formulas for the parts of a step")


def explain(shown: Shown, catalog: Catalog) -> Explanation:
    """Return the explanation of a configuration's step.

    Raises
    ------
    UsageError
        If the estimator has no formulas.
    """
    estimator = shown.estimator
    require_formulas(estimator)
    step = float(shown.results["step_seconds"] or 0)
    parts = [
        StepPart(name, seconds, seconds / step, formula)
        for name, formula in estimator.formulas.items()
        for seconds in [float(shown.results[name] or 0)]
    ]
    ranges = constant_ranges(shown, catalog)
    names = (*estimator.rates, *estimator.constants)
    variations: list[dict[str, Scalar]] = []
    for name in names:
        variations += _variations(shown, name, ranges.get(name))
    seconds = iter(_steps(shown, variations))
    found = [_sensitivity(shown, name, ranges.get(name), seconds) for name in names]
    ends = [(s.at_lowest, s.at_highest) for s in found if s.at_lowest and s.at_highest]
    likely = [
        step * math.exp(sign * math.hypot(*(_deviation(pair, step, sign) for pair in ends)))
        for sign in (-1, 1)
    ]
    extreme = _steps(shown, [_worst(found, sign) for sign in (-1, 1)])
    parts.sort(key=lambda part: -part.seconds)
    found.sort(key=_weight)
    return Explanation(
        shown,
        step,
        tuple(parts),
        tuple(found),
        (likely[0], likely[1]),
        (extreme[0], extreme[1]),
    )


def constant_ranges(shown: Shown, catalog: Catalog) -> dict[str, Mapping[str, Scalar]]:
    """Return the row of `step_constant` with the range of each constant that has its default."""
    estimator, values = shown.estimator, shown.problem
    table = catalog.tables.get("step_constant", {})
    if values.get("profile", "default") != "default":
        return {}
    system = (values.get("accelerator"), values.get("framework"))
    found = {}
    for name in estimator.constants:
        # a flag is a choice of the framework, not a quantity that may err
        if isinstance(values[name], bool) or name in shown.given:
            continue
        key = place_of(estimator, catalog, name, system)
        if key is not None:
            found[name] = table[key]
    return found


def _variations(
    shown: Shown, name: str, row: Mapping[str, Scalar] | None
) -> list[dict[str, Scalar]]:
    """Return four changes of a constant: nudged down and up, and to the ends of its range."""
    value = float(shown.problem[name] or 0)
    low, high = value, value
    if row is not None:
        low, high = (float(row[end] or 0) for end in ("lowest_value", "highest_value"))
    nudged = (value * (1 - NUDGE), min(value * (1 + NUDGE), _upper_limit(name)))
    return [{name: each} for each in (*nudged, low, high)]


def _upper_limit(name: str) -> float:
    column = COLUMNS[name]
    return math.inf if column.maximum is None or not limits_of(column) else column.maximum


def _sensitivity(
    shown: Shown, name: str, row: Mapping[str, Scalar] | None, seconds: Iterator[float]
) -> Sensitivity:
    down, up, low, high = (next(seconds) for _ in range(4))
    default = shown.problem[name]
    value = float(default or 0)
    elasticity = None
    if value > 0 and not isinstance(default, bool):
        upper = min(value * (1 + NUDGE), _upper_limit(name))
        elasticity = math.log(up / down) / math.log(upper / (value * (1 - NUDGE)))
    if row is None:
        system = str(shown.problem.get("accelerator") or "given")
        source = "given" if name in shown.given else system
        return Sensitivity(name, value, None, None, elasticity, None, None, None, source)
    return Sensitivity(
        name,
        value,
        float(row["lowest_value"] or 0),
        float(row["highest_value"] or 0),
        elasticity,
        low,
        high,
        bool(row["is_assumed"]),
        str(row["source"]),
    )


def _steps(shown: Shown, changes: Sequence[Mapping[str, Scalar]]) -> list[float]:
    """Return the step seconds of the configuration under each set of changes, as one batch."""
    size = len(changes)
    columns: dict[str, Array] = {}
    for name, value in {**shown.problem, **shown.layout}.items():
        if isinstance(value, str):
            columns[name] = np.full(size, value, dtype=object)
        elif isinstance(value, bool):
            flags = [bool(change.get(name, value)) for change in changes]
            columns[name] = np.array(flags)
        elif value is None:
            columns[name] = np.full(size, np.nan)
        else:
            columns[name] = np.array([float(change.get(name, value) or 0) for change in changes])
    relation = shown.relation
    for name in relation.keys:
        columns[name] = columns[name].astype(relation.column(name).dtype)
    out = estimated(
        shown.estimator, relation, columns, shown.mends, ("step_seconds",), shown.catalog
    )
    return [float(seconds) for seconds in out["step_seconds"].tolist()]


def _deviation(pair: tuple[float | None, float | None], step: float, sign: int) -> float:
    """Return the largest move of the logarithm of the step to one side."""
    return max(0.0, *(sign * math.log((end or step) / step) for end in pair))


def _worst(found: Sequence[Sensitivity], sign: int) -> dict[str, Scalar]:
    """Return every constant at the end of its range that moves the step furthest to one side."""
    ends: dict[str, Scalar] = {}
    for one in found:
        if one.at_lowest is None or one.at_highest is None:
            continue
        low, high = sign * one.at_lowest, sign * one.at_highest
        ends[one.name] = one.lowest if low > high else one.highest
        if one.at_lowest == one.at_highest:
            ends[one.name] = one.value
    return ends


def _weight(one: Sensitivity) -> float:
    swing = 0.0
    if one.at_lowest and one.at_highest:
        swing = abs(math.log(one.at_highest / one.at_lowest))
    return -max(swing, NUDGE * abs(one.elasticity or 0.0))


def best_configuration(
    connection: DuckDBPyConnection, estimator: Estimator, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the fastest stored layout that fits and has the given values, every input as text.

    Raises
    ------
    InputError
        If no stored layout has these values, or none of them fits in memory.
    RefusedError
        If a column cannot hold a value.
    """
    relation = estimator.relations[0]
    view = f"current_{relation.name}"
    described = connection.execute(f"describe {quoted(view)}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    values = read_values(relation, {name: given[name] for name in given if name in types})
    texts = {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and name in estimator.problem_columns
    }
    values |= with_known_names(connection, texts)
    where = " and ".join(f"{quoted(name)} = cast(? as {types[name]})" for name in values)
    names = [name for name in input_names(estimator, relation) if name in types]
    memory = " + ".join(quoted(part) for part in estimator.memory_parts)
    fits = f"{memory} <= hbm_bytes" if memory else "true"
    query = (
        f"select {', '.join(quoted(name) for name in names)}, {fits} from {quoted(view)} "
        f"where {where or 'true'} order by {fits} desc, step_seconds limit 1"
    )
    found = connection.execute(query, list(values.values())).fetchone()
    if found is None:
        raise InputError(
            f"no stored configuration of {estimator.name} has these values",
            "store some with `warehouse sweep`, or leave --best out and give the layout",
        )
    if not found[-1]:
        raise InputError("no stored layout with these values fits in memory", "ask for more GPUs")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in zip(names, found, strict=False)
        if value is not None
    }
