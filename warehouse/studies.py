"""Study files: a question in TOML, read and checked whole before anything is evaluated."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Mends, Refusal, RefusedError, Scalar, Search, Space
from warehouse.errors import InputError
from warehouse.limits import shown
from warehouse.ranges import expand
from warehouse.variants import DEFAULT_VARIANT, chosen_mends, mends_of_variant

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Estimator

MAX_COMBINATIONS = 50_000_000
"""Most combinations of named values; the layouts that are searched over come on top."""

_KEYS = ("name", "description", "estimator", "variant", "mends", "space", "system", "case")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Study:
    """A question: what to evaluate, under which mends.

    Attributes
    ----------
    mends
        One set for each variant to run.
    spaces
        Each a cartesian product of named values ([space] and [system] together); the study
        is their union: one space, or one for each [[case]].
    definition
        The same as JSON-able data, ranges expanded, keys in a fixed order.
    file
        The file as the user named it.
    """

    name: str
    estimator: str
    mends: tuple[Mends, ...]
    spaces: tuple[Space, ...]
    definition: dict[str, Any]
    file: str


def load_study(path: Path) -> Study:
    """Read the study in `path`.

    Raises
    ------
    InputError
        If there is anything wrong with it; every fault is told.
    """
    file = str(path)
    table = _parse(_read(path, file), file)
    faults = _Faults()
    study = _study(table, file, faults)
    if study is None or faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    return study


class _Faults:
    """Collects refusals, so that one run tells all of them."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def add(self, key: str, value: object, reason: str, hint: str = "") -> None:
        self.refusals.append(Refusal(key, shown(value), reason, hint))

    def catch(self, function: Callable[..., _T], *arguments: object, where: str = "") -> _T | None:
        """Return what `function` returns, or None when it refuses."""
        try:
            return function(*arguments)
        except RefusedError as error:
            for r in error.refusals:
                self.refusals.append(Refusal(r.column, r.value, where + r.reason, r.hint))
        return None


