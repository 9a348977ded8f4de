"""The rules of the programs: which layouts each of them can run.

Table `framework_rule.csv` has a rule a row: a framework, the releases that it holds for, a
predicate on columns (`estimators.predicates`), a sentence, and the place in the program's code.
`framework_release` decides which releases are meant; a missing one is the newest. No rule excludes
a published run.

Not in the table:

- rules that every program has: `training_step.rules`;
- schedules of Megatron-Core. It has none that fill the bubbles of a pipeline, but its constants are
  those of the published runs that had one, and no search takes another schedule unless asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from estimators.columns import COLUMNS, names_in
from estimators.own_tables import rows_of
from estimators.predicates import compiled
from estimators.rules import Explanation, Rule
from estimators.structure import number
from estimators.training_step.pipeline_rules import BATCH, OPTIONS, blamed, num_microbatches
from estimators.values import Values

DERIVED: dict[str, tuple[tuple[str, ...], Callable[[Values], Any]]] = {
    "num_microbatches": (BATCH, num_microbatches),
    "is_placed": (OPTIONS, lambda values: blamed(values) != ""),
    "has_layout": (OPTIONS, lambda values: blamed(values) == "pipeline_layout"),
}
"""Names of a predicate that are no columns: the columns that they need, and their values."""

_OF_DERIVED = {"num_microbatches": "global_batch_size"}
"""Derived name -> the column that a hint changes."""

_OF_MODEL = frozenset((*names_in("Model"), *names_in("Shape of a decoder")))
"""Columns that a hint does not change."""

Row = dict[str, str]
"""A row of the table, fields as texts."""


def rules_of(frameworks: Iterable[str | None]) -> tuple[Rule, ...]:
    """Return the rules of some programs."""
    return tuple(rule for name in frameworks for rule in _RULES.get(name, ()))


def _rule(row: Row) -> Rule:
    """Return the rule of a row of the table."""
    names, is_kept = compiled(row["rule"])
    derived = {name: DERIVED[name] for name in names if name in DERIVED}
    groups = (derived[name][0] if name in derived else (name,) for name in names)
    columns = tuple(dict.fromkeys(column for group in groups for column in group))

    def holds(values: Values) -> Any:
        applies = _applies(row, values)
        if not np.any(applies):
            return np.True_
        read = {name: values[name] for name in columns}
        read |= {name: value(values) for name, (_, value) in derived.items()}
        return np.logical_not(applies) | is_kept(read)

    changed = (_OF_DERIVED.get(name, name) for name in names)
    varied = tuple(name for name in changed if name in COLUMNS and name not in _OF_MODEL)
    column = varied[0] if varied else "pipeline_parallel" if derived else names[0]
    return Rule(
        f"{row['framework']}: {row['rule']}",
        column,
        tuple(dict.fromkeys(("framework", "framework_release", column, *columns))),
        holds,
        _reason(row),
        _advice(row["rule"], varied, is_placed=bool(derived)),
        varied,
        is_of_program=True,
    )


def _advice(rule: str, varied: Sequence[str], *, is_placed: bool) -> Explanation | None:
    """Return the hint of a rule whose columns have no values to try."""
    column, _, text = rule.partition(" == '")
    if column in COLUMNS and text:
        return lambda _row: f"use {text[:-1]}"
    if varied:
        return None
    if not is_placed:
        return lambda _row: "use another `framework`"
    return lambda row: f"leave out {' and '.join(f'`{name}`' for name in OPTIONS if row[name])}"


def _applies(row: Row, values: Values) -> Any:
    """Return where a row holds: for its framework, in its releases."""
    is_own = np.equal(values["framework"], row["framework"])
    least, end = row["from_release"], row["until_release"]
    if not least and not end:
        return is_own
    release = number(values["framework_release"], np.inf)
    is_old = release < float(end) if end else True
    return is_own & (release >= float(least or 0)) & is_old


def _reason(row: Row) -> Explanation:
    """Return the words of a refusal: program, releases, sentence, and place in its code."""
    words = {"from": row["from_release"], "before": row["until_release"]}
    releases = [f"{word} {release}" for word, release in words.items() if release]
    program = " ".join((row["framework"], *releases))
    sentence = f"{row['why'].removesuffix('.')} ({row['source']})"
    return lambda _row: f"is not run by {program}: {sentence}"


_RULES: dict[str | None, tuple[Rule, ...]] = {}
for _row in rows_of("training_step/framework_rule"):
    _RULES[_row["framework"]] = (*_RULES.get(_row["framework"], ()), _rule(_row))

PROGRAM_RULES = rules_of(_RULES)
"""A rule for each row of table `framework_rule.csv`."""
