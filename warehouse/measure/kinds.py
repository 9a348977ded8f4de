"""Matches kinds of measured memory with the estimates that count the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from estimators.contract import Array

DEVICE = "memory_bytes"

OF_KIND = {"allocated": "allocated_bytes", "reserved": "reserved_bytes"}
"""Kind of measured memory -> the estimate that counts the same; other kinds: device memory."""

MEMORY_OF_KIND = (DEVICE, *OF_KIND.values())


def memory_of_kind(kinds: Sequence[str | None], estimates: Mapping[str, Array]) -> Array:
    """Return for each measurement the estimated memory of its kind, from estimates by column.

    If an estimator lacks these parts, every kind gets the estimate of the device's memory.
    """
    memory = estimates[DEVICE]
    for kind, name in OF_KIND.items():
        if name in estimates:
            memory = np.where([each == kind for each in kinds], estimates[name], memory)
    return memory
