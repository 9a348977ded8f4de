"""The database attached under another name, as dbt, marimo and others do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description

SHELL = Path(sys.executable).parent / "duckdb"


@pytest.fixture(scope="module")
def examples(quickstart: Quickstart) -> list[str]:
    """The example of each table macro."""
    with open_for_read(quickstart.database) as connection:
        things = Description(connection).things.values()
        found = [thing.example for thing in things if thing.kind == "table macro"]
    assert len(found) == 12
    return found


def test_views_need_no_use(quickstart: Quickstart) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"attach '{quickstart.database}' as wh (read_only)")
        for view in ("configuration_rank", "training_cost", "published_comparison"):
            assert connection.execute(f"from wh.{view} limit 1").fetchall()


@pytest.mark.long
def test_table_macros_answer_after_use(quickstart: Quickstart, examples: list[str]) -> None:
    attach = f"attach '{quickstart.database}' as wh (read_only); use wh"
    with duckdb.connect() as connection:
        connection.execute(attach)
        for example in examples:
            connection.execute(example).fetchall()
    answer = subprocess.run(
        [str(SHELL), "-csv", "-bail", "-c", f"{attach}; {'; '.join(examples)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
