"""docs/launch_files.md: its commands print what the page shows, its figures are those counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from docs.build.console import blocks, commands, comparable, write_files
from tests.shared import printed
from warehouse.launch.torchtitan import configurations

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "launch_files.md").read_text("utf-8")


@pytest.mark.long
def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    found = [command for block in blocks(PAGE, "console") for command in commands(block)]
    assert len(found) == 3
    for command in found:
        assert comparable(printed(command.text, tmp_path)) == comparable(command.printed)


def test_figures_of_recipes_are_those_of_the_tests() -> None:
    data = json.loads((ROOT / "tests/warehouse/launch_bridge.json").read_text("utf-8"))
    refused = {why: len(names) for why, names in data["refused"].items()}
    read = sum(len(family["recipes"]) for family in data["families"].values())
    rest = sum(map(len, data["not_resolved"].values()))
    text = " ".join(PAGE.split())
    assert f"Of the {read + sum(refused.values()) + rest} performance recipes" in text
    assert f"{read} are read" in text
    assert f"did not resolve {rest} without" in text
    for why in ("Mamba layers", "LoRA", "an image model"):
        assert f"{why} ({refused[why]})" in text
    rows = [*configurations().values()]
    reasons = Counter(row["refused"] for row in rows)
    assert re.search(rf"Of the {len(rows)} configurations .* {reasons.pop('')} are read", text)
    figures = [int(each) for each in re.findall(r"\((\d+)\)", text.partition("The others have")[2])]
    assert sorted(figures) == sorted(reasons.values())
