"""docs/questions.md: every query runs as written, and its answer is the one on the page.

``make pages ARGS=questions.md`` writes the answers of today into the page.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from docs.build.console import CONSOLE, commands, comparable, write_files
from tests.shared import printed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "questions.md"
TEXT = PAGE.read_text("utf-8")
QUESTION = re.compile(r"^### (\d+)\. (.*)$", re.MULTILINE)


SETUP, *ASKED = [list(commands(block)) for block in CONSOLE.findall(TEXT)]
COMMANDS = [command for block in ASKED for command in block]


def answers(place: Path) -> tuple[list[str], list[str]]:
    """Return what the commands print in an empty directory: those that set up, and the queries."""
    write_files(TEXT, place)
    first = [printed(command.text, place) for command in SETUP]
    return first, [printed(command.text, place) for command in COMMANDS]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    return answers(tmp_path_factory.mktemp("questions"))


@pytest.mark.long
def test_the_studies_of_the_page_are_swept(answered: tuple[list[str], list[str]]) -> None:
    for command, answer in zip(SETUP, answered[0], strict=True):
        assert comparable(answer) == comparable(command.printed)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: f"query {number + 1}")
@pytest.mark.long
def test_a_question_has_the_answer_of_the_page(
    answered: tuple[list[str], list[str]], number: int
) -> None:
    assert comparable(answered[1][number]) == comparable(COMMANDS[number].printed)


def test_an_answer_is_more_than_its_header() -> None:
    for command in COMMANDS:
        assert len(comparable(command.printed)) > 2, command.text


def test_there_are_twenty_questions_each_with_its_query_and_how_to_read_its_answer() -> None:
    assert [int(number) for number, _ in QUESTION.findall(TEXT)] == list(range(1, 21))
    _, *sections = QUESTION.split(TEXT)
    for title, section in zip(sections[1::3], sections[2::3], strict=True):
        assert title.endswith("?"), title
        reading = re.sub(r"^## .*$", "", CONSOLE.sub("", section), flags=re.MULTILINE)
        assert len(CONSOLE.findall(section)) == 1, title
        assert reading.strip().endswith("."), title


@pytest.mark.parametrize(
    "page", ["README.md", "docs/tour.md", "docs/questions.md", "docs/planning.md"]
)
def test_no_answer_has_two_columns_of_one_name(page: str) -> None:
    blocks = CONSOLE.findall((ROOT / page).read_text("utf-8"))
    asked = [command for block in blocks for command in commands(block)]
    for command in (one for one in asked if one.text.startswith("warehouse sql")):
        for above, below in pairwise(command.printed.splitlines()):
            if re.fullmatch(r"-+( +-+)+", below):
                names = above.split()
                assert sorted(set(names)) == sorted(names), above
