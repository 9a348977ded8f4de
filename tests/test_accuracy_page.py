"""What docs/accuracy.md shows is what its commands print, and what the terms do."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published import parts_of, published_rows
from docs.build.accuracy import PAGE, filled
from docs.build.console import CONSOLE, commands
from estimators.training_step.step import TIMES
from tests.shared import Quickstart, printed


@pytest.fixture
def database(quickstart: Quickstart) -> Path:
    """The database of a small quickstart."""
    return quickstart.database


@pytest.mark.long
def test_the_page_is_up_to_date(database: Path) -> None:
    page = PAGE.read_text("utf-8")
    assert len(CONSOLE.findall(page)) == 6
    assert filled(page, database, printed) == page, "run `make pages ARGS=accuracy.md`"


def test_an_outdated_figure_is_found(tmp_path: Path) -> None:
    block = CONSOLE.search(PAGE.read_text("utf-8"))
    assert block is not None
    right, [command] = block[0], commands(block[1])
    wrong = right.replace(block[1].splitlines()[3], "published_megatron_h100_sc  all  roofline")
    assert filled(wrong, tmp_path, lambda *_: command.printed + "\n") == right != wrong


@pytest.mark.long
def test_the_parts_that_are_left_out_add_up_to_the_step(database: Path) -> None:
    rows = published_rows(database)
    parts = parts_of(rows)
    total = sum(parts[name] for name in TIMES)
    assert total == pytest.approx([row["step_seconds"] for row in rows], rel=1e-9)
