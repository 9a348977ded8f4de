"""The README's commands run as they stand there, and print what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
TIMING = re.compile(r"in [\d.,]+ s \([\d,]+ rows/s\)")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _commands() -> list[tuple[str, str]]:
    """Return the commands of all console blocks in order, each with what it prints."""
    found = []
    for block in _blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place after `make quickstart`, with the README's own files."""
    place = tmp_path_factory.mktemp("readme")
    assert _run("warehouse quickstart", place)
    for block in (*_blocks("toml"), *_blocks("csv")):
        name, _, content = block.partition("\n")
        (place / name.removeprefix("# ")).write_text(content if name.endswith("csv") else block)
    return place


def _run(command: str, place: Path) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("WAREHOUSE_DB", "PYTHONPATH")
    }
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env={**environment, "PATH": f"{scripts}{os.pathsep}{environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Where a command has nothing to print, the README shows what it says.
    return done.stdout or done.stderr


def test_every_command_prints_what_the_readme_shows(directory: Path) -> None:
    commands = _commands()
    assert len(commands) >= 8
    for command, shown in commands:
        printed = _run(command, directory)
        assert _comparable(printed) == _comparable(shown), command


def _comparable(text: str) -> list[str]:
    lines = [TIMING.sub("in # s (# rows/s)", line).rstrip() for line in text.splitlines()]
    return [line for line in lines if line]


def test_the_python_of_the_readme_runs(directory: Path) -> None:
    [code] = _blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code + "\nassert best.height > 0"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_readme_or_its_tour() -> None:
    from typer.main import get_command

    from warehouse.cli.main import app

    names = set(get_command(app).commands)  # type: ignore[attr-defined]
    missing = {name for name in names if not re.search(rf"`?warehouse {name}\b", README)}
    assert missing - {"init"} == set()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
