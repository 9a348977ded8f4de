"""The parts of a step with their formulas, and the rates and constants that the step depends on.

Each constant moves alone: up and down by a hundredth, and to the ends of its stated range.
`estimators.interval` makes the interval from these moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Formula, Scalar
from estimators.interval import (
    Moves,
    combined,
    constant_spreads,
    has_interval,
    interval_term,
    moved,
    place_of,
    steps_under,
)
from warehouse.ask.configuration import read_configuration
from warehouse.ask.defaults import definitions_of
from warehouse.ask.fastest_stored import best_configuration, differing_columns
from warehouse.ask.rank import PROBLEM_NAMES, QUESTION
from warehouse.database.connection import open_for_read
from warehouse.errors import require_capability
from warehouse.evaluate.one import show_configuration
from warehouse.evaluate.profiles import COLUMN as PROFILE
from warehouse.evaluate.profiles import catalog_of, profiled_catalog
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.estimator import Estimator
    from warehouse.evaluate.one import Evaluation
    from warehouse.launch.read import LaunchFile
    from warehouse.options import ConfigurationOptions

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
    lowest, highest
        The stated range, with the step seconds `at_lowest` and `at_highest`. Both ends are the
        value if the default is certain, and None if the configuration itself gives the constant.
    elasticity
        d ln(step) / d ln(constant); None if the constant is zero or a flag.
    cause
        Constants with the same cause err together.
    other_share
        Share of all runs whose program makes the other choice; None for a range.
    """

    name: str
    value: float
    lowest: float | None = None
    highest: float | None = None
    elasticity: float | None = None
    at_lowest: float | None = None
    at_highest: float | None = None
    cause: str = ""
    other_share: float | None = None
    is_assumed: bool | None = None
    source: str = ""


@dataclass(frozen=True)
class Change:
    """The relative change of the step with a constant at both ends of its range."""

    constant: Sensitivity
    lowest: float
    highest: float

    @property
    def size(self) -> float:
        """Distance between both changes."""
        return abs(self.highest - self.lowest)


@dataclass(frozen=True)
class Explanation:
    """A step as the sum of its parts, and its sensitivities.

    Attributes
    ----------
    likely
        Interval of the step's seconds; see `estimators.interval`.
    extreme
        Step seconds with every constant at its fast end, and at its slow end.
    differing
        Columns in which the stored problems differ that were searched for the fastest layout.
    """

    shown: Evaluation
    step_seconds: float
    parts: tuple[StepPart, ...]
    sensitivities: tuple[Sensitivity, ...]
    likely: tuple[float, float]
    extreme: tuple[float, float]
    differing: tuple[str, ...] = ()
    batch_rule: str = ""
    launch: LaunchFile | None = None

    @property
    def changes(self) -> list[Change]:
        """Relative changes of the step that single constants make, the largest first."""
        changes = [
            Change(
                effect,
                effect.at_lowest / self.step_seconds - 1,
                effect.at_highest / self.step_seconds - 1,
            )
            for effect in self.sensitivities
            if effect.at_lowest and effect.at_highest and effect.at_lowest != effect.at_highest
        ]
        return sorted(changes, key=lambda change: (-change.size, change.constant.name))


def require_formulas(estimator: Estimator) -> None:
    """Raise unless the estimator has formulas for the parts of its step."""
    require_capability(estimator, "step.formulas", "has no formulas for the parts of a step")


def explain_pairs(
    database: Path,
    pairs: Sequence[str],
    options: ConfigurationOptions,
    *,
    best: bool = False,
    estimator: str | None = None,
    variant: str | None = None,
    mend: str | None = None,
) -> Explanation:
    """Return the explanation of the step that texts such as ``num_gpus=64`` describe.

    With `best` it is the fastest stored layout that has these values. Without it the database may
    be missing.
    """
    chosen = registry.get(estimator or registry.default("explain"))
    require_formulas(chosen)
    relation = chosen.relations[0]
    mends = mends_of_options(chosen, variant, mend)
    query, given, catalog = read_configuration(database, chosen, pairs, options, mends)
    configuration = query.given
    differing: tuple[str, ...] = ()
    if best:
        with open_for_read(database) as connection:
            configuration = best_configuration(connection, chosen, given)
            names = (*PROBLEM_NAMES, *QUESTION)
            differing = differing_columns(connection, chosen, given, names)
        defined = definitions_of(database, configuration, options.catalog)
        catalog = profiled_catalog(database, chosen, options.profile, defined)
    # stored constants that equal the defaults are defaults: only what the user gives is certain
    shown = show_configuration(chosen, relation, configuration, mends, catalog, given)
    rule = "" if best else query.rule
    return replace(
        explain(shown, catalog, given), differing=differing, batch_rule=rule, launch=query.launch
    )


