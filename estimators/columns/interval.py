"""Columns of the interval of a step: its making, and how well it holds."""

from __future__ import annotations

from estimators.columns.column import Column, count, fraction, measure, text
from estimators.columns.forms import ERROR_SIZE, PLAIN, SCORE

INTERVAL = (
    text("interval_term", "Part of an interval that comes from no constant of a formula"),
    text("cause", "Cause of the error: constants with the same cause err together"),
    fraction(
        "other_share",
        "Share of all runs whose program makes the other choice; NULL of a constant with a range",
        shown_as=PLAIN,
    ),
    text("error_cluster", "Model, accelerator, program and number format: rows that err together"),
    Column(
        "interval_place",
        "float",
        "",
        "Place of the published time: -1 at the fast end, 0 at the estimate, 1 at the slow end",
    ),
    measure("interval_width", "", "Slow end over fast end, less one", shown_as=ERROR_SIZE),
    measure(
        *("interval_score", "", "Width in logarithms plus 20 times the miss; less is better"),
        shown_as=SCORE,
    ),
    count("num_error_clusters", "Groups of rows that err together: about as many are independent"),
    fraction(
        "least_inside_share",
        "Least share inside that chance alone explains, if nine in ten are inside on average",
    ),
    Column("is_missed", "bool", "", "Whether fewer are inside than chance explains"),
    measure("mean_interval_width", "", "Mean of interval_width", shown_as=ERROR_SIZE),
    measure("mean_interval_score", "", "Mean of interval_score", shown_as=SCORE),
    text(
        "interval_places",
        "Rows beyond the fast end, in the quarters of the interval from fast to slow, and beyond "
        "the slow end",
    ),
)
