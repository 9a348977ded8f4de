"""The cells that only questions of `plan` asked for: a cache, kept below setting `plan_cache_gb`.

Cells that a study or measured runs need are no part of it. A question goes with its cells, in one
transaction that also records its removal; its space in the file is taken by new rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from estimators.registry import all_estimators
from warehouse import settings
from warehouse.database.access import accessing, current_access
from warehouse.database.connection import open_for_read, writing
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import DatabaseError, LockedError
from warehouse.studies.stored import IS_QUESTION
from warehouse.sweep.record import delete_studies

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_REMAINING = 0.9
"""Share of the limit to which the cache is emptied, so that not every question has to."""

_CACHED = f"""\
with question as (
    select study, created_at from study where {IS_QUESTION} and study not in (
        select study from study_cell inner join cell using (cell_id)
        where problem_id in (select problem_id from measurement)
    )
), asked as (
    select cell_id, max_by(study, (created_at, study)) as study
    from study_cell inner join question using (study)
    where cell_id not in (select cell_id from study_cell anti join question using (study))
    group by cell_id
)
select study, relation, coalesce(sum(num_rows), 0)::bigint
from question left join asked using (study) left join cell using (cell_id)
group by study, created_at, relation order by created_at, study, relation"""
"""The newest question that asked for each cell; questions of which another asked all again, too."""


class CachedQuestion(NamedTuple):
    """A question, with the number and bytes of the rows that no study and no newer one needs."""

    study: str
    num_rows: int
    num_bytes: float


def cached_questions(connection: DuckDBPyConnection) -> list[CachedQuestion]:
    """Return the questions of a cache, the oldest first."""
    rows = connection.execute(_CACHED).fetchall()
    of_row = _bytes_of_row(connection, {relation for _, relation, _ in rows})
    found: dict[str, CachedQuestion] = {}
    for study, relation, num_rows in rows:
        _, before, num_bytes = found.get(study, (study, 0, 0.0))
        more = num_rows * of_row.get(relation, 0.0)
        found[study] = CachedQuestion(study, before + num_rows, num_bytes + more)
    return [*found.values()]


def surplus_questions(connection: DuckDBPyConnection, kept: Collection[str] = ()) -> list[str]:
    """Return the oldest questions without which the cache is below its limit; none if it is.

    Those in `kept` stay, whatever their size.
    """
    limit, questions = settings.plan_cache_bytes(), cached_questions(connection)
    left, surplus = sum(question.num_bytes for question in questions), list[str]()
    if left <= limit:
        return []
    for question in questions:
        if left > _REMAINING * limit and question.study not in kept:
            surplus.append(question.study)
            left -= question.num_bytes
    return surplus


def trim_plan_cache(database: Path, kept: Collection[str] = ()) -> list[str]:
    """Remove the oldest questions of a cache that is too large; return their names.

    While another process, or this one, has the database open nothing is removed: the next
    question does it.
    """
    with open_for_read(database) as connection:
        if not surplus_questions(connection, kept):
            return []
    try:
        with accessing(replace(current_access(), write_seconds=0.0)), writing(database) as writer:
            surplus = surplus_questions(writer, kept)  # another process may have removed some
            remove_questions(writer, surplus)
    except LockedError:
        return []
    except DatabaseError as error:  # the answer does not need this room
        current_access().say(f"warning: {database}: no question was removed: {error.message}")
        return []
    return surplus


def remove_questions(connection: DuckDBPyConnection, names: Sequence[str]) -> None:
    """Remove questions and the cells that neither a study nor another question needs."""
    cells = connection.execute(
        "select distinct cell_id from study_cell where list_contains($names, study) and cell_id"
        " not in (select cell_id from study_cell where not list_contains($names, study))",
        {"names": [*names]},
    ).fetchall()
    delete_studies(connection, names, [cell for (cell,) in cells])


def _bytes_of_row(
    connection: DuckDBPyConnection, relations: Collection[str | None]
) -> dict[str | None, float]:
    """Return the bytes that a row of each relation takes in the file, from its table's blocks."""
    tables = {r.name: r.table for e in all_estimators() for r in e.relations if r.name in relations}
    sizes: dict[str | None, float] = {}
    for name, table in tables.items():
        [(num_bytes,)] = connection.execute(
            "select count(distinct block_id) * any_value(block_size) from"
            f" pragma_storage_info({literal(table)}), pragma_database_size()"
            " where block_id >= 0 and database_name = current_database()"
        ).fetchall()
        [(rows,)] = connection.execute(f"select count(*) from {quoted(table)}").fetchall()
        sizes[name] = (num_bytes or 0) / rows if rows else 0.0
    return sizes
