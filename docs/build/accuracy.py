"""docs/accuracy.md: what its commands print, and the tables that no command prints."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.published import TABLES
from docs.build import console

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
MADE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""A table between two comments that name it."""


def filled(text: str, database: Path, ask: console.Run = console.printed) -> str:
    """Return the page with what its commands print on this database, and the tables."""
    text = console.filled(text, ROOT, database, ask)
    return MADE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)
