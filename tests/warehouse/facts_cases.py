"""Small facts, and what a database or its folder holds of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warehouse.calibrate.store import drop_profile, replace_profile
from warehouse.database.connection import open_as_it_is, open_for_write
from warehouse.database.facts import ENTRIES, folder_of, read_facts


def store_profile(database: Path, name: str, value: float = 0.1 + 0.2) -> None:
    """Store a profile of one constant: the smallest fact."""
    row = {
        "profile": name,
        "reference": "published",
        "estimator": "training_step",
        "step_constant": "launch_seconds",
        "fitted_constant_value": value,
    }
    with open_for_write(database) as connection:
        replace_profile(connection, name, [row], [])


def forget_profile(database: Path, name: str) -> None:
    with open_for_write(database) as connection:
        drop_profile(connection, name)


def profiles(database: Path) -> dict[str, float]:
    """Return the constant of each profile that a database has."""
    with open_as_it_is(database) as connection:
        query = "select profile, fitted_constant_value from calibration order by 1"
        return dict(connection.execute(query).fetchall())


def facts_of(database: Path, *, with_open: bool = False) -> list[str]:
    """Return the names of the facts in force that the folder of a database has."""
    return [entry.name for entry in read_facts(folder_of(database)).live(with_open=with_open)]


def outcomes(database: Path) -> list[str]:
    """Return the outcome of each entry."""
    return [entry.outcome for entry in read_facts(folder_of(database)).entries]


def copied(database: Path, target: Path, *, with_facts: bool = True) -> Path:
    """Copy a database, by default with its folder of facts, to `target`."""
    shutil.copyfile(database, target)
    if with_facts and folder_of(database).exists():
        shutil.copytree(folder_of(database), folder_of(target))
    return target


def edit_lines(folder: Path, change: Callable[[list[str]], Any]) -> None:
    """Change the lines of a folder; those that `change` does not touch stay as they are."""
    path = folder / ENTRIES
    lines = path.read_text("utf-8").splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines), "utf-8")


def flip(place: int) -> Callable[[list[str]], None]:
    """Return a change of one digit of the checksum in a line, or of the id in the first."""

    def change(lines: list[str]) -> None:
        record = json.loads(lines[place])
        key = "checksum" if place else "id"
        lines[place] = lines[place].replace(record[key], record[key][::-1] + "x", 1)
        if not place:
            lines[place] = lines[place][1:]  # an id has no checksum: the line must be no JSON

    return change
