"""docs/sql-clients.md: every block runs on a copy of the small quickstart, or its SQL and rows do.

``make pages ARGS=sql-clients.md`` writes the answers of today into the page. The
sections of clients that the tests do not install show the answers to the same three questions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from docs.build.console import blocks, filled
from tests.shared import Quickstart

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "sql-clients.md").read_text("utf-8")
SECTIONS = {
    title: text
    for title, _, text in (part.partition("\n") for part in re.split(r"^## ", PAGE, flags=re.M))
}
SESSIONS = """\
import sys
from docs.build.console import with_sessions
sys.stdout.write(with_sessions(sys.stdin.read()))
"""
QUERY = re.compile(r'^>>> [A-Z]+ = """\n(.*?)^\.\.\. """', re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"\{\{ source\('wh', '(\w+)'\) \}\}")
ROW = re.compile(r"^[|│] (.*) [|│]$", re.MULTILINE)


def questions() -> list[str]:
    """The three questions as the section of Python names them."""
    return [text.replace("... ", "") for text in QUERY.findall(SECTIONS["Python: duckdb"])]


def shown_rows(block: str) -> list[tuple[str, ...]]:
    """The last three rows of a table that a client prints: those above are its heading."""
    rows = [re.split(r"\s*[|│]\s*", row.strip()) for row in ROW.findall(block)]
    return [tuple(row) for row in rows[-3:]]


@pytest.mark.long
def test_every_command_and_session_prints_what_the_page_shows(
    quickstart: Quickstart, tmp_path: Path
) -> None:
    (tmp_path / "db").mkdir()
    shutil.copyfile(quickstart.database, tmp_path / "db" / "warehouse.duckdb")
    assert len(questions()) == 3
    assert filled(PAGE, tmp_path) == PAGE
    # another process: marimo keeps DuckDB's types, which DuckDB reports when a process ends
    done = subprocess.run(
        [sys.executable, "-c", SESSIONS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=PAGE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == PAGE


@pytest.mark.long
@pytest.mark.parametrize("client", ["dbt-duckdb", "ibis", "JupySQL"])
def test_other_clients_show_the_answers_to_the_questions(
    quickstart: Quickstart, client: str
) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"attach '{quickstart.database}' as wh (read_only)")

        def first_rows(query: str) -> list[tuple[str, ...]]:
            rows = connection.execute(query).fetchall()[:3]
            return [tuple(map(str, row)) for row in rows]

        answers = [first_rows(question) for question in questions()]
        for text in blocks(SECTIONS[client], "sql"):
            query = SOURCE.sub(r"wh.\1", text.removeprefix("%%sql\n"))
            assert first_rows(query) in answers
    assert [shown_rows(text) for text in blocks(SECTIONS[client], "text")] == answers


def test_the_page_has_a_view_for_every_table_macro() -> None:
    macros = {path.stem for path in (ROOT / "sql" / "functions").glob("*.sql")}
    rows = re.findall(r"^\| (`.*) \| `\w+`", SECTIONS["Rules for every client"], re.MULTILINE)
    assert macros == {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
