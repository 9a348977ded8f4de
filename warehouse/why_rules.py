"""The rules that exclude a layout, by name and with the values that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.contract import Catalog, Mends, RefusedError, Scalar
from estimators.roofline import rules as roofline_rules
from estimators.training_step import rules as step_rules
from warehouse.evaluate.inputs import input_names, read_columns

if TYPE_CHECKING:
    from estimators.contract import Estimator, Relation
    from estimators.rules import Rule


@dataclass(frozen=True)
class Broken:
    """A rule that a layout breaks: its name, what it read, and the refusal's words."""

    rule: str
    column: str
    value: Scalar
    reason: str
    hint: str
    values: Mapping[str, Scalar]


def broken_rules(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    error: RefusedError,
) -> tuple[Broken, ...]:
    """Return every named predicate that a refused layout breaks, with the values that it read.

    Empty where the refusal is not that of a rule: then the input is faulty, not the layout.
    """
    frame = pl.DataFrame({name: [text] for name, text in given.items()} or {"": [""]})
    columns, faults = read_columns(frame, input_names(estimator, relation), relation)
    if any(fault.column != "row" for fault in faults):
        return ()
    try:
        resolved, _ = estimator.resolve(relation, columns, catalog, mends)
    except RefusedError:
        return ()
    values = {name: _scalar(column[0]) for name, column in resolved.items()}
    found = []
    for rule in _rules(estimator, mends):
        if any(values.get(need) is None for need in rule.needs) or np.all(rule.holds(values)):
            continue
        read = {need: values[need] for need in rule.needs}
        told = (rule.column, values.get(rule.column), rule.reason(values), rule.hint(values))
        found.append(Broken(rule.name, *told, values=read))
    told_by_rules = {(each.column, each.reason) for each in found}
    is_told = all((each.column, each.reason) in told_by_rules for each in error.refusals)
    return tuple(found) if is_told else ()


def _rules(estimator: Estimator, mends: Mends) -> tuple[Rule, ...]:
    if estimator.name == "training_step":
        return (*step_rules.PROBLEM_RULES, *step_rules.LAYOUT_RULES)
    return (
        *roofline_rules.PROBLEM_RULES,
        *roofline_rules.split_rules(mends),
        *roofline_rules.row_rules(mends),
        *roofline_rules.BATCH_RULES,
    )


def _scalar(value: Any) -> Scalar:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and np.isnan(plain):
        return None
    known: Scalar = plain
    return known
