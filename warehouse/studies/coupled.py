"""Values of a study that change together, [[coupled]]: the first with the first, and so on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS
from warehouse.studies.toml_files import nearest
from warehouse.studies.values import expand

if TYPE_CHECKING:
    from estimators.contract import Scalar
    from warehouse.studies.toml_files import Faults

MAX_STEPS = 10_000
"""Most combinations of steps: each becomes a space of its own."""

Step = Mapping[str, tuple["Scalar"]]
"""The values of one step: each name with the one value it takes."""


def coupled_steps(
    given: object, known: Sequence[str], named: Collection[str], faults: Faults
) -> tuple[Step, ...]:
    """Return every combination of the steps of all groups; one without names for no group.

    Parameters
    ----------
    given
        What the study says under ``coupled``: a list of groups, each a table of lists or ranges
        of one length.
    known, named
        Columns that may be coupled, and those that the study names elsewhere.
    """
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
        return []  # told above
    lengths = {key: len(values) for key, values in columns.items()}
    if len(columns) < 2 or max(lengths.values()) < 2:
        hint = "write lists of one length; a value that stands alone belongs to [space] or [system]"
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