def _read(path: Path, file: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{file}: is a directory, not a study", hint="name a .toml file") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = "save the file as UTF-8"
        raise InputError(f"{file}: line {line} is not UTF-8 text", hint=hint) from None
    if not text.strip():
        hint = 'a study needs name = "...", estimator = "..." and a [space]'
        raise InputError(f"{file}: is empty", hint=hint)
    return text


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        place = re.search(r"line (\d+)", str(error))
        lines = text.splitlines()
        line = lines[int(place[1]) - 1].strip() if place and int(place[1]) <= len(lines) else ""
        hint = f"the line reads: {line[:100]}" if line else ""
        raise InputError(f"{file}: is not valid TOML: {error}", hint=hint) from None


def _study(table: dict[str, Any], file: str, faults: _Faults) -> Study | None:
    name = _text(table, "name", faults, required=True)
    description = _text(table, "description", faults, required=False)
    estimator = _estimator(table, faults)
    search = estimator.search if estimator else None
    if estimator is None or search is None:
        return None  # which keys and mends are right depends on the estimator
    _refuse_unknown_keys(table, search, faults)
    mends = _mends(table, estimator, faults)
    spaces = _spaces(table, search, faults)
    if faults.refusals:
        return None
    definition = {
        "name": name,
        "description": description,
        "estimator": estimator.name,
        "mends": [[mend for mend in estimator.mends if mend in some] for some in mends],
        "spaces": [{key: list(values) for key, values in space.items()} for space in spaces],
    }
    return Study(name, estimator.name, mends, spaces, definition, file)


def _text(table: dict[str, Any], key: str, faults: _Faults, *, required: bool) -> str:
    value = table.get(key)
    if value is None:
        if required:
            faults.add(key, None, "is missing", f'write {key} = "..." at the top of the file')
        return ""
    if not isinstance(value, str):
        faults.add(key, value, "must be a text", f'write {key} = "..."')
    elif required and not (value.strip() and value.isprintable()):
        faults.add(key, value, "must be a text that can be printed on one line")
    return str(value)


def _estimator(table: dict[str, Any], faults: _Faults) -> Estimator | None:
    name = _text(table, "estimator", faults, required=True)
    if any(refusal.column == "estimator" for refusal in faults.refusals):
        return None
    estimator = faults.catch(registry.get, name)
    if estimator is not None and estimator.search is None:
        hint = f"use `warehouse evaluate {name} CONFIGS --out RESULTS`"
        faults.add("estimator", name, "has no search space to sweep", hint)
    return estimator


def _refuse_unknown_keys(table: dict[str, Any], search: Search, faults: _Faults) -> None:
    for key in table:
        if key in _KEYS:
            continue
        if key in search.space_columns:
            hint = "move it below a line [space]"
        elif key in search.system_columns:
            hint = "move it below a line [system]"
        else:
            hint = _nearest(key, _KEYS)
        faults.add(key, table[key], "is not a key of a study", hint)


def _mends(table: dict[str, Any], estimator: Estimator, faults: _Faults) -> tuple[Mends, ...]:
    if "mends" not in table:
        variant = table.get("variant", DEFAULT_VARIANT)
        return faults.catch(mends_of_variant, estimator, variant) or ()
    ids = table["mends"]
    if "variant" in table:
        hint = "keep one of them"
        faults.add("mends", ids, "cannot stand beside `variant`", hint)
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        faults.add("mends", ids, "must be a list of texts", 'write mends = ["R1", "R2"]')
        return ()
    mends = faults.catch(chosen_mends, estimator, ids)
    return () if mends is None else (mends,)


def _spaces(table: dict[str, Any], search: Search, faults: _Faults) -> tuple[Space, ...]:
    base = _section(table, "space", search, faults) | _section(table, "system", search, faults)
    cases = table.get("case", [{}])
    if not isinstance(cases, list) or not cases or not all(isinstance(c, dict) for c in cases):
        faults.add("case", cases, "must be an array of tables", "start each with a line [[case]]")
        return ()
    order = {key: place for place, key in enumerate(search.space_columns + search.system_columns)}
    spaces = []
    for number, case in enumerate(cases, 1):
        where = f"in [[case]] {number} " if "case" in table else ""
        own = _values(case, search.space_columns + search.system_columns, where, faults)
        merged = base | own
        spaces.append({key: merged[key] for key in sorted(merged, key=order.__getitem__)})
        first = spaces.index(spaces[-1]) + 1
        if first < number and not faults.refusals:
            faults.add("case", number, f"asks the same as [[case]] {first}")
    if not faults.refusals and not all(spaces):
        faults.add("space", None, "is empty", "name at least one value, as num_gpus = 64")
    _refuse_too_many(spaces, faults)
    return tuple(spaces)


def _section(
    table: dict[str, Any], section: str, search: Search, faults: _Faults
) -> dict[str, tuple[Scalar, ...]]:
    given = table.get(section, {})
    if not isinstance(given, dict):
        faults.add(section, given, "must be a table", f"start it with a line [{section}]")
        return {}
    known = {"space": search.space_columns, "system": search.system_columns}
    other = "system" if section == "space" else "space"
    misplaced = [key for key in given if key in known[other] and key not in known[section]]
    for key in misplaced:
        faults.add(key, given[key], f"is not a key of [{section}]", f"move it to [{other}]")
    rest = {key: value for key, value in given.items() if key not in misplaced}
    return _values(rest, known[section], "", faults, section)


def _values(
    given: dict[str, Any],
    known: tuple[str, ...],
    where: str,
    faults: _Faults,
    section: str = "case",
) -> dict[str, tuple[Scalar, ...]]:
    values = {}
    for key, value in given.items():
        if key not in known:
            name = "[[case]]" if section == "case" else f"[{section}]"
            faults.add(key, value, f"{where}is not a key of {name}", _nearest(key, known))
            continue
        expanded = faults.catch(expand, COLUMNS[key], value, where=where)
        if expanded is not None:
            values[key] = expanded
    return values


def _refuse_too_many(spaces: list[dict[str, tuple[Scalar, ...]]], faults: _Faults) -> None:
    combinations = sum(math.prod(len(values) for values in space.values()) for space in spaces)
    if combinations > MAX_COMBINATIONS:
        reason = f"has {combinations:,} combinations, more than {MAX_COMBINATIONS:,}"
        longest = max(spaces[0], key=lambda key: len(spaces[0][key]))
        hint = (
            f"shorten its ranges (`{longest}` has {len(spaces[0][longest]):,} values) or split it"
        )
        faults.add("space", None, reason, hint)


def _nearest(key: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(key, known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
