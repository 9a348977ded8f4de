"""Layouts as they are printed, and inputs by their names in other programs, as inputs by column.

Tables and answers print a layout as ``dp32 tp4 cp2 pp4 vp20 micro1 zero1``. Megatron writes
``--tensor-model-parallel-size 4``, torchtitan ``parallelism.tensor_parallel_degree = 4``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from estimators.columns import COLUMNS
from estimators.names import folded, other_words
from warehouse.errors import UsageError

if TYPE_CHECKING:
    from estimators.columns import Column

_DEGREE = re.compile(r"([a-z]+)([0-9]+)(?:x([0-9]+))?")
_WHOLE = ({"data_parallel"}, {"microbatch_size", "num_microbatches"})
"""Columns that every printed layout names; one of each set makes a text a whole layout."""

_SILENT = {
    **dict.fromkeys(("uses_sequence_parallel", "counts_embedding", "counts_loss"), "false"),
    "activation_recompute": "none",
    "attention": "flash",
    "schedule": "1f1b",
    **dict.fromkeys(("virtual_pipeline", "context_parallel", "expert_parallel"), "1"),
}
"""Columns that a printed layout leaves out at this value."""

_PLAIN = ("int", "bool", "str")
"""Kinds of columns whose values are the same under another name: reals have units."""

_OFF = ("false", "no", "off", "0")


def pairs_in(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return ``key=value`` texts with the words of a layout among them as such texts.

    A layout with its replicas and microbatch is whole: what it does not name is off.

    Parameters
    ----------
    known
        Columns that the estimator reads.
    """
    texts, named = [], {}
    parts = iter(_parts(words))
    prefix = ""
    for part in parts:
        if "=" in part:
            texts.append(part)
            continue
        if part == "(nvlink":
            prefix = "nvlink_"
            continue
        pairs = _layout_pairs(part.rstrip("),"), parts)
        if not pairs:
            raise UsageError(
                f"`{part}` is not of the form key=value",
                "write num_gpus=64, or a layout as it is printed: dp8 tp4 pp2 micro1",
            )
        named.update({f"{prefix}{name}": value for name, value in pairs.items()})
        prefix = "" if part.endswith(")") else prefix
    if all(names & named.keys() for names in _WHOLE):
        given = {text.partition("=")[0] for text in texts}
        silent = {name: value for name, value in _SILENT.items() if name in known}
        if any(name.startswith("nvlink_") for name in named):
            placed = (name for name in known if f"nvlink_{name}" in known)
            silent |= {f"nvlink_{name}": "1" for name in placed}
        named = {**{name: silent[name] for name in silent.keys() - given}, **named}
    return [*texts, *(f"{name}={value}" for name, value in named.items())]


def _parts(words: Iterable[str]) -> Iterable[str]:
    """Yield words; a text of a whole layout is several, a pair is one whatever its value has."""
    for word in words:
        first = word.split(maxsplit=1)[:1]
        yield from [word] if not first or "=" in first[0] else word.split()


def _layout_pairs(part: str, following: Iterable[str]) -> dict[str, str]:
    """Return the columns that a word of a layout gives; some words take the next one as well."""
    numbers, texts, flags = _short_names()
    if part in COLUMNS["strategy"].choices:
        return {"strategy": part}
    if part in flags:
        return {flags[part]: "true"}
    if part in texts or any(flag.startswith(f"{part} ") for flag in flags):
        value = next(iter(following), "")
        if flag := flags.get(f"{part} {value}"):
            return {flag: "true"}
        return {texts[part]: value} if part in texts and value and "=" not in value else {}
    found = _DEGREE.fullmatch(part.lower())
    if found is None or found[1] not in numbers:
        return {}
    name = numbers[found[1]]
    return {name: found[2], **({f"{name}_2": found[3]} if found[3] else {})}


@cache
def _short_names() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the words of layouts -> columns: before a number, before a text, and flags."""
    numbers = {
        name: column.name
        for column in COLUMNS.values()
        if column.kind == "int"
        for name in column.other_names
    }
    short = [column for column in COLUMNS.values() if column.short and column.in_layout]
    numbers |= {column.short: column.name for column in short if column.kind == "int"}
    texts = {column.short.strip(): column.name for column in short if column.kind == "str"}
    flags = {column.short: column.name for column in short if column.kind == "bool"}
    return numbers, texts, flags


def by_column(key: str, value: str, known: Collection[str]) -> dict[str, str] | None:
    """Return the columns that a key of another program gives; None if it is no such key.

    Table `other_words.csv` has keys whose columns have other values: a flag that is on gives fixed
    ones, and ``*`` stands for the given value.
    """
    for spelt in _spellings(key):
        for row in other_words():
            if row["word"] == spelt and row["pairs"]:
                pairs = dict(pair.split("=") for pair in row["pairs"].split(";"))
                if value.lower() in _OFF or not pairs.keys() <= {*known}:
                    return {}
                filled = {name: text.replace("*", value) for name, text in pairs.items()}
                # -1 takes the GPUs that are left, as by default
                return {name: text for name, text in filled.items() if text != "-1"}
        meant = [name for name in known if _is_called(COLUMNS[name], spelt)]
        if len(meant) == 1:
            return {meant[0]: value}
    return None


def is_name(word: str) -> bool:
    """Return whether a word is a column, or the name of one in another program."""
    spellings = _spellings(word)
    return spellings[0] in COLUMNS or by_column(word, "1", COLUMNS) is not None


def _spellings(key: str) -> list[str]:
    """Return a key, and of one with dots its last parts: parallelism.tensor_parallel_degree."""
    parts = key.strip().lower().removeprefix("--").replace("-", "_").split(".")
    return list(dict.fromkeys(("_".join(parts), "_".join(parts[-2:]), parts[-1])))


def _is_called(column: Column, word: str) -> bool:
    names = (folded(name) for name in column.other_names)
    return column.kind in _PLAIN and folded(word) in names
