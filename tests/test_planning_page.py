"""docs/planning.md: its commands run in order, from nothing, and print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.build.console import blocks, commands, comparable, write_files
from tests.shared import printed

PAGE = (Path(__file__).parents[1] / "docs" / "planning.md").read_text("utf-8")


@pytest.mark.long
def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    found = [command for block in blocks(PAGE, "console") for command in commands(block)]
    assert len(found) == 10
    for command in found:
        answer = printed(command.text, tmp_path)
        assert comparable(answer) == comparable(command.printed), command.text
