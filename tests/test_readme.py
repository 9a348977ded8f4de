"""The commands of README and tour run as written, and print what the pages show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.build.console import blocks, commands, comparable, write_files
from tests.shared import Quickstart, Shared, printed

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")
PAGES = {"README.md": README, "docs/tour.md": TOUR}
DEFAULT = "db/warehouse.duckdb"


@pytest.fixture
def directory(whole_quickstart: Quickstart, shared: Shared) -> Iterator[Path]:
    """A place after `make quickstart`, with the tour's own files."""
    assert whole_quickstart.exit_code == 0, whole_quickstart.err
    place = whole_quickstart.database.parents[1]
    with shared.alone("whole"):
        write_files(TOUR, place)
        yield place


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_what_the_page_shows(
    directory: Path, whole_quickstart: Quickstart, page: str
) -> None:
    # a quickstart names the file that it is given
    done = whole_quickstart.out.replace(f" --db {whole_quickstart.database}", "")
    ran = {"warehouse quickstart": done.replace(str(whole_quickstart.database), DEFAULT)}
    found = [command for block in blocks(PAGES[page], "console") for command in commands(block)]
    assert len(found) >= 5
    for command in found:
        answer = ran.get(command.text) or printed(command.text, directory)
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
    missing = {name for name in names if not re.search(rf"`?warehouse {name}\b", README + TOUR)}
    assert missing - {"init"} == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_readme_is_read_in_one_go() -> None:
    assert len(README.splitlines()) <= 200
