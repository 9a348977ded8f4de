"""Bring docs/accuracy.md up to date: ``python -m benchmarks.accuracy_page``.

Runs the commands of the page on a new database and puts in what they print, the tables that no
command prints, and the pictures.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import pages
from benchmarks.published import TABLES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
PICTURES = ("accuracy", "measured_rates", "published_parts")
"""Plots that the page and README show."""

MADE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""A table between two comments that name it."""


def filled(text: str, database: Path, run: pages.Run = pages.printed) -> str:
    """Return the page with what its commands print on this database, and the tables."""
    text = pages.filled(text, ROOT, database, run)
    return MADE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)


def main() -> None:
    """Write the page anew."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "warehouse.duckdb"
        quickstart = (sys.executable, "-m", "warehouse.cli.main", "quickstart", "--small")
        subprocess.run([*quickstart, "--db", database], check=True, capture_output=True)
        PAGE.write_text(filled(PAGE.read_text("utf-8"), database), encoding="utf-8")
        for name in PICTURES:
            out = PAGE.parent / "pictures" / f"{name}.svg"
            plot = (sys.executable, "-m", "warehouse.cli.main", "plot", name, "--out", out)
            subprocess.run([*plot, "--db", database], check=True, capture_output=True)


if __name__ == "__main__":
    main()
