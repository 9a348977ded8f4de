"""Columns of the megatron_flops estimator, and of the view that compares its whole runs."""

from __future__ import annotations

from estimators.columns.column import MEGATRON, Column, measure, positive
from estimators.columns.forms import DAYS, ERROR, FLOPS_PER_SECOND_PER_GPU

_EQUATION_4 = f"{MEGATRON} equation 4"

MEGATRON_FLOPS = (
    Column(
        "achieved_flops_per_second_per_gpu",
        "float",
        "FLOP/s",
        "FLOP/s that one GPU reaches, recomputation counted; the peak rate where none is given",
        _EQUATION_4,
        minimum=1,
        maximum=1e30,
        shown_as=FLOPS_PER_SECOND_PER_GPU,
    ),
    measure(
        "approximate_training_seconds",
        "seconds",
        "Time of the whole run as 8 T P / (n X); 6 T P / (n X) without recomputation",
        _EQUATION_4,
        shown_as=DAYS,
    ),
    Column(
        "approximation_error",
        "float",
        "",
        "approximate_training_seconds over training_seconds, less one",
    ),
    positive(
        "lowest_training_seconds",
        "seconds",
        "Time at the highest rate that rounds to the printed rate",
        shown_as=DAYS,
    ),
    positive(
        "highest_training_seconds",
        "seconds",
        "Time at the lowest rate that rounds to the printed rate",
        shown_as=DAYS,
    ),
    Column("is_within_rounding", "bool", "", "Whether rounding explains the whole difference"),
    Column(
        "approximate_time_relative_error",
        "float",
        "",
        "approximate_training_seconds over the published time, less one",
        shown_as=ERROR,
    ),
)
