"""Batches and their memory: what is freed is at hand again, what is kept stays as it was."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from estimators.contract import Array, Cell, Relation
from warehouse.database.record_batches import BATCH_ROWS, Evaluated, record_batches

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


FACT = Relation("fact", "one row", ("num_gpus",), ("step_seconds",))
PIECE_ROWS = 50_000
NUM_PIECES = 12


class _Numbered:
    """A cell as far as batches know one."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.problem = self


def _batches() -> Iterator[pa.RecordBatch]:
    """Return batches whose rows are numbered; every third time is unknown."""

    def pieces() -> Evaluated:
        for number in range(NUM_PIECES):

            def fill(out: dict[str, Array], first: int = number * PIECE_ROWS) -> None:
                rows = np.arange(first, first + PIECE_ROWS)
                out["num_gpus"][:] = rows
                out["step_seconds"][:] = np.where(rows % 3 == 0, np.nan, rows / 2)

            yield cast("Cell", _Numbered(number)), PIECE_ROWS, fill

    return record_batches(FACT, pieces(), lambda _rows: None)


def test_batches_that_are_kept_stay_as_they_were() -> None:
    kept = list(_batches())

    assert [batch.num_rows for batch in kept[:-1]] == [BATCH_ROWS] * (len(kept) - 1)
    table = pa.Table.from_batches(kept)
    rows = np.arange(NUM_PIECES * PIECE_ROWS)
    assert np.array_equal(table["num_gpus"].to_numpy(), rows)
    assert np.array_equal(table["cell_id"].to_numpy(), rows // PIECE_ROWS)
    assert table["step_seconds"].null_count == np.count_nonzero(rows % 3 == 0)
    known = table["step_seconds"].to_numpy()[rows % 3 > 0]
    assert np.array_equal(known, rows[rows % 3 > 0] / 2)


def test_a_batch_reuses_the_memory_of_one_that_was_read() -> None:
    places = set()
    sums = []
    for batch in _batches():
        places.add(batch["num_gpus"].buffers()[1].address)
        sums.append(int(batch["num_gpus"].to_numpy().astype(np.int64).sum()))
        del batch

    assert len(places) <= 2 < len(sums)
    rows = NUM_PIECES * PIECE_ROWS
    assert sum(sums) == rows * (rows - 1) // 2
