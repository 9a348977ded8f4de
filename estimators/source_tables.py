"""Tables in the form of an estimator's source."""

from __future__ import annotations

from collections.abc import Mapping

from estimators.contract import Evaluate, Mends, Refusal, RefusedError, TableRow
from estimators.estimator import Estimator


def source_table(
    estimator: Estimator, name: str, given: Mapping[str, str], mends: Mends, evaluate: Evaluate
) -> list[TableRow]:
    """Return the rows of one of the estimator's `source.tables`.

    Parameters
    ----------
    given
        Inputs that hold in every row, as texts.
    evaluate
        Evaluates one configuration under `mends`.

    Raises
    ------
    RefusedError
        If there is no such table, if an input is an axis of the table or has no effect on it, or
        if a configuration is refused.
    """
    if name not in estimator.source.tables:
        hint = f"use {', '.join(estimator.source.tables)}"
        raise RefusedError([Refusal("table", name, f"is not a table of {estimator.name}", hint)])
    table = estimator.source.tables[name]
    keys = {key for relation in estimator.relations for key in relation.keys}
    idle = table.without_effect | table.relation.unread | (keys - {*table.relation.keys})
    refusals = [
        Refusal(key, value, "is an axis of the table", "leave it out, or leave --table out")
        for key, value in given.items()
        if key in table.axes
    ]
    refusals += [
        Refusal(key, given[key], f"has no effect on table `{name}`", "leave it out")
        for key in sorted((given.keys() & idle) - table.axes)
    ]
    if refusals:
        raise RefusedError(refusals)
    return list(table.rows(evaluate, given, mends))
