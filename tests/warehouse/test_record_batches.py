"""Memory of the evaluation: what it frees it has at hand again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

COLUMN_BYTES = 1_000_000
NUM_COLUMNS = 20
ROUNDS = 50
PAGE_BYTES = 4096

FAULTS = f"""
import sys
from resource import RUSAGE_SELF, getrusage
from threading import Thread
import numpy as np
from warehouse.database.record_batches import record_batches
from estimators.registry import get
if sys.argv[1] == "evaluating":
    list(record_batches(get("training_step").relations[0], iter(()), print))
def columns():
    before = getrusage(RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        columns = [np.ones({COLUMN_BYTES}, dtype=np.uint8) for _ in range({NUM_COLUMNS})]
        del columns
    print(getrusage(RUSAGE_SELF).ru_minflt - before)
thread = Thread(target=columns)
thread.start()
thread.join()
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its limits are those of glibc")
def test_columns_that_are_freed_are_not_faulted_in_again() -> None:
    kept, given_back = (
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, what], check=True, capture_output=True, text=True
            ).stdout
        )
        for what in ("evaluating", "not")
    )
    pages = NUM_COLUMNS * COLUMN_BYTES // PAGE_BYTES
    # those of the first round; where nothing was evaluated, of each round until glibc learns
    assert kept < 2 * pages, (kept, given_back)
    assert given_back > 2 * pages, "without it there would be nothing to mend"
