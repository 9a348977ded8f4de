"""Columns of a team's own measurements."""

from __future__ import annotations

from estimators.columns.column import positive, signed, text
from estimators.columns.forms import ERROR

MEASUREMENTS = (
    text("measured_row", "Name of the run, unique within its measurements"),
    text("measurement_file", "File that the measurements were read from"),
    positive("measured_step_seconds", "seconds", "Time of a step as measured"),
    positive("measured_memory_bytes", "bytes", "Memory of the fullest GPU as measured"),
    signed("memory_relative_error", "Estimated over measured memory, less one", shown_as=ERROR),
)
