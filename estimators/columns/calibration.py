"""Columns of calibrations: constants fitted to published steps, and the errors of the fit."""

from __future__ import annotations

from estimators.columns.column import Column, measure, positive, signed, text
from estimators.columns.forms import BIAS, ERROR, ERROR_SIZE

_ESTIMATES = {
    "untuned": "of the default constants",
    "fitted": "of the fitted constants on the rows they were fitted to",
    "left_out": "of each row by constants fitted to the other rows",
}

CALIBRATION = (
    text("row_filters", "Conditions on the rows of the reference that were used; empty: all rows"),
    text(
        "fit_parameter",
        "Fitted parameter: the constant, or the factor that several constants share",
    ),
    Column("default_constant_value", "float", "", "Value of the constant before the fit"),
    Column("fitted_constant_value", "float", "", "Value of the constant that the fit chose"),
    Column("lower_bound", "float", "", "Lower bound of the fitted value"),
    Column("upper_bound", "float", "", "Upper bound of the fitted value"),
    Column("is_at_bound", "bool", "", "Whether the fitted value is one of its bounds"),
    Column(
        "lowest_left_out_value",
        "float",
        "",
        "Smallest value among the fits that each leave one row out",
    ),
    Column(
        "highest_left_out_value",
        "float",
        "",
        "Largest value among the fits that each leave one row out",
    ),
    *(
        column
        for name, whose in _ESTIMATES.items()
        for column in (
            measure(
                f"{name}_mean_absolute_relative_error",
                "",
                f"Mean size of the errors {whose}",
                shown_as=ERROR_SIZE,
            ),
            measure(
                f"{name}_max_absolute_relative_error",
                "",
                f"Largest size of the errors {whose}",
                shown_as=ERROR_SIZE,
            ),
            signed(
                f"{name}_bias",
                f"Mean of the errors {whose}; positive where steps are too slow",
                shown_as=BIAS,
            ),
            positive(f"{name}_step_seconds", "seconds", f"Time of a step {whose}"),
            signed(
                f"{name}_relative_error",
                f"Time of a step {whose} over the published one, less one",
                shown_as=ERROR,
            ),
        )
    ),
)
