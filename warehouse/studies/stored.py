"""Studies that a database has, by the names that people give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.names import did_you_mean, folded
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection


def study_meant(asked: str, names: Sequence[str], option: str = "study") -> str | None:
    """Return the study that a name means; None if there is none.

    Names may differ in capitals, spaces, hyphens and underscores. Questions of `plan` may go by the
    six digits at the end of their names.

    Raises
    ------
    InputError
        If it may mean several.
    """
    if asked in names:
        return asked
    found = [name for name in names if folded(name) == folded(asked)] or [
        name for name in names if name.startswith("plan ") and name.split()[-1] == asked.lower()
    ]
    if len(found) > 1:
        raise InputError(
            f'`{option}` "{asked}": {len(found)} stored studies go by it',
            f"give the whole name: {'; '.join(found)}",
        )
    return found[0] if found else None


def stored_study(connection: DuckDBPyConnection, asked: str, option: str = "study") -> str:
    """Return the name of the stored study that `asked` means, as `study_meant`.

    Parameters
    ----------
    option
        The option or argument, as an error names it.

    Raises
    ------
    InputError
        If there is none, or several; the hint has the nearest names, or all.
    """
    from difflib import get_close_matches

    rows = connection.execute("select study from study order by study").fetchall()
    names = [name for (name,) in rows]
    found = study_meant(asked, names, option)
    if found is None:
        near = did_you_mean(get_close_matches(asked, names, n=3, cutoff=0.6))
        known = f"stored: {'; '.join(names[:20]) or 'none'}{'; ...' if len(names) > 20 else ''}"
        raise InputError(f'`{option}` "{asked}": no study of that name is stored', near or known)
    return found
