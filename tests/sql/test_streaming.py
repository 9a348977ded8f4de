"""DuckDB 1.5 shows the rows of every view and macro, under an alias, and comes to an end.

There a streamed result that has filled a megabyte waits for the joins, aggregates and windows over
large tables in the later parts of a union, and these wait for the first part (DuckDB's
`Executor::ResultCollectorIsBlocked`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from importlib.metadata import distribution
from pathlib import Path

import duckdb
import pytest

from tests.shared import Quickstart, Shared
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description
from warehouse.database.sql_text import quoted

SHELL = Path(str(distribution("duckdb-cli").locate_file("duckdb_cli/duckdb")))
"""The shell itself: the script of its name starts another process, which would outlive it."""

LARGE = 600_000
"""Rows of each of two tables: a union of one thread waits for tables of twice 245,760 rows."""

ENOUGH = 4_000_000
"""Bytes that are read: more than the buffer of a streamed result, one million."""

END = "-- end of "
"""Begins the line after the rows of a query."""

SILENCE = 60.0
"""Seconds without a byte after which a query hangs."""


def faults(database: Path, queries: dict[str, str]) -> dict[str, str]:
    """Return the queries that do not show their rows in the shell, by name, and why.

    Each is read to its end, or until the buffer has been full several times: then the shell, which
    would show all of them, makes room for another with the rest.
    """
    found: dict[str, str] = {}
    while queries:
        name, fault = _first_fault(database, queries)
        found |= {name: fault} if fault else {}
        names = list(queries)
        queries = {each: queries[each] for each in names[names.index(name) + 1 :]}
    return found


def _first_fault(database: Path, queries: dict[str, str]) -> tuple[str, str]:
    """Return the first query that does not end, with its fault, or else the last one."""
    script = [f"set threads = 1; attach '{database}' as wh (read_only);"]
    for name, query in queries.items():
        script += [f"{query};", f".print {END}{name}"]
    names, pipe = iter(queries), subprocess.PIPE
    with subprocess.Popen([SHELL, "-csv", "-bail"], stdin=pipe, stdout=pipe, stderr=pipe) as shell:
        assert shell.stdin and shell.stdout and shell.stderr
        shell.stdin.write("\n".join(script).encode())
        shell.stdin.close()
        name, read = next(names), b""
        while len(read) < ENOUGH:
            hangs = threading.Timer(SILENCE, shell.kill)
            hangs.start()
            more = os.read(shell.stdout.fileno(), ENOUGH)
            hangs.cancel()
            if not more:
                silent = f"{SILENCE} s without a row" if shell.wait() < 0 else ""
                return name, silent or shell.stderr.read().decode()
            read += more
            while (end := f"{END}{name}\n".encode()) in read:
                read = read.partition(end)[2]
                last, name = name, next(names, "")
                if not name:
                    return last, ""
        shell.kill()
    return name, ""


@pytest.fixture(scope="module")
def large(quickstart: Quickstart, shared: Shared) -> Path:
    """The small quickstart with more rows of two estimators."""

    def make(place: Path) -> None:
        path = shutil.copyfile(quickstart.database, place / "large.duckdb")
        with duckdb.connect(str(path)) as connection:
            for table in ("roofline", "training_step"):
                more = f"{LARGE} // (select count(*) from {table})"
                connection.execute(
                    f"insert into {table} select layout.* replace "
                    f"(layout.step_seconds * (1 + number / 1e3) as step_seconds) "
                    f"from {table} as layout, range(1, 1 + {more}) as copies (number)"
                )

    return shared("large", make) / "large.duckdb"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["view", "table macro"])
def test_rows_stream_in_the_older_shell(large: Path, kind: str) -> None:
    with open_for_read(large) as connection:
        things = [t for t in Description(connection).things.values() if t.kind == kind]
    queries = {
        thing.name: f"from wh.{quoted(thing.name)}"
        if kind == "view"
        else f"use wh; {re.sub(r' limit [0-9]+$', '', thing.example)}"
        for thing in things
    }
    assert len(queries) > 10
    assert faults(large, queries) == {}


@pytest.mark.long
def test_a_query_that_waits_for_its_own_rows_is_found(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sql.test_streaming.SILENCE", 3.0)
    waits = (
        "select step_seconds, cell_id from wh.roofline join wh.cell using (cell_id) union all "
        "select max(step_seconds), cell_id from wh.training_step group by cell_id, data_parallel"
    )
    found = faults(
        large,
        {"one": "from range(2)", "waits": waits, "bad": "from nothing", "two": "from range(2)"},
    )
    assert found.keys() == {"waits", "bad"}
    assert found["waits"] == "3.0 s without a row"
    assert "nothing does not exist" in found["bad"]
