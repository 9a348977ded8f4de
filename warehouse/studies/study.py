"""Study files: a question in TOML, read and checked as a whole before anything is evaluated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Mends, Scalar, Search, Space
from warehouse.errors import InputError
from warehouse.limits import LINE_MARKS, control_character
from warehouse.studies.definitions import SECTIONS, Definitions, read_definitions
from warehouse.studies.toml_files import Faults, nearest, read_toml
from warehouse.studies.values import expand
from warehouse.studies.variants import DEFAULT_VARIANT, chosen_mends, parse_variants

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.estimator import Estimator

MAX_COMBINATIONS = 1_000_000
"""Most combinations of named values; the layouts that are searched over come on top."""

MAX_ROWS = 1_000_000_000
"""Most combinations where values of an estimator's row columns are counted too."""

MAX_STEPS = 10_000
"""Most combinations of coupled steps: each becomes a space."""

Step = Mapping[str, tuple["Scalar"]]
"""One step of [[coupled]]: each name with the one value that it takes."""

_KEYS = (
    *("name", "description", "estimator", "variant", "mends"),
    *("space", "system", "case", "coupled", *SECTIONS),
)


@dataclass(frozen=True)
class Study:
    """A question: what to evaluate, under which mends.

    Each space is a cartesian product of named values ([space] and [system] together). The study is
    their union: one space, or one for each [[case]] and each step of [[coupled]].
    """

    name: str
    estimator: str
    mends: tuple[Mends, ...]  # one set for each variant
    spaces: tuple[Space, ...]
    definition: dict[str, Any]  # JSON-able, ranges expanded, keys in a fixed order
    file: str  # the path that the user gave
    defined: Definitions = field(default_factory=Definitions)


def load_study(path: Path) -> Study:
    """Read the study in `path`."""
    file = str(path)
    needs = 'a study needs name = "...", estimator = "..." and a [space]'
    return read_study(read_toml(path, "a study", needs), file)


def read_study(table: Mapping[str, Any], file: str) -> Study:
    """Read a study from a table, as a TOML file holds it."""
    faults = Faults()
    study = _study(dict(table), file, faults)
    if study is None or faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    return study


def study_of_definition(definition: Mapping[str, Any], file: str) -> Study:
    """Return the study that a `Study.definition` describes, also after a round trip as JSON.

    A missing part is a `KeyError`.
    """
    return Study(
        name=definition["name"],
        estimator=definition["estimator"],
        mends=tuple(frozenset(mends) for mends in definition["mends"]),
        spaces=tuple(
            {name: tuple(values) for name, values in space.items()}
            for space in definition.get("spaces", ())  # none: an evaluated file
        ),
        definition=dict(definition),
        file=file,
        defined=Definitions(definition.get("models", {}), definition.get("systems", {}), file),
    )


def under(study: Study, mends: tuple[Mends, ...], called: str) -> Study:
    """Return `study` under other mends, as another study: its name ends in `called`."""
    if mends == study.mends:
        return study
    name = f"{study.name} {called}"
    known = registry.get(study.estimator).mends
    listed = [[mend for mend in known if mend in some] for some in mends]
    definition = {**study.definition, "name": name, "mends": listed}
    return replace(study, name=name, mends=mends, definition=definition)


def _study(table: dict[str, Any], file: str, faults: Faults) -> Study | None:
    name = _text(table, "name", faults, required=True)
    description = _text(table, "description", faults, required=False)
    estimator = _estimator(table, faults)
    search = estimator.search if estimator else None
    _refuse_unknown_keys(table, search, faults)
    if estimator is None or search is None:
        return None  # the estimator decides which values and mends are valid
    mends = _mends(table, estimator, faults)
    spaces = _spaces(table, search, faults)
    defined = read_definitions(table, file, faults)
    if faults.refusals:
        return None
    definition = {
        "name": name,
        "description": description,
        "estimator": estimator.name,
        "mends": [[mend for mend in estimator.mends if mend in some] for some in mends],
        "spaces": [{key: list(values) for key, values in space.items()} for space in spaces],
        **defined.as_data(),
    }
    return Study(name, estimator.name, mends, spaces, definition, file, defined)


