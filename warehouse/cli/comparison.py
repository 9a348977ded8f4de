"""Estimates compared with published measurements, as `validate` shows them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from warehouse.cli.common import fetched
from warehouse.database.sql_text import literal
from warehouse.database.tables import MEASUREMENTS
from warehouse.show.page import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

_BY_GROUP = f"""\
select
    estimator,
    group_in_words(reference, published_group, is_own_run) as published_group,
    num_published, num_refused, time_mean_absolute_relative_error,
    time_median_absolute_relative_error, time_bias, time_max_absolute_relative_error,
    inside_fraction, time_spearman_correlation, constant_time_mean_absolute_relative_error,
    memory_mean_absolute_relative_error
from published_accuracy
where
    grouped_by = 'group'
    and estimator in (select published_estimate.estimator from published_estimate)
order by estimator, reference <> {literal(MEASUREMENTS)}, reference, published_group"""

_HEADINGS = {
    "published_group": "measured",
    "time_mean_absolute_relative_error": "mean",
    "time_median_absolute_relative_error": "median",
    "time_bias": "bias",
    "time_max_absolute_relative_error": "worst",
    "inside_fraction": "inside",
    "time_spearman_correlation": "rank",
    "constant_time_mean_absolute_relative_error": "constant",
    "memory_mean_absolute_relative_error": "memory",
    "num_error_clusters": "clusters",
    "least_inside_share": "by chance",
    "is_missed": "missed",
    "mean_interval_width": "width",
    "mean_interval_score": "score",
    "interval_places": "places",
}
"""Short headings of tables whose own heading explains them."""

_HOW_BY_GROUP = """\
How far {estimator} is from measured steps, by group
(errors of the time in percent, negative where too fast; refused: rows that it cannot represent;
inside: percent of the times in the interval of the step, meant to be 90; rank: correlation of the
ranks of the times; constant: mean error of the one utilization that fits the group best, on the
same rows; memory: mean error of the memory in percent)"""

_COVERAGE = f"""\
select
    estimator,
    group_in_words(
        reference, published_group, reference in (select measurement.reference from measurement)
    ) as published_group,
    num_rows, num_error_clusters, inside_fraction, least_inside_share, is_missed,
    mean_interval_width, mean_interval_score, interval_places
from interval_coverage
order by estimator, reference <> {literal(MEASUREMENTS)}, reference, published_group"""

_HOW_COVERED = """\
How many measured steps lie within the intervals of {estimator}: nine in ten should
(clusters: rows that err together; by chance: least share that chance alone explains, with one
independent row for each cluster; missed: fewer are inside; width: slow end over fast end - 1;
score: width plus 20 times the miss, in logarithms, smaller is better; places: rows beyond the fast
end, in each quarter of the interval, beyond the slow end; shares in percent)"""

_ACCURACY = """\
select
    group_in_words(
        reference, coalesce(published_group, 'all groups'), is_own_run
    ) as published_group,
    estimator, variant, num_timed, time_mean_absolute_relative_error,
    time_max_absolute_relative_error, time_bias, time_mean_absolute_error_beyond_rounding,
    rate_spearman_correlation, baseline_time_mean_absolute_relative_error,
    line_time_mean_absolute_relative_error, rescaled_time_mean_absolute_relative_error
from published_accuracy
where
    num_timed > 0
    and (grouped_by = 'group' or (grouped_by = 'reference' and num_timed_groups > 1))
order by reference, published_group, estimator, variant"""

_HOW = """\
How far the estimates are from published steps
(errors of the time, negative where too fast; Spearman: of the rates; baselines, each from the rates
of the other rows of the group: their mean, a line in ln(hidden size), the estimator's own
predictions times a factor; an estimator that takes the peak rate predicts no step: its error says
how far below it runs are)"""

_COMPARISON = """\
select
    reference, published_row, num_gpus, tensor_parallel, pipeline_parallel, data_parallel,
    microbatch_size, virtual_pipeline, estimator, variant, published_flops_per_second_per_gpu,
    predicted_flops_per_second_per_gpu, published_step_seconds, step_seconds,
    case when num_choices > 1 then lowest_step_seconds end as lowest_step_seconds,
    case when num_choices > 1 then highest_step_seconds end as highest_step_seconds,
    time_relative_error
