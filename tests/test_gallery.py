"""docs/gallery.md has every plot, with a picture, its command and its query."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.build.console import arguments_of
from docs.build.gallery import GALLERY, PAGE, PICTURES, SWEEPS, command_of
from warehouse.cli import main
from warehouse.plot.registry import PLOTS

TEXT = PAGE.read_text("utf-8")
SHOWN = {shown.name: shown for section in GALLERY.values() for shown in section}
ROOT = Path(__file__).parents[1]


def test_every_plot_is_in_the_gallery() -> None:
    assert set(SHOWN) == set(PLOTS)
    assert [f"## {section}" in TEXT for section in GALLERY] == [True] * len(GALLERY)
    assert all(f"warehouse {command}" in TEXT for command in SWEEPS)


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_has_its_title_its_command_and_its_query(name: str) -> None:
    command = command_of(SHOWN[name], f"{name}.svg")
    part = TEXT.partition(f"```\n{command}\n```")[2].partition("\n### ")[0]
    first = PLOTS[name].sql.splitlines()[0]
    assert part.lstrip().startswith(f"```sql\n{first}")
    picture = re.search(rf"!\[(.+)\]\(pictures/{name}\.svg\)", TEXT)
    assert picture is not None
    svg = ElementTree.fromstring((PICTURES / f"{name}.svg").read_bytes())
    words = " ".join(text.strip() for text in svg.itertext())
    # the command adds the tokens of the runs to the title of the picture
    title = re.sub(r", for [\d.]+ T tokens$", "", picture[1])
    assert set(title.split()) <= set(words.split())


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_of_the_gallery_has_options_that_the_plot_takes(name: str) -> None:
    arguments = arguments_of(command_of(SHOWN[name], "a.svg"))
    assert arguments is not None
    options = {word.removeprefix("--").replace("-", "_") for word in arguments if word[:2] == "--"}
    assert options - {"out"} <= set(PLOTS[name].filters)
    assert "plot" in main.program.commands


def test_pictures_are_small_and_all_are_shown() -> None:
    found = {path.stem: path.stat().st_size for path in PICTURES.glob("*.svg")}
    assert set(found) == {*PLOTS, "rivals"}  # that page has a picture of its own
    assert sum(found.values()) < 3_000_000