def _text(table: dict[str, Any], key: str, faults: Faults, *, required: bool) -> str:
    value = table.get(key)
    if value is None:
        if required:
            hint = f'write {key} = "..." at the top of the file'
            below = next((name for name in _SECTIONS_OF_VALUES if key in _tables(table, name)), "")
            if below:
                hint = f"move it to the top of the file: now it is below the line {below}"
            faults.add(key, None, "is missing", hint)
        return ""
    if not isinstance(value, str):
        faults.add(key, value, "must be a text", f'write {key} = "..."')
    elif required and not (value.strip() and value.isprintable()):
        faults.add(key, value, "must be a text that can be printed on one line")
    elif reason := control_character(value, LINE_MARKS):
        faults.add(key, value, reason, "remove it")
    return str(value)


def _estimator(table: dict[str, Any], faults: Faults) -> Estimator | None:
    name = _text(table, "estimator", faults, required=True)
    if any(refusal.column == "estimator" for refusal in faults.refusals):
        return None
    estimator = faults.catch(registry.get, name)
    if estimator is not None and estimator.search is None:
        hint = f"use `warehouse evaluate --estimator {name} CONFIGS --out RESULTS`"
        faults.add("estimator", name, "has no search space to sweep", hint)
    return estimator


_SECTIONS_OF_VALUES = {"[space]": "space", "[system]": "system", "[[case]]": "case"}
"""Line -> the key of the section that begins there."""


def _tables(table: Mapping[str, Any], line: str) -> frozenset[str]:
    """Return the keys of all sections that begin with a line such as `[space]`."""
    given = table.get(_SECTIONS_OF_VALUES[line])
    parts = given if isinstance(given, list) else [given]
    return frozenset(key for part in parts if isinstance(part, dict) for key in part)


def _refuse_unknown_keys(table: dict[str, Any], search: Search | None, faults: Faults) -> None:
    """Refuse keys at the top of the file that no study of the search, or None: of any, has."""
    known = [search] if search else [e.search for e in registry.all_estimators() if e.search]
    space = {name for each in known for name in each.space_columns}
    system = {name for each in known for name in each.system_columns}
    for key, value in table.items():
        if key in _KEYS:
            continue
        if isinstance(value, dict) and f"{key}s" in SECTIONS:
            hint = f"define a {key} as [{key}s.NAME]"
        elif key in space:
            hint = "move it to the end of the file, below a line [space]"
        elif key in system:
            hint = "move it to the end of the file, below a line [system]"
        else:
            hint = nearest(key, _KEYS)
        faults.add(key, value, "is not a key of a study", hint)


def _mends(table: dict[str, Any], estimator: Estimator, faults: Faults) -> tuple[Mends, ...]:
    if "mends" not in table:
        variant = table.get("variant", DEFAULT_VARIANT)
        return faults.catch(parse_variants, estimator, variant) or ()
    ids = table["mends"]
    if "variant" in table:
        faults.add("mends", ids, "cannot be combined with `variant`", "keep one of them")
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        faults.add("mends", ids, "must be a list of texts", 'write mends = ["R1", "R2"]')
        return ()
    mends = faults.catch(chosen_mends, estimator, ids)
    return () if mends is None else (mends,)


def _spaces(table: dict[str, Any], search: Search, faults: Faults) -> tuple[Space, ...]:
    base = _section(table, "space", search, faults) | _section(table, "system", search, faults)
    cases = table.get("case", [{}])
    if not isinstance(cases, list) or not cases or not all(isinstance(c, dict) for c in cases):
        faults.add("case", cases, "must be an array of tables", "start each with a line [[case]]")
        return ()
    known = search.space_columns + search.system_columns
    spaces = []
    for number, case in enumerate(cases, 1):
        where = f"in [[case]] {number} " if "case" in table else ""
        spaces.append(base | _values(case, known, where, faults, "[[case]]"))
        first = spaces.index(spaces[-1]) + 1
        if first < number and not faults.refusals:
            faults.add("case", number, f"asks the same as [[case]] {first}")
    named = {key for space in spaces for key in space}
    steps = _coupled_steps(table.get("coupled", []), known, named, faults)
    spaces = [{**space, **step} for space in spaces for step in steps]
    if not faults.refusals and not all(spaces):
        faults.add("space", None, "is empty", "name at least one value, as num_gpus = 64")
    _refuse_too_many(spaces, search, faults)
    return tuple({key: space[key] for key in known if key in space} for space in spaces)