def explain(
    shown: Evaluation, catalog: Catalog, given: Collection[str] | None = None
) -> Explanation:
    """Return the explanation of a configuration's step.

    Constants in `given` are known and have no range; by default all that were given.
    """
    estimator = shown.estimator
    require_formulas(estimator)
    catalog = catalog_of(catalog, shown.problem.get(PROFILE), estimator)
    step = float(shown.results["step_seconds"] or 0)
    parts = [
        StepPart(name, seconds, seconds / step, formula)
        for name, formula in estimator.step.formulas.items()
        for seconds in [float(shown.results[name] or 0)]
    ]
    parts.sort(key=lambda part: -part.seconds)
    known = shown.given if given is None else frozenset(given)
    columns = _columns(shown)
    of_row = (estimator, shown.relation, columns, shown.mends, catalog)
    moves = moved(*of_row, constant_spreads(estimator, columns, catalog, known))[1]
    moves_of = {each.spread.name: each for each in moves}

    def steps(changes: Iterable[Mapping[str, float]]) -> list[float]:
        """Return the step seconds under each set of changes."""
        arrays = [{name: np.array([value]) for name, value in values.items()} for values in changes]
        return [float(seconds[0]) for seconds in steps_under(*of_row, arrays)]

    names = (*estimator.step.rates, *estimator.constants.names)
    nudged = iter(steps(_nudged(shown, name, sign) for name in names for sign in (-1, 1)))
    sensitivities = [
        _sensitivity(shown, name, catalog, known, moves_of.get(name), next(nudged), next(nudged))
        for name in names
    ]
    sensitivities.sort(key=_weight)
    likely = step, step
    if has_interval(estimator, shown.relation):
        share = estimator.constants.independent_share(shown.relation, columns, shown.mends, catalog)
        low, high = combined(np.array([step]), moves, share, catalog)
        likely = float(low[0]), float(high[0])
    fast, slow = steps(_ends(moves))
    if moves:
        slow *= 1 + interval_term(catalog, "left_out")[2]
    extreme = min(fast, likely[0]), max(slow, likely[1])
    return Explanation(shown, step, tuple(parts), tuple(sensitivities), likely, extreme)


def _ends(moves: Iterable[Moves]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the constants that make the step fastest, and slowest: an end, or the default."""
    fast_ends: dict[str, float] = {}
    slow_ends: dict[str, float] = {}
    for each in moves:
        low, high = float(each.spread.lowest[0]), float(each.spread.highest[0])
        at_low, at_high = float(each.at_lowest[0]), float(each.at_highest[0])
        if min(at_low, at_high) < 0:
            fast_ends[each.spread.name] = low if at_low < at_high else high
        if max(at_low, at_high) > 0:
            slow_ends[each.spread.name] = low if at_low > at_high else high
    return fast_ends, slow_ends


def _sensitivity(
    shown: Evaluation,
    name: str,
    catalog: Catalog,
    given: frozenset[str],
    moves: Moves | None,
    down: float,
    up: float,
) -> Sensitivity:
    """Return the effect of one constant, from the step with a little less and a little more."""
    default = shown.problem[name]
    value = float(default or 0)
    elasticity = None
    if value > 0 and not isinstance(default, bool):
        upper = min(value * (1 + NUDGE), _upper_limit(name))
        elasticity = math.log(up / down) / math.log(upper / (value * (1 - NUDGE)))
    system = str(shown.problem.get("accelerator") or "given")
    source = "given" if name in given else system
    effect = Sensitivity(name, value, elasticity=elasticity, cause=name, source=source)
    row = None if name in given else _default(shown, name, catalog)
    if row is None:
        return effect
    step = float(shown.results["step_seconds"] or 0)
    effect = replace(
        effect,
        lowest=value,
        highest=value,
        at_lowest=step,
        at_highest=step,
        is_assumed=bool(row["is_assumed"]),
        source=str(row["source"]),
    )
    if moves is None:
        return effect
    spread = moves.spread
    return replace(
        effect,
        lowest=float(spread.lowest[0]),
        highest=float(spread.highest[0]),
        at_lowest=step * math.exp(float(moves.at_lowest[0])),
        at_highest=step * math.exp(float(moves.at_highest[0])),
        cause=spread.cause,
        other_share=float(spread.other_share[0]) if spread.is_choice[0] else None,
    )


def _default(shown: Evaluation, name: str, catalog: Catalog) -> Mapping[str, Scalar] | None:
    """Return the row of `step_constant` that gives the configuration its constant."""
    if name not in shown.estimator.constants.names:
        return None
    values = shown.problem
    system = (values.get("accelerator"), values.get("framework"))
    key = place_of(shown.estimator, catalog, name, system)
    row = None if key is None else catalog.tables["step_constant"][key]
    is_default = row is not None and math.isclose(
        float(row["constant_value"] or 0), float(values[name] or 0)
    )
    return row if is_default else None


def _nudged(shown: Evaluation, name: str, sign: int) -> dict[str, float]:
    value = float(shown.problem[name] or 0) * (1 + sign * NUDGE)
    return {name: min(value, _upper_limit(name))}


def _upper_limit(name: str) -> float:
    column = COLUMNS[name]
    return math.inf if column.maximum is None else column.maximum


def _columns(shown: Evaluation) -> dict[str, Array]:
    """Return the configuration as columns of one row; whole numbers are real, to be nudged."""
    columns: dict[str, Array] = {}
    for name, value in {**shown.problem, **shown.layout}.items():
        is_text = value is None and COLUMNS[name].kind == "str"
        if isinstance(value, str) or is_text:
            columns[name] = np.array([value], dtype=object)
        elif isinstance(value, bool):
            columns[name] = np.array([value])
        else:
            columns[name] = np.array([np.nan if value is None else float(value)])
    for name in shown.relation.keys:
        columns[name] = columns[name].astype(shown.relation.column(name).dtype)
    return columns


def _weight(effect: Sensitivity) -> float:
    swing = 0.0
    if effect.at_lowest and effect.at_highest:
        swing = abs(math.log(effect.at_highest / effect.at_lowest))
    return -max(swing, NUDGE * abs(effect.elasticity or 0.0))
