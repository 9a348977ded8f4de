"""Option `--study`: only the problems of one stored study."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warehouse.errors import InputError
from warehouse.studies.stored import stored_study

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class StudyFilter(NamedTuple):
    """A stored study: its problems, its estimator, and its variant where it has one alone."""

    name: str
    problems: frozenset[int]
    estimator: str
    variant: str | None


def study_filter(connection: DuckDBPyConnection, asked: str) -> StudyFilter:
    """Return the problems of the stored study that a name means."""
    name = stored_study(connection, asked, "--study")
    query = (
        "select distinct problem_id, estimator, variant from study_cell "
        "inner join cell using (cell_id) where study = ?"
    )
    cells = connection.execute(query, [name]).fetchall()
    if not cells:
        hint = "`warehouse sweep` it first"
        raise InputError(f'`--study` "{name}": none of its cells is stored', hint)
    problems, estimators, variants = ({*values} for values in zip(*cells, strict=True))
    only = variants.pop() if len(variants) == 1 else None
    return StudyFilter(name, frozenset(problems), estimators.pop(), only)
