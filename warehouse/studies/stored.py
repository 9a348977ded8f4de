"""Finds stored studies by name, in any spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.names import did_you_mean, folded
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection


PLAN = "plan "
"""Prefix of the names of questions of `plan`."""

QUESTION_FILE = "plan"
"""The `study_file` of questions: no study has it, since the names of their files have an ending."""

IS_QUESTION = f"(study_file = '{QUESTION_FILE}' and starts_with(study, '{PLAN}'))"
"""Whether a row of table `study` is a question of `plan`: lists of studies leave it out, and the
cells that only questions asked for are a cache."""

NEAR = 3
"""Most similar names in the refusal of an unknown name."""

SHOWN = 8
"""Most names in that refusal if none is similar."""


def find_study(asked: str, names: Sequence[str], option: str = "study") -> str | None:
    """Return the study that a name means; None if there is none.

    Names may differ in capitals, spaces, hyphens and underscores. The six digits at the end of its
    name are enough for a question of `plan`.
    """
    if asked in names:
        return asked
    matching = [name for name in names if folded(name) == folded(asked)] or [
        name for name in names if name.startswith(PLAN) and name.split()[-1] == asked.lower()
    ]
    if len(matching) > 1:
        raise InputError(
            f'`{option}` "{asked}": {len(matching)} stored studies match',
            "give the whole name:" + _listed(matching),
        )
    return matching[0] if matching else None


def stored_study(connection: DuckDBPyConnection, asked: str, option: str = "study") -> str:
    """Return the name of the stored study that `asked` means, as `find_study`."""
    rows = connection.execute("select study from study order by study").fetchall()
    names = [name for (name,) in rows]
    name = find_study(asked, names, option)
    if name is None:
        raise InputError(
            f'`{option}` "{asked}": no study of that name is stored', nearest_in_words(asked, names)
        )
    return name


def nearest_in_words(asked: str, names: Sequence[str]) -> str:
    """Return at most three names that are similar or contain the text; else a few, by line."""
    from difflib import get_close_matches

    within = [name for name in names if folded(asked) and folded(asked) in folded(name)]
    near = get_close_matches(asked, names, n=NEAR, cutoff=0.6) or within[:NEAR]
    has_plan = any(name.startswith(PLAN) for name in near or names)
    digits = "the six digits at the end of a plan's name are enough; " if has_plan else ""
    if len(near) == 1 and not has_plan:
        return did_you_mean(near)
    if near:
        return f"{digits}did you mean one of these?{_listed(near)}"
    studies = [name for name in names if not name.startswith(PLAN)]
    more = f"\n    and {len(studies) - SHOWN:,} more: `warehouse status` lists all"
    listed = _listed(studies[:SHOWN]) + (more if len(studies) > SHOWN else "")
    return digits + (f"stored:{listed}" if studies else "no study is stored")


def _listed(names: Sequence[str]) -> str:
    """Return names, each on its own line: they have commas and spaces."""
    return "".join(f"\n    {name}" for name in names)
