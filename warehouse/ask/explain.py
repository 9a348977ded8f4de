"""Why a step takes as long as it does: its parts, and the constants that the answer hangs on.

Every constant is moved by itself, up and down and to the ends of its stated range, and the step
evaluated anew, all in one batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import PUBLISHED, Array, Catalog, Formula, Scalar
from estimators.limits import limits_of
from estimators.registry import get
from estimators.training_step.formulas import FORMULAS
from estimators.training_step.inputs import CONSTANTS, HARDWARE, places
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError
from warehouse.evaluate.inputs import input_names

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.evaluate.one import Shown

NUDGE = 0.01
"""Relative change for an elasticity."""

RATES = tuple(name for name in HARDWARE if name.endswith("_per_second"))


_VIEW = "current_training_step"


@dataclass(frozen=True)
class Part:
    """A part of the step: seconds, share of the step, how it is made."""

    name: str
    seconds: float
    share: float
    formula: Formula


@dataclass(frozen=True)
class Sensitivity:
    """What one constant does to the step.

    Attributes
    ----------
    value, lowest, highest
        The constant, and its stated range; None where the configuration itself gives it.
    elasticity
        d ln(step) / d ln(constant); None where the constant is zero or a flag.
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
    """A configuration taken apart.

    Attributes
    ----------
    likely
        Step seconds if every constant errs within its range, each on its own: deviations in
        the logarithm add up as independent ones do.
    extreme
        Step seconds with all constants at the end that is fast, and that is slow.
    """

    shown: Shown
    step_seconds: float
    parts: tuple[Part, ...]
    sensitivities: tuple[Sensitivity, ...]
    likely: tuple[float, float]
    extreme: tuple[float, float]


def explain(shown: Shown, catalog: Catalog) -> Explanation:
    """Return a configuration's step taken apart.

    Parameters
    ----------
    shown
        The configuration as resolved, of estimator training_step.
    """
    step = float(shown.results["step_seconds"] or 0)
    parts = [
        Part(name, seconds, seconds / step, formula)
        for name, formula in FORMULAS.items()
        for seconds in [float(shown.results[name] or 0)]
    ]
    records = constant_records(shown, catalog)
    asked: list[dict[str, Scalar]] = []
    names = (*RATES, *CONSTANTS)
    for name in names:
        asked += _moved(shown, name, records.get(name))
    seconds = iter(_steps(shown, asked))
    found = [_sensitivity(shown, name, records.get(name), seconds) for name in names]
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


def constant_records(shown: Shown, catalog: Catalog) -> dict[str, Mapping[str, Scalar]]:
    """Return the row of `step_constant` that each constant's value is from, where it is one."""
    table = catalog.tables.get("step_constant", {})
    values = shown.problem
    ends = places(catalog, values["framework"], values["accelerator"])
    found = {}
    for name in CONSTANTS:
        record = next((table[name + end] for end in ends if name + end in table), None)
        # a flag is a choice of the framework, not a quantity that may err
        if isinstance(values[name], bool) or name in shown.given:
            continue
        if record is not None and values["profile"] == "default":
            found[name] = record
    return found


def _moved(shown: Shown, name: str, record: Mapping[str, Scalar] | None) -> list[dict[str, Scalar]]:
    """Return four configurations: the constant nudged down and up, and at its range's ends."""
    value = float(shown.problem[name] or 0)
    limit = _upper_limit(name)
    low, high = value, value
    if record is not None:
        low, high = (float(record[end] or 0) for end in ("lowest_value", "highest_value"))
    nudged = (value * (1 - NUDGE), min(value * (1 + NUDGE), limit))
    return [{name: each} for each in (*nudged, low, high)]


def _upper_limit(name: str) -> float:
    from estimators.columns import COLUMNS

    column = COLUMNS[name]
    return math.inf if column.maximum is None or not limits_of(column) else column.maximum


def _sensitivity(
    shown: Shown,
    name: str,
    record: Mapping[str, Scalar] | None,
    seconds: Iterator[float],
) -> Sensitivity:
    down, up, low, high = (next(seconds) for _ in range(4))
    given = shown.problem[name]
    value = float(given or 0)
    elasticity = None
    if value > 0 and not isinstance(given, bool):
        upper = min(value * (1 + NUDGE), _upper_limit(name))
        elasticity = math.log(up / down) / math.log(upper / (value * (1 - NUDGE)))
    if record is None:
        source = "given" if name in shown.given else str(shown.problem["accelerator"] or "given")
        return Sensitivity(name, value, None, None, elasticity, None, None, None, source)
    return Sensitivity(
        name,
        value,
        float(record["lowest_value"] or 0),
        float(record["highest_value"] or 0),
        elasticity,
        low,
        high,
        bool(record["is_assumed"]),
        str(record["source"]),
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
    keys = shown.relation.keys
    layouts: dict[str, Array] = {
        n: columns.pop(n).astype(shown.relation.column(n).dtype) for n in keys
    }
    out: dict[str, Array] = {"step_seconds": np.empty(size)}
    shown.estimator.estimate(shown.relation, columns, layouts, PUBLISHED, out)
    return [float(seconds) for seconds in out["step_seconds"].tolist()]


def _deviation(pair: tuple[float | None, float | None], step: float, sign: int) -> float:
    """Return how far the logarithm moves at most to one side."""
    return max(0.0, *(sign * math.log((end or step) / step) for end in pair))


def _worst(found: Sequence[Sensitivity], sign: int) -> dict[str, Scalar]:
    """Return every constant at the end of its range that moves the step to one side most."""
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


def best_configuration(connection: DuckDBPyConnection, given: Mapping[str, str]) -> dict[str, str]:
    """Return the fastest stored layout that fits and has the values given, every input as text.

    Raises
    ------
    InputError
        If nothing stored has them, or nothing that fits in memory.
    """
    estimator = get("training_step")
    relation = estimator.relations[0]
    described = connection.execute(f"describe {_VIEW}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    where = " and ".join(f"{quoted(n)} = cast(? as {types[n]})" for n in given if n in types)
    names = [name for name in input_names(estimator, relation) if name in types]
    fits = (
        "weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes + logits_bytes "
        "+ gathered_bytes + framework_bytes <= hbm_bytes"
    )
    query = (
        f"select {', '.join(quoted(name) for name in names)}, {fits} from {_VIEW} "
        f"where {where or 'true'} order by {fits} desc, step_seconds limit 1"
    )
    found = connection.execute(query, [given[name] for name in given if name in types]).fetchone()
    if found is None:
        raise InputError(
            "no stored configuration of training_step has these values",
            "store some with `warehouse sweep`, or leave --best out and give the layout",
        )
    if not found[-1]:
        raise InputError("no stored layout of that fits in memory", "ask for more GPUs")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in zip(names, found, strict=False)
        if value is not None
    }
