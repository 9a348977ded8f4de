"""Rows of the CSV files beside this module: constants of the formulas, each with its source."""

from __future__ import annotations

import csv
from pathlib import Path


def rows_of(table: str) -> list[dict[str, str]]:
    """Return the lines of a table by the names of its columns."""
    with Path(__file__).with_name(f"{table}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
