"""The stored problems that a few filters leave, and what to say where they leave none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from estimators.registry import all_estimators
from warehouse.database.catalog import load_catalog
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Filters = Mapping[str, str | int]
"""Columns of problems, with the value that each is kept to."""


def with_known_names(connection: DuckDBPyConnection, filters: Filters) -> Filters:
    """Return the filters with an accelerator's alias replaced by its name.

    A name that problems are stored under stands, even if other tables have it as an alias.
    """
    spellings = {
        alias: name
        for table in load_catalog(connection).aliases.values()
        for alias, name in table.items()
    }
    accelerator = str(filters.get("accelerator", ""))
    query = "from problem where accelerator = ? limit 1"
    if accelerator not in spellings or connection.execute(query, [accelerator]).fetchall():
        return filters
    return {**filters, "accelerator": spellings[accelerator]}


def stored_problems(connection: DuckDBPyConnection, filters: Filters) -> set[int]:
    """Return the problems that the filters leave; raise, naming the filter that leaves none."""
    names = ["problem_id", *filters]
    # An estimator's first relation has its configurations; others look into some of them.
    relations = [estimator.relations[0].name for estimator in all_estimators()]
    columns = ", ".join(quoted(name) for name in names)
    stored = connection.execute(
        f"select distinct {columns} from current_cell inner join problem using (problem_id)"
        " where list_contains(?, relation)",
        [relations],
    ).fetchall()
    if not stored:
        raise InputError(
            "no configuration is stored yet",
            "run `warehouse quickstart`, or sweep a study: warehouse sweep gpt3_1T_1d",
        )
    for place, (name, value) in enumerate(filters.items(), start=1):
        left = [row for row in stored if row[place] == value]
        if not left:
            others = [f"{n} {v}" for n, v in list(filters.items())[: place - 1]]
            known = sorted({row[place] for row in stored if row[place] is not None})
            raise _unknown(name, value, known, others)
        stored = left
    return {row[0] for row in stored}


def _unknown(
    name: str, value: str | int, known: Sequence[Any], others: Sequence[str]
) -> InputError:
    near = get_close_matches(str(value), [str(one) for one in known], n=3, cutoff=0.6)
    of = f" with {', '.join(others)}" if others else ""
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    listed = ", ".join(str(one) for one in known[:20]) + (", ..." if len(known) > 20 else "")
    shown = f'"{value}"' if isinstance(value, str) else value
    return InputError(
        f"`{name}` {shown}: no configuration is stored{of}",
        f"{hint}stored: {listed}; `warehouse sweep` a study that asks for others",
    )
