"""Rows of the CSV files of this package: constants, rules and words, each with its source."""

from __future__ import annotations

import csv
from pathlib import Path


def rows_of(table: str) -> list[dict[str, str]]:
    """Return the lines of a table by the names of its columns.

    Parameters
    ----------
    table
        Path of the file in this package, without its ending: ``training_step/streams``.
    """
    with (Path(__file__).parent / f"{table}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