from published_comparison
where {condition}
order by reference, estimator, variant, published_group, num_gpus, published_row"""

_BY_DEGREE = """\
select
    accelerator, framework, grouped_by as degree,
    coalesce(tensor_parallel, pipeline_parallel, microbatch_size) as degree_value, estimator,
    variant, num_timed, time_bias, time_mean_absolute_relative_error
from published_accuracy
where degree_value is not null and is_own_framework and not is_own_run and num_timed > 0
order by accelerator, framework, degree, degree_value, estimator, variant"""

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


_LAYOUT_RANK = """\
select
    model, num_gpus, num_fitting_layouts, rank_by_time, rank_in_recompute, speedup_of_best,
    best_tensor_parallel, best_pipeline_parallel, best_data_parallel, best_microbatch_size,
    best_activation_recompute
from megatron_layout_rank
where variant = 'corrected' and reference = 'published_megatron_scaling'
order by num_gpus, model"""
"""Of the table whose every layout study `megatron` searches."""


_SUMMARY = """\
select
    case when is_own_run then group_in_words(reference, 'all groups', true) else 'published steps'
    end as measured,
    estimator, variant, sum(num_timed)::bigint as num_timed,
    sum(num_timed * time_mean_absolute_relative_error) / sum(num_timed)
        as time_mean_absolute_relative_error,
    sum(num_timed * time_bias) / sum(num_timed) as time_bias,
    max(time_max_absolute_relative_error) as time_max_absolute_relative_error
from published_accuracy
where num_timed > 0 and grouped_by = 'reference'
group by is_own_run, measured, estimator, variant
order by is_own_run, measured, estimator, variant"""

_HOW_SUMMARY = """\
How far the estimates are from measured steps
(errors of the time in percent, negative where too fast)"""


def summary(connection: DuckDBPyConnection) -> Section:
    """Return the errors of each estimator, over all published steps and over each set of runs."""
    return Section(_HOW_SUMMARY, *fetched(connection, _SUMMARY), headings=_HEADINGS)


class _Table(NamedTuple):
    """A query, and the column for each of whose values the rows make a section."""

    heading: str
    query: str
    split_by: str | None = None
    headings: Mapping[str, str] = MappingProxyType({})
    is_shown_empty: bool = False


_TABLES = (
    _Table(_HOW_BY_GROUP, _BY_GROUP, "estimator", _HEADINGS),
    _Table(_HOW_COVERED, _COVERAGE, "estimator", _HEADINGS),
    _Table(_HOW, _ACCURACY, None, {"published_group": "measured"}, is_shown_empty=True),
    # one query: the view takes longer than all of its rows
    _Table("Published and predicted steps of {reference}", _COMPARISON, "reference"),
    _Table(
        "Error by degree, over the programs whose constants are taken",
        _BY_DEGREE,
        is_shown_empty=True,
    ),
    _Table(
        "Whole runs: published, at the measured step, at the predicted step",
        _WHOLE_RUNS,
        is_shown_empty=True,
    ),
    _Table(
        "Whole runs: published, by their FLOPs at the published rate, approximately",
        _AT_PUBLISHED_RATE,
    ),
    _Table(
        "Where Megatron's layouts rank among all that fit, and what would be faster", _LAYOUT_RANK
    ),
)


def comparison_columns(connection: DuckDBPyConnection) -> list[str]:
    """Return the columns of all tables, with their short headings."""
    queries = (f"describe {table.query.format(condition='true')}" for table in _TABLES)
    columns = [name for query in queries for name, *_ in connection.execute(query).fetchall()]
    return [*dict.fromkeys(columns), *_HEADINGS.values()]


def comparison(connection: DuckDBPyConnection, *, every_row: bool = False) -> list[Section]:
    """Return the errors by group, per reference table and estimator, then published steps.

    Errors by degree, times of whole runs and ranks of published layouts follow. `every_row` adds
    the rows of view `published_measurement`.
    """
    condition = "true" if every_row else f"reference <> {literal(MEASUREMENTS)}"
    sections = []
    for table in _TABLES:
        columns, rows = fetched(connection, table.query.format(condition=condition))
        if table.split_by is None:
            if rows or table.is_shown_empty:
                sections.append(Section(table.heading, columns, rows, headings=table.headings))
            continue
        at = columns.index(table.split_by)
        for value in dict.fromkeys(str(row[at]) for row in rows):
            heading = table.heading.format(**{table.split_by: value})
            of_value = [row for row in rows if row[at] == value]
            drop = {table.split_by}
            sections.append(Section(heading, columns, of_value, drop, table.headings))
    return sections
