"""Columns of measurements: a team's own, published ones, and the errors of estimates on them."""

from __future__ import annotations

from estimators.columns.column import Column, fraction, identifier, measure, positive, signed, text
from estimators.columns.forms import BIAS, ERROR, ERROR_SIZE, MFU, SHARE, TIME_RANK_CORRELATION

MEMORY_KINDS = ("allocated", "reserved", "device", "unknown")
"""Kinds of measured memory; an `unknown` one is compared with that of the whole device."""


def _rows(name: str, meaning: str, heading: str) -> Column:
    return Column(name, "int", "rows", meaning, minimum=0, heading=heading)


MEASUREMENTS = (
    text("measured_row", "Name of the run, unique within its measurements"),
    text("measurement_file", "File that the measurements were read from"),
    identifier(
        "profiled_problem_id",
        "problem_id of the run with the constants of the profile that `measure` was given",
    ),
    positive("measured_step_seconds", "seconds", "Time of a step as measured"),
    positive("measured_memory_bytes", "bytes", "Memory of the fullest GPU as measured"),
    text(
        "measured_memory_kind",
        "Kind of a measured memory: that of tensors, of the allocator, or of the whole device",
        *MEMORY_KINDS,
    ),
    measure(
        "compared_memory_bytes", "bytes", "Estimated memory of the same kind as the measured memory"
    ),
    signed(
        "memory_relative_error",
        "Estimated over measured memory of the same kind, less one",
        shown_as=ERROR,
    ),
    text("published_precision", "Number format of the products, as the source calls it"),
    positive("published_memory_bytes", "bytes", "Published memory of the fullest GPU"),
    Column("fits_as_published", "bool", "", "Whether the run fitted in memory when it was made"),
    text("reason", "Reason why a run is not compared"),
    text("refusal", "Reason why the estimator refuses the configuration; NULL: it does not"),
    Column(
        "is_inside_interval",
        "bool",
        "",
        "Whether the published time is in the interval of the step",
    ),
    measure("published_mfu", "", "Model FLOP/s at the published time over the peak", shown_as=MFU),
)

GROUP_ERRORS = (
    _rows("num_published", "Number of published measurements in the group", "rows"),
    _rows("num_refused", "Number of them that the estimator refuses", "refused"),
    _rows("num_timed", "Number of them with a published time and an estimate", "timed"),
    measure(
        "time_median_absolute_relative_error",
        "",
        "Median size of the relative errors of time",
        shown_as=ERROR_SIZE,
    ),
    signed(
        "time_spearman_correlation",
        "Rank correlation of predicted and published times",
        TIME_RANK_CORRELATION,
    ),
    fraction("inside_fraction", "Share of the published times that are in their intervals"),
    measure(
        "constant_mfu",
        "",
        "The one utilization for the whole group with the least mean error of time",
        shown_as=MFU,
    ),
    measure(
        "constant_time_mean_absolute_relative_error",
        "",
        "Mean size of the errors of time at constant_mfu, on the same rows",
        shown_as=ERROR_SIZE,
    ),
    _rows("num_memory_rows", "Measurements with a published memory and an estimate", "memory rows"),
    measure(
        "memory_mean_absolute_relative_error",
        "",
        "Mean size of the relative errors of memory",
        shown_as=ERROR_SIZE,
    ),
    measure(
        "memory_max_absolute_relative_error",
        "",
        "Largest size of the relative errors of memory",
        shown_as=ERROR_SIZE,
    ),
    signed("memory_bias", "Mean relative error of memory; positive where too large", BIAS),
    _rows("num_fit_rows", "Measurements that say whether the run fitted, estimated", "fit rows"),
    measure(
        "fit_agreement",
        "",
        "Share of these for which the estimate says the same",
        shown_as=SHARE,
    ),
)
"""Errors of a group of measurements: view published_accuracy."""
