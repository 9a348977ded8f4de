-- How far estimates are from published steps and your own runs: time, memory and baselines.
-- Grain: one row per grouping, estimator, variant and group of compared steps
-- Key: grouped_by, reference, published_group, is_own_framework, accelerator, framework,
-- tensor_parallel, pipeline_parallel, microbatch_size, estimator, variant
--
-- grouped_by says by which columns the steps are grouped. `group`: by reference and
-- published_group. `reference`: by reference. `program`: by reference and is_own_framework.
-- `tensor_parallel`, `pipeline_parallel` and `microbatch_size`: by accelerator, framework,
-- is_own_framework and that column; a trend along it shows that the term that grows with it is
-- wrong or missing. Columns that a row is not grouped by are NULL. is_own_run marks your own runs:
-- their reference is the name that they were stored under. Those of mixtures and in 8 bits do not
-- count (see compared_step).
--
-- Errors of the time and of the memory are estimated over published, less one: negative where the
-- estimate is too fast or too small. Those of the rate, with `rate` in their names, are positive
-- where it is too fast. The best constant is one utilization (model FLOP/s over the peak in the
-- precision of the matmuls) for all timed rows of the group: the one with the least mean size of
-- their errors of time. It is fitted to the rows that it is compared on; the estimate is not. A row
-- with the published utilization u has the error u / c - 1 at the constant c, so 1 / c is the
-- median of 1 / u, weighted with u. Each baseline sees the published rates of the other rows of the
-- group, never its own row: the mean of these rates; a line in the logarithm of the hidden size;
-- the estimator's predictions times one factor, the geometric mean of published over predicted. An
-- estimator that is no better than the mean explains nothing; one that only the factor improves
-- explains the differences but not the level. Only a `group` has correlations of ranks and the best
-- constant, as rates of different groups do not compare. The interval of a step is meant to hold
-- nine in ten of the published times. A refused configuration that was run is an error of the
-- estimator that no mean shows. The fit agrees where estimate and run both fit in memory, or
-- neither does; a refused one does not.
with comparison as materialized (
    select
        reference,
        published_row,
        published_group,
        is_own_run,
        is_own_framework,
        accelerator,
        framework,
        tensor_parallel,
        pipeline_parallel,
        microbatch_size,
        estimator,
        variant,
        ln(hidden_size) as width,
        published_flops_per_second_per_gpu as published,
        predicted_flops_per_second_per_gpu as predicted,
        published_rounding,
        published_step_seconds,
        step_seconds,
        time_relative_error,
        time_error_beyond_rounding,
        predicted / published - 1 as rate_error,
        is_inside_interval,
        published_mfu,
        memory_relative_error,
        fits_as_published,
        fits_memory
    from published_comparison
),

-- the line has no slope where all widths are equal
left_out as (
    select
        one.reference,
        one.published_row,
        one.estimator,
        one.variant,
        avg(other.published order by other.published) as baseline,
        nullif(
            regr_intercept(other.published, other.width order by other.width, other.published)
            + regr_slope(other.published, other.width order by other.width, other.published)
            * one.width,
            cast('nan' as double)
        ) as log_line,
        any_value(one.predicted)
        * exp(
            avg(
                ln(other.published / other.predicted)
                order by other.published / other.predicted
            )
        ) as rescaled
    from comparison as one
    inner join comparison as other
        on
            one.reference = other.reference
            and one.published_group = other.published_group
            and one.estimator = other.estimator
            and one.variant = other.variant
            and one.published_row <> other.published_row
    where one.published_step_seconds is not null and other.published_step_seconds is not null
    group by one.reference, one.published_row, one.estimator, one.variant, one.width
),

timed as (
    select
        comparison.*,
        left_out.baseline,
        left_out.log_line,
        left_out.rescaled
    from comparison
    left join left_out using (reference, published_row, estimator, variant)
    where comparison.published_step_seconds is not null
),

-- equal values share the mean of their ranks
ranked as (
    select
        *,
        rank() over (alike order by published_step_seconds)
        + count(*) over (
            partition by reference, published_group, estimator, variant, published_step_seconds
        ) / 2 as published_time_rank,
        rank() over (alike order by step_seconds)
        + count(*) over (partition by reference, published_group, estimator, variant, step_seconds)
        / 2 as predicted_time_rank,
        rank() over (alike order by published)
        + count(*) over (partition by reference, published_group, estimator, variant, published)
        / 2 as published_rank,
        rank() over (alike order by predicted)
        + count(*) over (partition by reference, published_group, estimator, variant, predicted)
        / 2 as predicted_rank,
        rank() over (alike order by baseline)
        + count(*) over (partition by reference, published_group, estimator, variant, baseline)
        / 2 as baseline_rank,
        sum(published_mfu) over (alike order by published_mfu desc) as mfu_so_far,
        sum(published_mfu) over (
            alike order by published_mfu desc
            rows between unbounded preceding and unbounded following
        ) as mfu_in_all
    from timed
    window alike as (partition by reference, published_group, estimator, variant)
),

