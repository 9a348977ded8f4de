"""docs/python.md: its sessions run in order and print what the page shows.

``make pages ARGS=python.md`` writes the answers of today into the page.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.build.console import SESSION, shown_session, with_sessions
from tests.shared import Quickstart
from warehouse import Warehouse

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


@pytest.mark.long
def test_every_session_prints_what_the_page_shows(
    quickstart: Quickstart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAREHOUSE_DB", raising=False)
    (tmp_path / "db").mkdir()
    shutil.copyfile(quickstart.database, tmp_path / "db" / "warehouse.duckdb")
    assert len(SESSION.findall(PAGE)) >= 10
    assert with_sessions(PAGE) == PAGE


def test_a_session_that_prints_something_else_is_found() -> None:
    assert shown_session(">>> 1 + 1\n3\n>>> x = 2\n", {}) == ">>> 1 + 1\n2\n>>> x = 2\n"


def test_the_page_names_every_method_and_script() -> None:
    methods = {name for name in vars(Warehouse) if not name.startswith("_")}
    assert methods - set(re.findall(r"`(\w+)`", PAGE)) == set()
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == set(re.findall(r"`(\w+\.py)`", PAGE))
