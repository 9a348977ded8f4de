"""Estimates compared with published measurements, as `validate` and `quickstart` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.cli.common import Section, fetched
from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAIN = "published_megatron_scaling"
"""The reference table that the quickstart shows row by row."""

_ACCURACY = """\
select
    reference, published_group, estimator, variant, num_rows, mean_absolute_relative_error,
    max_absolute_relative_error, bias, mean_absolute_error_beyond_rounding,
    time_mean_absolute_relative_error, spearman_correlation,
    baseline_mean_absolute_relative_error, line_mean_absolute_relative_error,
    rescaled_mean_absolute_relative_error
from estimator_accuracy
order by reference, published_group, estimator, variant"""

_HOW = """\
How far the estimates are from published steps
(errors of the predicted FLOP/s, positive where too fast; baselines, each from the other rows of the
group: their mean, a line in ln(hidden size), the estimator's own predictions times a factor; an
estimator that takes the peak rate predicts no step: its error says how far below it runs are)"""

_REFERENCES = "select distinct reference from megatron_comparison order by reference"

_COMPARISON = """\
select
    published_row, num_gpus, tensor_parallel, pipeline_parallel, data_parallel, microbatch_size,
    virtual_pipeline, estimator, variant, published_flops_per_second_per_gpu,
    predicted_flops_per_second_per_gpu, published_step_seconds, step_seconds,
    case when num_choices > 1 then lowest_step_seconds end as lowest_step_seconds,
    case when num_choices > 1 then highest_step_seconds end as highest_step_seconds,
    relative_error
from megatron_comparison
where reference = {reference}
order by estimator, variant, published_group, num_gpus, published_row"""

_BY_DEGREE = """\
select
    accelerator, degree, degree_value, estimator, variant, num_rows, bias,
    mean_absolute_relative_error
from accuracy_by_degree
order by accelerator, degree, degree_value, estimator, variant"""

_WHOLE_RUNS = """\
select
    published_row, estimator, variant, num_gpus, published_training_seconds,
    measured_training_seconds, training_seconds, time_relative_error
from training_time_comparison
order by estimator, variant, reference, published_row"""

_AT_PUBLISHED_RATE = """\
select
    published_row, estimator, variant, num_gpus, published_training_seconds, training_seconds,
    is_within_rounding, approximate_training_seconds
from training_time_at_published_rate
order by estimator, variant, reference, published_row"""


def comparison(connection: DuckDBPyConnection, *, whole: bool = False) -> list[Section]:
    """Return the errors per reference table, estimator and variant, then published steps.

    Parameters
    ----------
    whole
        All tables row by row, errors by degree and times of whole runs; by default table 1 of
        arXiv 2104.04473 alone.
    """
    sections = [Section(_HOW, *fetched(connection, _ACCURACY))]
    found = [str(row[0]) for row in fetched(connection, _REFERENCES)[1]]
    for reference in found if whole else [MAIN]:
        table = fetched(connection, _COMPARISON.format(reference=literal(reference)))
        sections.append(Section(f"Published and predicted steps of {reference}", *table))
    if not whole:
        return sections
    by_degree = "Error by degree, over the programs whose constants are taken"
    sections.append(Section(by_degree, *fetched(connection, _BY_DEGREE)))
    whole_runs = "Whole runs: published, at the measured step, at the predicted step"
    sections.append(Section(whole_runs, *fetched(connection, _WHOLE_RUNS)))
    columns, rows = fetched(connection, _AT_PUBLISHED_RATE)
    if rows:
        heading = "Whole runs: published, by their FLOPs at the published rate, approximately"
        sections.append(Section(heading, columns, rows))
    return sections
