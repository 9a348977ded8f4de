"""Columns of a team's own measurements."""

from __future__ import annotations

from estimators.columns.column import Column, positive, text

MEASUREMENTS = (
    text("measured_row", "Which run of the measurements: a name that no other run of them has"),
    text("measurement_file", "File that the measurements were read from"),
    positive("measured_step_seconds", "seconds", "Time of a step as measured"),
    positive("measured_memory_bytes", "bytes", "Memory of the fullest GPU as measured"),
    Column("memory_relative_error", "float", "", "Estimated over measured memory, less one"),
)
