"""How many cores this process may use, and how many worker processes a sweep starts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_ROWS_OF_WORKER = 1_000_000
"""Rows for which one more worker pays: starting it takes as long as evaluating that many."""

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the cores that this process may use: by its affinity and by its control group."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *_quotas()]))


def _quotas() -> list[int]:
    """Return the limits of the control groups that this process is in, in whole cores."""
    quotas = []
    with suppress(OSError):
        own = _OWN_CGROUP.read_text(encoding="utf-8").rpartition("::")[2].strip().lstrip("/")
        folder = _CGROUPS / own
        for group in (folder, *folder.parents):
            if not group.is_relative_to(_CGROUPS):
                break
            with suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
                quotas.append(int(quota) // int(period))  # "max" is no number: no limit
    return quotas


def default_workers(rows: int) -> int:
    """Return how many processes evaluate `rows` rows: two thirds of the cores at most.

    The other cores compress and write. On two cores this process does everything, and evaluation
    and storage overlap anyway.
    """
    return max(1, min(usable_cores() * 2 // 3, rows // _ROWS_OF_WORKER))
