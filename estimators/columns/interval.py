"""Columns of the interval of a step: its ends, and what the tables say about its making."""

from __future__ import annotations

from estimators.columns.column import Column, fraction, text
from estimators.columns.forms import PLAIN

INTERVAL = (
    text("interval_term", "Part of an interval that no constant of a formula makes"),
    text("cause", "What errs: constants with the same cause err together"),
    fraction(
        "other_share",
        "Share of all runs whose program makes the other choice; NULL of a constant with a range",
        shown_as=PLAIN,
    ),
    Column(
        "interval_record",
        "int",
        "",
        "Hash of the tables that an interval was computed from",
        storage="BIGINT",
    ),
)
