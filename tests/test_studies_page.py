"""docs/studies.md: its study is complete, and what happens next is what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.build.console import blocks, commands, write_files
from tests.shared import call, printed

PAGE = (Path(__file__).parents[1] / "docs" / "studies.md").read_text("utf-8")
REQUIRED = ("name", "estimator", "model", "accelerator", "num_gpus", "global_batch_size")


def without_figures(text: str) -> list[str]:
    """Return the lines of an output, each with a mark for every number and every rule."""
    return [
        re.sub(r"\s+", " ", re.sub(r"[\d.,]*\d|-{3,}", "#", line)).strip()
        for line in text.strip().splitlines()
    ]


@pytest.mark.long
def test_the_first_study_runs_and_its_rows_are_those_of_the_page(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    found = [command for block in blocks(PAGE, "console") for command in commands(block)]
    assert [command.text.split()[1] for command in found] == ["sweep", "sweep", "status", "rank"]
    for command in found:
        answer = printed(command.text, tmp_path)
        assert without_figures(answer) == without_figures(command.printed), command.text
        if "--dry-run" in command.text:
            assert answer == f"{command.printed.rstrip()}\n"
    code, _, err = call("drop", "mine", "--db", tmp_path / "db" / "warehouse.duckdb")
    assert (code, err.startswith("dropped mine: 6 cells")) == (0, True)


def test_each_of_its_keys_is_required(tmp_path: Path) -> None:
    (study,) = [block for block in blocks(PAGE, "toml") if block.startswith("# mine.toml")]
    for key in REQUIRED:
        lines = [line for line in study.splitlines() if not line.startswith(f"{key} =")]
        assert len(lines) == len(study.splitlines()) - 1
        file = tmp_path / "lacking.toml"
        file.write_text("\n".join(lines))
        code, _, err = call("sweep", file, "--dry-run", "--db", tmp_path / "none.duckdb")
        assert code == 3
        assert "is missing" in err
