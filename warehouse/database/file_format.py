"""Settings with which every database file is opened."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STORAGE_VERSION = "v1.5.0"
"""The format of DuckDB 2 cannot be read by the 1.5 shell, which is the one pip can install."""

PLANNING = {"disabled_optimizers": "projection_pullup"}
"""Optimizers that are turned off: they cost planning time and change no result.

After each move of a projection, `projection_pullup` renames its columns in the whole plan. That
takes a quarter of the time to plan views that rest on many others, and no query runs faster for it.
"""

CONFIG: dict[str, Any] = {"storage_compatibility_version": STORAGE_VERSION, **PLANNING}
"""Settings with which every database file is opened."""
if hasattr(os, "sched_getaffinity"):
    # DuckDB counts the machine's cores; this process may use fewer.
    CONFIG["threads"] = len(os.sched_getaffinity(0))

_METADATA = re.compile(r"duckdb-(?P<version>[^-]+)\.dist-info")


def duckdb_version() -> str:
    """Return the version of DuckDB, from its installation if it is not imported yet.

    An import, or `importlib.metadata`, would take longer than all other steps of a new database.
    """
    spec = None if "duckdb" in sys.modules else find_spec("duckdb")
    if spec is not None and spec.origin:
        installed = (path.name for path in Path(spec.origin).parents[1].iterdir())
        found = [match["version"] for name in installed if (match := _METADATA.fullmatch(name))]
        if len(found) == 1:
            return str(found[0])
    import duckdb

    return str(duckdb.__version__)
