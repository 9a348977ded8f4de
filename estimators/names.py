"""Names in any spelling, and likely meanings of misspelt words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from estimators.columns import COLUMNS
from estimators.own_tables import rows_of

MOST_NEAR = 3
"""Names that an error proposes."""


def folded(name: object) -> str:
    """Return a name in small letters without separators, except within and between numbers.

    So 1.7B differs from 17B, and 3 1.3B from 31.3B. Macro `folded_name` of sql/macros.sql does the
    same.
    """
    return _folded(str(name))


@lru_cache(maxsize=4096)
def _folded(name: str) -> str:
    words = re.findall(r"\.?[0-9]+(?:\.[0-9]+)*|[^\W\d_]+", name.lower())
    return re.sub(r" ?([^\W\d_]+) ?", r"\1", " ".join(words))


def nearest(word: object, names: Iterable[str]) -> list[str]:
    """Return the names most like `word`, the most alike first; none if no name is like it.

    Names that begin with the word come first, then those with similar letters, then those that
    contain it. Capitals, spaces and hyphens do not matter.
    """
    by_folded = {folded(name): name for name in names}
    wanted = folded(word)
    if len(wanted) < 2:
        return []
    begin = sorted((name for name in by_folded if name.startswith(wanted)), key=len)
    alike = get_close_matches(wanted, by_folded, MOST_NEAR, 0.6)
    inside = [name for name in by_folded if len(wanted) > 2 and wanted in name]
    return [by_folded[name] for name in dict.fromkeys([*begin, *alike, *inside])][:MOST_NEAR]


def nearest_columns(word: str, columns: Collection[str]) -> list[str]:
    """Return the columns that `word` most likely means, also by their names in other programs.

    Parameters
    ----------
    columns
        The columns that may be meant.
    """
    wanted = folded(word)
    meant = [name for name in columns if wanted in _other_names(name)]
    return meant[:MOST_NEAR] or nearest(word, columns)


def hint_on_word(word: str, columns: Collection[str], of: str = "input") -> str:
    """Return what an unknown word leads to; "" for nothing.

    Table `other_words.csv` has the words whose column has another meaning, and those of features
    that no estimator models. Other words lead to the nearest columns.
    """
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    for row in other_words():
        is_meant = row["of"] == of and fnmatchcase(plain, row["word"])
        if is_meant and (not row["column"] or row["column"] in columns):
            return row["hint"]
    return did_you_mean(nearest_columns(word, columns))


@cache
def other_words() -> tuple[dict[str, str], ...]:
    """Return the rows of table `other_words.csv`; `pairs` has the columns that an input gives."""
    return tuple(rows_of("other_words"))


def has_numbers_of(name: str, word: object) -> bool:
    """Return whether a name has every number of a word: H20 is not H200, and an A10 no A100."""
    numbers = re.compile(r"[0-9]+(?:\.[0-9]+)*")
    return {*numbers.findall(str(word))} <= {*numbers.findall(name)}


def did_you_mean(near: Iterable[str]) -> str:
    """Return the question "did you mean ...?"; empty if there is no candidate."""
    names = any_of(list(near))
    return f"did you mean {names}?" if names else ""


def any_of(words: Sequence[str]) -> str:
    """Return ``4, 8 or 16``; empty for no words."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def joined_hint(*parts: str) -> str:
    """Return the parts of a hint that are not empty, with a semicolon between them.

    No semicolon follows a question.
    """
    hint = ""
    for part in filter(None, parts):
        mark = "" if not hint else " " if hint.endswith("?") else "; "
        hint += mark + part
    return hint


def _other_names(column: str) -> set[str]:
    """Return the words for a column: its short name, heading and names elsewhere, folded."""
    known = COLUMNS.get(column)
    names = (known.short, known.heading, *known.other_names) if known else ()
    return {folded(name) for name in names if name}
