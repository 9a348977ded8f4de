"""One configuration, given as key=value and evaluated like a row of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators import registry
from estimators.contract import Catalog, Mends, Refusal, RefusedError, Scalar
from estimators.interval import STEP
from estimators.names import hint_on_word
from warehouse.errors import UsageError
from warehouse.evaluate.inputs import (
    Resolved,
    evaluate_intervals,
    evaluate_rows,
    input_names,
    resolve_rows,
    scalars,
    without_grouping,
)
from warehouse.evaluate.texts import read_texts
from warehouse.evaluate.words import by_column, pairs_in

if TYPE_CHECKING:
    from estimators.contract import Array, Relation
    from estimators.estimator import Estimator


@dataclass(frozen=True)
class Evaluation:
    """One configuration with its estimate, in base units; `given` names what the user gave."""

    estimator: Estimator
    relation: Relation
    mends: Mends
    catalog: Catalog
    problem: Mapping[str, Scalar]
    layout: Mapping[str, Scalar]
    results: Mapping[str, Scalar]
    given: frozenset[str]

    @property
    def values(self) -> dict[str, Scalar]:
        """Return inputs and results; a computed value replaces a given one of that name."""
        return {**self.problem, **self.layout, **self.results}


def read_pairs(
    estimator: Estimator, relation: Relation | None, pairs: Sequence[str]
) -> dict[str, str]:
    """Return inputs by column name from texts such as ``num_gpus=64``.

    They may be a layout as it is printed, or have the names of other programs. Without a relation,
    the inputs of every relation are accepted.
    """
    relations = [relation] if relation else estimator.relations
    known = tuple(dict.fromkeys(n for r in relations for n in input_names(estimator, r)))
    computed = {name for r in relations for name in r.outputs} - {*known}
    given: dict[str, str] = {}
    refusals = []
    for pair in pairs_in(pairs, known):
        key, _, text = pair.partition("=")
        if not key.strip():
            raise UsageError(f"`{pair}` is not of the form key=value", "write num_gpus=64")
        spelt = key.strip().removeprefix("--").replace("-", "_")
        name = estimator.aliases.get(spelt, spelt)
        name = name.lower() if name not in known and name.lower() in known else name
        if name not in known and name not in computed:
            columns = by_column(spelt, text.strip(), known)
            if columns is not None:
                twice = columns.keys() & given.keys()
                refusals += [Refusal(name, columns[name], "is given twice") for name in twice]
                given |= columns
                continue
        if name in given:
            refusals.append(Refusal(spelt, text, "is given twice"))
        elif name in computed:
            refusals.append(Refusal(spelt, text, "is computed, not given", "leave it out"))
        elif name not in known:
            hint = hint_on_word(spelt, (*known, *estimator.aliases))
            hint = hint or _planner_with(name) or "docs/columns.md lists the columns"
            refusals.append(Refusal(spelt, text, f"is not an input of {estimator.name}", hint))
        given[name] = text.strip()
    if refusals:
        raise RefusedError(refusals)
    return given


def _planner_with(name: str) -> str:
    """Return a hint on the estimator of `plan` if it has a column; else nothing."""
    planner = registry.get(registry.default("plan"))
    has_it = name in input_names(planner, planner.relations[0])
    return f"{planner.name} has it: --estimator {planner.name}" if has_it else ""


def show_configuration(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    pinned: Collection[str] | None = None,
    *,
    has_ends: bool = True,
) -> Evaluation:
    """Return the estimate of the configuration that `given` describes, in texts.

    Constants that are `pinned`, by default all that are given, have no range. Both ends of the
    step's interval take a hundred evaluations.
    """
    resolved = _resolve(estimator, relation, given, catalog, mends)
    known = given if pinned is None else pinned
    ends = evaluate_intervals(resolved, known) if has_ends else {}
    results: dict[str, Scalar] = {}
    columns = evaluate_rows(resolved)
    for name in relation.outputs:
        results[name] = _figure(columns[name])
        if name == STEP:  # both ends next to the step, for people
            results |= scalars(ends, ends)
    return Evaluation(
        estimator,
        relation,
        mends,
        catalog,
        problem=_problem(resolved),
        layout=scalars(resolved.columns, relation.keys),
        results=results,
        given=frozenset(given),
    )


def resolve_problem(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
) -> dict[str, Scalar]:
    """Return the problem of the configuration that `given` describes, without an estimate."""
    return _problem(_resolve(estimator, relation, given, catalog, mends))


def _resolve(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    catalog: Catalog,
    mends: Mends,
) -> Resolved:
    resolved = resolve_rows(estimator, relation, given, catalog, mends)
    if resolved.refusals:
        distinct = {
            (r.column, r.reason): Refusal(r.column, r.value, r.reason, r.hint)
            for r in resolved.refusals
        }
        raise RefusedError(distinct.values())
    return resolved


def _figure(column: Array) -> Scalar:
    """Return a result as it was computed: a source may have a share of a GPU, or 8.0 of them."""
    value: Any = column[0]
    plain: Scalar = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and np.isnan(plain) else plain


def _problem(resolved: Resolved) -> dict[str, Scalar]:
    estimator = resolved.estimator
    return scalars(resolved.columns, (*estimator.problem_columns, *estimator.choice_columns))


def read_values(relation: Relation, given: Mapping[str, str]) -> dict[str, Scalar]:
    """Return the values that texts hold, in the types of their columns; empty ones are left out."""
    texts = {name: text for name, text in without_grouping(relation, given).items() if text}
    if not texts:
        return {}
    columns, refusals = read_texts([texts], tuple(texts), relation)
    if refusals:
        raise RefusedError(replace(refusal, row=None) for refusal in refusals)
    read = {name: columns[name].tolist()[0] for name in texts}
    return {n: int(v) if relation.column(n).kind == "int" else v for n, v in read.items()}
