"""The README's commands run as written, and print what the README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.pages import blocks, commands, comparable, printed, write_files
from tests.shared import Quickstart, Shared

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def directory(whole_quickstart: Quickstart, shared: Shared) -> Iterator[Path]:
    """A place after `make quickstart`, with the README's own files."""
    assert whole_quickstart.exit_code == 0, whole_quickstart.err
    place = whole_quickstart.database.parents[1]
    with shared.alone("whole"):
        write_files(README, place)
        yield place


@pytest.mark.long
def test_every_command_prints_what_the_readme_shows(directory: Path) -> None:
    found = [command for block in blocks(README, "console") for command in commands(block)]
    assert len(found) >= 8
    for command in found:
        answer = printed(command.text, directory)
        assert comparable(answer) == comparable(command.printed), command.text


@pytest.mark.long
def test_the_python_of_the_readme_runs(directory: Path) -> None:
    [code] = blocks(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", code + "\nassert best.height > 0"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_readme_or_its_tour() -> None:
    from warehouse.cli.commands import COMMANDS

    names = {entry.name for entry in COMMANDS}
    missing = {name for name in names if not re.search(rf"`?warehouse {name}\b", README)}
    assert missing - {"init"} == set()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
