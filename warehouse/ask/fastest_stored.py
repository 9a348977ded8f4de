"""The fastest stored layout with given values, and in what the searched problems differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.columns import LAYOUT_COLUMNS
from estimators.interval import QUANTILE, interval_term
from warehouse.ask.names import with_known_names
from warehouse.ask.problems import as_sold
from warehouse.database.catalog import packaged_catalog
from warehouse.database.in_force import CURRENT_CELL
from warehouse.database.sql_text import double, quoted
from warehouse.errors import InputError
from warehouse.evaluate.inputs import input_names
from warehouse.evaluate.one import read_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from estimators.contract import Scalar
    from estimators.estimator import Estimator


def best_configuration(
    connection: DuckDBPyConnection,
    estimator: Estimator,
    given: Mapping[str, str],
    problem_id: int | None = None,
) -> dict[str, str]:
    """Return the best stored layout that fits and has the given values, every input as text.

    With a `problem_id`, only layouts of this problem count, else those of products as they are
    sold.
    """
    relation = estimator.relations[0]
    view = f"current_{relation.name}"
    types = _types(connection, view)
    values = _stored_values(connection, estimator, given, types)
    problems = [problem_id] if problem_id is not None else _problems(connection, estimator, given)
    where = f"{_where(values, types)} and list_contains(?, problem_id)"
    names = [name for name in input_names(estimator, relation) if name in types]
    memory = " + ".join(quoted(part) for part in estimator.step.memory) or "null"
    # layout_order names the same layout among equals as `rank`
    order = {name: quoted(name) if name in types else "null" for name in LAYOUT_COLUMNS}
    order.update(step_seconds="step_seconds", memory_bytes=memory, fits_memory="true")
    order["fit_probability"] = "null"
    if "fit_probability" in relation.outputs:
        mean, low, high = interval_term(packaged_catalog(), "memory_error")
        deviation = (high - low) / (2 * QUANTILE)
        error = f"{double(mean)}, {double(deviation)}"
        order["fit_probability"] = f"fit_probability({memory}, hbm_bytes, {error})"
    packed = ", ".join(f"{name} := {value}" for name, value in order.items())
    query = f"""
        select
            {", ".join(map(quoted, names))},
            {f"coalesce({memory} <= hbm_bytes, true)" if estimator.step.memory else "true"} as fits
        from {quoted(view)}
        where {where}
        order by fits desc, layout_order(struct_pack({packed}))
        limit 1"""
    rows = connection.execute(query, [*values.values(), problems]).fetchall()
    if not rows:
        raise InputError(
            f"no stored configuration of {estimator.name} has these values",
            "store some with `warehouse sweep`, or leave --best out and give the layout",
        )
    [(*texts, fits)] = rows
    if not fits:
        raise InputError("no stored layout with these values fits in memory", "ask for more GPUs")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in zip(names, texts, strict=True)
        if value is not None
    }


def differing_columns(
    connection: DuckDBPyConnection,
    estimator: Estimator,
    given: Mapping[str, str],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Return those columns of `names` in which the stored problems with the given values differ."""
    names = [name for name in names if name in estimator.problem_columns]
    counts = ", ".join(f"count(distinct {quoted(name)})" for name in names)
    query = f"select {counts} from problem where list_contains(?, problem_id)"
    problems = _problems(connection, estimator, given)
    [numbers] = connection.execute(query, [problems]).fetchall()
    return tuple(name for name, number in zip(names, numbers, strict=True) if number > 1)


def _problems(
    connection: DuckDBPyConnection, estimator: Estimator, given: Mapping[str, str]
) -> list[int]:
    """Return the stored problems that have the given values, on products as they are sold."""
    types = _types(connection, "problem")
    values = _stored_values(connection, estimator, given, types)
    query = (
        f"select problem_id from problem where {_where(values, types)} and problem_id in"
        f" (select problem_id from {CURRENT_CELL} where estimator = ?)"
    )
    found = connection.execute(query, [*values.values(), estimator.name]).fetchall()
    return sorted(as_sold(connection, {problem for (problem,) in found}))


def _types(connection: DuckDBPyConnection, table: str) -> dict[str, str]:
    described = connection.execute(f"describe {quoted(table)}").fetchall()
    return {str(row[0]): str(row[1]) for row in described}


def _stored_values(
    connection: DuckDBPyConnection,
    estimator: Estimator,
    given: Mapping[str, str],
    types: Mapping[str, str],
) -> dict[str, Scalar]:
    """Return the given values of the columns in `types`, names as they are stored."""
    values = read_values(
        estimator.relations[0], {name: given[name] for name in given if name in types}
    )
    texts = {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and name in estimator.problem_columns
    }
    known = with_known_names(connection, {**texts, "estimator": estimator.name})
    return {**values, **{name: known[name] for name in texts}}


def _where(values: Mapping[str, Scalar], types: Mapping[str, str]) -> str:
    conditions = [f"{quoted(name)} = cast(? as {types[name]})" for name in values]
    return " and ".join(conditions) or "true"
