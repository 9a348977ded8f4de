"""DuckDB 1.5 shows the rows of large views while it finds them, instead of waiting for ever.

There a streamed result that has filled a megabyte waits for the joins, aggregates and windows over
large tables in the later parts of a union, and these wait for the first part (DuckDB's
`Executor::ResultCollectorIsBlocked`).
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.shared import Quickstart, Shared

SHELL = Path(sys.executable).parent / "duckdb"
VIEWS = (
    *("configuration", "configuration_flops", "configuration_source"),
    *("stg_roofline", "current_roofline"),
)
"""Views of millions of rows that sort nothing."""

ENOUGH = 4_000_000
"""Bytes that are read: more than the buffer of a streamed result, one million."""


@pytest.mark.long
@pytest.mark.parametrize("view", VIEWS)
def test_rows_of_a_view_stream(whole_quickstart: Quickstart, shared: Shared, view: str) -> None:
    query = f"select step_seconds from {view} where model = 'gpt3_1T'"
    with shared.alone("whole"):
        command = [str(SHELL), "-readonly", "-csv", str(whole_quickstart.database), "-c", query]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as shell:
            assert shell.stdout is not None
            silent = threading.Timer(60, shell.kill)
            silent.start()
            try:
                found = len(shell.stdout.read(ENOUGH))
            finally:
                silent.cancel()
                shell.kill()
    assert found == ENOUGH