def _section(
    table: dict[str, Any], section: str, search: Search, faults: Faults
) -> dict[str, tuple[Scalar, ...]]:
    given = table.get(section, {})
    if not isinstance(given, dict):
        faults.add(section, given, "must be a table", f"start it with a line [{section}]")
        return {}
    known = {"space": search.space_columns, "system": search.system_columns}
    other = "system" if section == "space" else "space"
    rest = dict(given)
    for key in given:
        if key in known[other] and key not in known[section]:
            value, hint = rest.pop(key), f"move it to [{other}]"
            faults.add(key, value, f"is not a key of [{section}]", hint)
    return _values(rest, known[section], "", faults, f"[{section}]")


def _values(
    given: dict[str, Any], known: tuple[str, ...], where: str, faults: Faults, section: str
) -> dict[str, tuple[Scalar, ...]]:
    values = {}
    for key, value in given.items():
        if key not in known:
            is_definition = section == "[system]" and isinstance(value, dict)
            hint = "define a system as [systems.NAME]" if is_definition else nearest(key, known)
            faults.add(key, value, f"{where}is not a key of {section}", hint)
            continue
        expanded = faults.catch(expand, COLUMNS[key], value, where=where)
        if expanded is not None:
            values[key] = expanded
    return values


def _refuse_too_many(
    spaces: list[dict[str, tuple[Scalar, ...]]], search: Search, faults: Faults
) -> None:
    for without, limit in ((search.row_columns, MAX_COMBINATIONS), (frozenset[str](), MAX_ROWS)):
        combinations = sum(
            math.prod(len(values) for name, values in space.items() if name not in without)
            for space in spaces
        )
        if combinations <= limit:
            continue
        longest, values = max(spaces[0].items(), key=lambda item: len(item[1]))
        faults.add(
            *("space", None, f"has {combinations:,} combinations, more than {limit:,}"),
            f"shorten its ranges (`{longest}` has {len(values):,} values) or split it",
        )
        return


# ---- [[coupled]]: values that change together, the first with the first and so on ----


def _coupled_steps(
    given: object, known: Sequence[str], named: Collection[str], faults: Faults
) -> tuple[Step, ...]:
    """Return every combination of the steps of all groups; one without names for no group."""
    if not isinstance(given, list) or not all(isinstance(group, dict) for group in given):
        hint = "start each group with a line [[coupled]]"
        faults.add("coupled", given, "must be an array of tables", hint)
        return ()
    taken = set(named)
    groups = []
    for number, group in enumerate(given, 1):
        groups.append(_steps(group, f"in [[coupled]] {number} ", known, taken, faults))
        taken |= group.keys()
    total = math.prod(len(steps) for steps in groups)
    if total > MAX_STEPS:
        reason = f"has {total:,} combinations of steps, more than {MAX_STEPS:,}"
        faults.add("coupled", None, reason, "shorten its lists or split the study")
        return ()
    return tuple(
        {name: value for step in steps for name, value in step.items()}
        for steps in itertools.product(*groups)
    )


def _steps(
    group: dict[str, Any], where: str, known: Sequence[str], taken: set[str], faults: Faults
) -> list[Step]:
    """Return the steps of one group, in order."""
    columns: dict[str, tuple[Scalar, ...]] = {}
    for key, value in group.items():
        if key not in known:
            faults.add(key, value, f"{where}is not a key of [[coupled]]", nearest(key, known))
        elif key in taken:
            faults.add(key, value, f"{where}is named elsewhere as well", "name it once")
        else:
            values = faults.catch(partial(expand, repeats=True), COLUMNS[key], value, where=where)
            columns |= {} if values is None else {key: values}
    if len(columns) < len(group):
        return []  # refused above
    lengths = {key: len(values) for key, values in columns.items()}
    if len(columns) < 2 or max(lengths.values()) < 2:
        hint = "write lists of one length; a single value belongs to [space] or [system]"
        faults.add("coupled", None, f"{where}needs two keys or more, with two values or more", hint)
        return []
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        faults.add("coupled", None, f"{where}needs lists of one length", counts)
        return []
    rows = list(zip(*columns.values(), strict=True))
    for place, row in enumerate(rows):
        if row in rows[:place]:
            faults.add("coupled", place + 1, f"{where}is the same step as {rows.index(row) + 1}")
    return [{key: (value,) for key, value in zip(columns, row, strict=True)} for row in rows]
