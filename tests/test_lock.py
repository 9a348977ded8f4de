"""requirements-dev.lock is complete: what it names is installed without resolving anything."""

from __future__ import annotations

import re
from importlib.metadata import distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

LOCK = Path(__file__).parents[1] / "requirements-dev.lock"
PROJECT = "training-warehouse"


def name_of(text: str) -> str:
    """Return a name as the lock spells it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def locked() -> dict[str, str]:
    """Return the packages of the lock that this Python needs, with their versions."""
    found = {}
    for line in LOCK.read_text("utf-8").splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate():
                [exact] = requirement.specifier
                found[name_of(requirement.name)] = exact.version
    return found


def needed(package: str, extras: frozenset[str]) -> list[Requirement]:
    """Return what a package needs here, with these of its extras."""
    return [
        each
        for each in map(Requirement, requires(package) or ())
        if each.marker is None
        or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def test_the_lock_has_all_that_its_packages_need() -> None:
    pinned = locked()
    installed = {name_of(each.name): each.version for each in distributions()}
    if any(installed.get(name, pinned[name]) != pinned[name] for name in pinned):
        pytest.skip("the lock could not be installed here: pyproject.toml chose the versions")
    missing, seen = [], set()
    waiting = [(PROJECT, frozenset({"dev"}))]
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in seen:
            continue
        seen.add((package, extras))
        for each in needed(package, extras):
            name = name_of(each.name)
            if name not in pinned or not each.specifier.contains(pinned[name], prereleases=True):
                missing.append(f"{package} needs {each}, the lock has {pinned.get(name)}")
            else:
                waiting.append((name, frozenset(each.extras)))
    assert missing == []
    assert {name for name, _ in seen} - {PROJECT} == pinned.keys()
