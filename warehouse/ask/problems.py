"""The stored problems that pass some filters, and the estimator that answers about them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.contract import variant_name
from estimators.names import did_you_mean, joined_hint
from warehouse.ask.names import is_known_name, with_known_names
from warehouse.database.connection import rows_as_dicts
from warehouse.database.sql_text import quoted
from warehouse.database.summaries import by_precedence, summaries, summary_of
from warehouse.errors import InputError, UsageError, WarehouseError
from warehouse.studies.stored import stored_study
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.ask.names import Filters


class StudyFilter(NamedTuple):
    """A stored study: its problems, its estimator, and its variant if it has only one."""

    name: str
    problems: frozenset[int]
    estimator: str
    variant: str | None


class Selection(NamedTuple):
    """Filters with the estimator and variant that answer, as given and as stored; the problems."""

    filters: Filters
    stored_filters: Filters
    problems: set[int]


def study_filter(connection: DuckDBPyConnection, name: str) -> StudyFilter:
    """Return the problems of a stored study, found by any spelling of its name."""
    study = stored_study(connection, name, "--study")
    query = (
        "select distinct problem_id, estimator, variant from study_cell "
        "inner join cell using (cell_id) where study = ?"
    )
    cells = connection.execute(query, [study]).fetchall()
    if not cells:
        hint = "`warehouse sweep` it first"
        raise InputError(f'`--study` "{study}": none of its cells is stored', hint)
    problems, estimators, variants = ({*values} for values in zip(*cells, strict=True))
    variant = variants.pop() if len(variants) == 1 else None
    return StudyFilter(study, frozenset(problems), estimators.pop(), variant)


def select_problems(
    connection: DuckDBPyConnection,
    filters: Filters,
    estimator: str | None,
    variant: str | None,
    study: StudyFilter | None,
) -> Selection:
    """Return the problems of the first estimator, by precedence, that has some."""
    of_estimator = {} if estimator is None else {"estimator": summary_of(estimator).name}
    names = with_known_names(connection, {**of_estimator, **filters})
    stored_filters = {name: names[name] for name in filters}
    estimators = by_precedence() if estimator is None else [summary_of(estimator)]
    stored = _stored_problems(connection, ("estimator", "variant", *filters))
    if study is not None:
        stored = [row for row in stored if row["problem_id"] in study.problems]
    errors: list[WarehouseError] = []
    for summary in estimators:
        try:
            mends = mends_of_options(summary, variant, None)
            answering = {"estimator": summary.name, "variant": variant_name(mends, summary.mends)}
            problems = _passing(stored, {**answering, **stored_filters}, study)
        except (InputError, UsageError) as error:
            errors.append(error)
        else:
            return Selection({**answering, **filters}, {**answering, **stored_filters}, problems)
    if estimator is None:
        _passing(stored, stored_filters, study)
    raise min(errors, key=lambda error: isinstance(error, UsageError))


def stored_problems(connection: DuckDBPyConnection, filters: Filters) -> set[int]:
    """Return the problems that pass the filters; an error names the first that none passes."""
    return _passing(_stored_problems(connection, filters), filters)


def as_sold(connection: DuckDBPyConnection, problems: set[int]) -> set[int]:
    """Return the problems on products as they are sold, and on systems that no table has.

    A study may change the rates of a product and keep its name. Where all problems have changed
    rates, they are all that a question can mean.
    """
    query = (
        "select problem_id from problem_group "
        "where is_published_system is distinct from false and list_contains(?, problem_id)"
    )
    sold = {row[0] for row in connection.execute(query, [sorted(problems)]).fetchall()}
    return sold or problems


def _stored_problems(
    connection: DuckDBPyConnection, names: Iterable[str]
) -> list[Mapping[str, Any]]:
    # the first relation of an estimator has its configurations, the others their details
    relations = [estimator.relations[0] for estimator in summaries()]
    columns = ", ".join(quoted(name) for name in ("problem_id", *names))
    stored = rows_as_dicts(
        connection,
        f"select distinct {columns} from current_cell inner join problem using (problem_id)"
        " where list_contains(?, relation)",
        [relations],
    )
    if not stored:
        raise InputError(
            "no configuration is stored yet",
            "run `warehouse quickstart`, or sweep a study: warehouse sweep gpt3_1T_1d",
        )
    return stored


def _passing(
    stored: Sequence[Mapping[str, Any]], filters: Filters, study: StudyFilter | None = None
) -> set[int]:
    passed = [] if study is None else [f"study {study.name}"]
    for name, value in filters.items():
        left = [row for row in stored if row[name] == value]
        if not left:
            known = sorted({row[name] for row in stored if row[name] is not None})
            raise _unknown(name, value, known, passed)
        passed.append(f"{name} {value}")
        stored = left
    return {row["problem_id"] for row in stored}


def _unknown(
    name: str, value: str | int, known: Sequence[Any], passed: Sequence[str]
) -> InputError:
    near = get_close_matches(str(value), map(str, known), n=3, cutoff=0.6)
    if is_known_name(name, value):  # spelt as it is stored
        near = []
    of = f" with {', '.join(passed)}" if passed else ""
    listed = ", ".join(map(str, known[:20])) + (", ..." if len(known) > 20 else "")
    listed = listed or f"problems without `{name}` only"
    shown = f'"{value}"' if isinstance(value, str) else value
    return InputError(
        f"`{name}` {shown}: no configuration is stored{of}",
        joined_hint(
            did_you_mean(near), f"stored: {listed}", "`warehouse sweep` a study for others"
        ),
    )