-- the estimates, and a row for each refusal
compared as (
    select
        *,
        max(published_mfu) filter (where mfu_so_far >= mfu_in_all / 2) over (
            partition by reference, published_group, estimator, variant
        ) as best_mfu,
        false as is_refused
    from ranked
    union all by name
    select
        *,
        false as is_refused
    from comparison
    where published_step_seconds is null
    union all by name
    select
        step.reference,
        step.published_group,
        step.is_own_run,
        step.is_own_framework,
        step.accelerator,
        step.framework,
        step.tensor_parallel,
        step.pipeline_parallel,
        step.microbatch_size,
        estimate.estimator,
        estimate.variant,
        step.fits_as_published,
        false as fits_memory,
        true as is_refused
    from published_estimate as estimate
    inner join compared_step as step using (reference, published_row)
    where estimate.refusal is not null
),

published as (
    select
        reference,
        published_group,
        count(*) as num_published
    from compared_step
    group by reference, published_group
),

grouped as (
    select
        case
            when grouping(published_group) = 0 then 'group'
            when grouping(tensor_parallel) = 0 then 'tensor_parallel'
            when grouping(pipeline_parallel) = 0 then 'pipeline_parallel'
            when grouping(microbatch_size) = 0 then 'microbatch_size'
            when grouping(is_own_framework) = 0 then 'program'
            else 'reference'
        end as grouped_by,
        estimator,
        variant,
        is_own_run,
        reference,
        published_group,
        is_own_framework,
        accelerator,
        framework,
        tensor_parallel,
        pipeline_parallel,
        microbatch_size,

        count(*) filter (where is_refused) as num_refused,
        count(*) filter (where not is_refused) as num_rows,
        count(published_step_seconds) as num_timed,
        count(distinct published_group) filter (where published_step_seconds is not null)
            as num_timed_groups,
        mean_size(time_relative_error) as time_mean_absolute_relative_error,
        median(abs(time_relative_error)) as time_median_absolute_relative_error,
        max(abs(time_relative_error)) as time_max_absolute_relative_error,
        mean_in_order(time_relative_error) as time_bias,
        mean_size(time_error_beyond_rounding) as time_mean_absolute_error_beyond_rounding,
        avg(cast(is_inside_interval as double)) as inside_fraction,
        mean_size(published / baseline - 1) as baseline_time_mean_absolute_relative_error,
        mean_size(published / log_line - 1) as line_time_mean_absolute_relative_error,
        mean_size(published / rescaled - 1) as rescaled_time_mean_absolute_relative_error,

        case
            when grouped_by = 'group'
                then rank_correlation(predicted_time_rank, published_time_rank)
        end as time_spearman_correlation,
        case when grouped_by = 'group' then any_value(best_mfu) end as constant_mfu,
        case
            when grouped_by = 'group'
                then avg(abs(published_mfu / best_mfu - 1) order by published_mfu)
        end as constant_time_mean_absolute_relative_error,

        count(memory_relative_error) as num_memory_rows,
        mean_size(memory_relative_error) as memory_mean_absolute_relative_error,
        mean_in_order(memory_relative_error) as memory_bias,
        count(fits_memory = fits_as_published) as num_fit_rows,
        count(*) filter (where fits_memory = fits_as_published) / nullif(num_fit_rows, 0)
            as fit_agreement,

        mean_size(rate_error) as rate_mean_absolute_relative_error,
        max(abs(rate_error)) as rate_max_absolute_relative_error,
        mean_in_order(rate_error) as rate_bias,
        mean_size(case when abs(rate_error) <= published_rounding then 0 else rate_error end)
            as rate_mean_absolute_error_beyond_rounding,
        case when grouped_by = 'group' then rank_correlation(predicted_rank, published_rank) end
            as rate_spearman_correlation,
        mean_size(baseline / published - 1) as baseline_rate_mean_absolute_relative_error,
        max(abs(baseline / published - 1)) as baseline_rate_max_absolute_relative_error,
        mean_in_order(baseline / published - 1) as baseline_rate_bias,
        case when grouped_by = 'group' then rank_correlation(baseline_rank, published_rank) end
            as baseline_rate_spearman_correlation,
        mean_size(log_line / published - 1) as line_rate_mean_absolute_relative_error,
        max(abs(log_line / published - 1)) as line_rate_max_absolute_relative_error,
        mean_size(rescaled / published - 1) as rescaled_rate_mean_absolute_relative_error,
        max(abs(rescaled / published - 1)) as rescaled_rate_max_absolute_relative_error
    from compared
    group by
        estimator,
        variant,
        is_own_run,
        grouping sets (
            (reference, published_group),
            (reference),
            (reference, is_own_framework),
            (accelerator, framework, is_own_framework, tensor_parallel),
            (accelerator, framework, is_own_framework, pipeline_parallel),
            (accelerator, framework, is_own_framework, microbatch_size)
        )
)

select
    grouped.*,
    published.num_published
from grouped
left join published using (reference, published_group)
