"""docs/questions.md: every query runs as it stands there, and answers what stands there.

``python tests/test_questions.py`` writes the answers of today into the page.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "questions.md"
TEXT = PAGE.read_text("utf-8")
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
STUDY = re.compile(r"```toml\n# (\S+)\n(.*?)```", re.DOTALL)
QUESTION = re.compile(r"^### (\d+)\. (.*)$", re.MULTILINE)


class Command(NamedTuple):
    """A command of a console block, and what the page says that it prints."""

    text: str
    printed: str


def commands(block: str) -> Iterator[Command]:
    """Yield a block's commands; one goes on until its quotes are closed."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        for number in range(1, len(lines) + 1):
            text = "\n".join(lines[:number])
            try:
                shlex.split(text)
            except ValueError:
                continue
            yield Command(text, "\n".join(lines[number:]))
            break


SETUP, *ASKED = [list(commands(block)) for block in BLOCK.findall(TEXT)]
COMMANDS = [command for block in ASKED for command in block]


def run(command: str, place: Path) -> str:
    hidden = ("WAREHOUSE_DB", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
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
    return done.stdout


def answers(place: Path) -> tuple[list[str], list[str]]:
    """Return what the commands print in an empty directory: those that set up, and the queries."""
    for name, content in STUDY.findall(TEXT):
        (place / name).write_text(content, encoding="utf-8")
    first = [run(command.text, place) for command in SETUP]
    with ThreadPoolExecutor(4) as pool:
        return first, list(pool.map(lambda command: run(command.text, place), COMMANDS))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    return answers(tmp_path_factory.mktemp("questions"))


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_studies_of_the_page_are_swept(answered: tuple[list[str], list[str]]) -> None:
    for command, printed in zip(SETUP, answered[0], strict=True):
        assert lines(printed) == lines(command.printed)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: f"query {number + 1}")
def test_a_question_has_the_answer_of_the_page(
    answered: tuple[list[str], list[str]], number: int
) -> None:
    assert lines(answered[1][number]) == lines(COMMANDS[number].printed)


def test_an_answer_is_more_than_its_header() -> None:
    for command in COMMANDS:
        assert len(lines(command.printed)) > 2, command.text


def test_there_are_twenty_questions_each_with_its_query_and_how_to_read_its_answer() -> None:
    assert [int(number) for number, _ in QUESTION.findall(TEXT)] == list(range(1, 21))
    _, *sections = QUESTION.split(TEXT)
    for title, section in zip(sections[1::3], sections[2::3], strict=True):
        assert title.endswith("?"), title
        reading = re.sub(r"^## .*$", "", BLOCK.sub("", section), flags=re.MULTILINE)
        assert len(BLOCK.findall(section)) == 1, title
        assert reading.strip().endswith("."), title


def rewrite() -> None:
    """Write today's answers into the page."""
    with tempfile.TemporaryDirectory() as place:
        first, rest = answers(Path(place))
    printed = iter([*first, *rest])

    def answered_block(match: re.Match[str]) -> str:
        parts = [f"$ {c.text}\n{next(printed)}" for c in commands(match[1])]
        return f"```console\n{''.join(parts)}```"

    PAGE.write_text(BLOCK.sub(answered_block, TEXT), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
