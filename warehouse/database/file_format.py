"""Settings with which every database file is opened."""

from __future__ import annotations

import os
from typing import Any

STORAGE_VERSION = "v1.5.0"
"""The format of DuckDB 2 cannot be read by the 1.5 shell, which is the one pip can install."""

CONFIG: dict[str, Any] = {"storage_compatibility_version": STORAGE_VERSION}
"""Settings with which every database file is opened."""
if hasattr(os, "sched_getaffinity"):
    # DuckDB counts the machine's cores; this process may use fewer.
    CONFIG["threads"] = len(os.sched_getaffinity(0))
