-- How far an estimator is from measured time and memory, next to the best constant.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
--
-- Errors are estimated over published, less one: negative where the estimate is too fast. The best
-- constant is one utilization (model FLOP/s over the peak in the precision of the products) for all
-- timed rows of the group: the one with the least mean size of their errors of time. It is fitted
-- to the rows that it is compared on; the estimate is not. A row with the published utilization u
-- has the error u / c - 1 at the constant c, so 1 / c is the median of 1 / u, weighted with u. The
-- interval of a step is meant to hold nine in ten of the published times. A refused configuration
-- that was run is an error of the estimator that no mean shows. The fit agrees where estimate and
-- run both fit in memory, or neither does; a refused one does not. Means are of sorted values, so
-- that their last digits do not depend on the threads of a query.
with comparison as (
    select
        reference,
        published_group,
        estimator,
        variant,
        published_step_seconds,
        step_seconds,
        time_relative_error,
        is_inside_interval,
        memory_relative_error,
        published_mfu,
        fits_as_published,
        fits_memory
    from megatron_comparison
),

published as (
    select
        reference,
        published_group,
        count(*) as num_published
    from published_step
    group by reference, published_group
),

refused as (
    select
        published_estimate.reference,
        published_step.published_group,
        published_estimate.estimator,
        published_estimate.variant,
        count(*) as num_refused,
        count(published_step.fits_as_published) as num_fit_rows,
        count(*) filter (where not published_step.fits_as_published) as num_agreeing
    from published_estimate
    inner join published_step
        on
            published_estimate.reference = published_step.reference
            and published_estimate.published_row = published_step.published_row
    where published_estimate.refusal is not null
    group by
        published_estimate.reference,
        published_step.published_group,
        published_estimate.estimator,
        published_estimate.variant
),

-- equal values share the mean of their ranks
timed as (
    select
        *,
        rank()
            over (
                partition by reference, published_group, estimator, variant
                order by published_step_seconds
            )
        + count(*) over (
            partition by reference, published_group, estimator, variant, published_step_seconds
        ) / 2 as published_rank,
        rank()
            over (
                partition by reference, published_group, estimator, variant
                order by step_seconds
            )
        + count(*) over (
            partition by reference, published_group, estimator, variant, step_seconds
        ) / 2 as predicted_rank,
        sum(published_mfu) over (
            partition by reference, published_group, estimator, variant
            order by published_mfu desc
        ) as mfu_so_far,
        sum(published_mfu) over (
            partition by reference, published_group, estimator, variant
            order by published_mfu desc
            rows between unbounded preceding and unbounded following
        ) as mfu_in_all
    from comparison
    where published_step_seconds is not null
),

with_constant as (
    select
        *,
        max(published_mfu) filter (where mfu_so_far >= mfu_in_all / 2) over (
            partition by reference, published_group, estimator, variant
        ) as best_mfu
    from timed
),

by_time as (
    select
        reference,
        published_group,
        estimator,
        variant,
        count(*) as num_timed,
        avg(abs(time_relative_error) order by abs(time_relative_error))
            as time_mean_absolute_relative_error,
        median(abs(time_relative_error)) as time_median_absolute_relative_error,
        max(abs(time_relative_error)) as time_max_absolute_relative_error,
        avg(time_relative_error order by time_relative_error) as time_bias,
        -- undefined, not a number, where all values are equal or there is one
        nullif(
            corr(predicted_rank, published_rank order by predicted_rank, published_rank),
            cast('nan' as double)
        ) as time_spearman_correlation,
        avg(cast(is_inside_interval as double)) as inside_fraction,
        any_value(best_mfu) as constant_mfu,
        avg(abs(published_mfu / best_mfu - 1) order by published_mfu)
            as constant_time_mean_absolute_relative_error
    from with_constant
    group by reference, published_group, estimator, variant
),

by_memory as (
    select
        reference,
        published_group,
        estimator,
        variant,
        count(memory_relative_error) as num_memory_rows,
        avg(abs(memory_relative_error) order by abs(memory_relative_error))
            as memory_mean_absolute_relative_error,
        avg(memory_relative_error order by memory_relative_error) as memory_bias,
        count(fits_memory = fits_as_published) as num_fit_rows,
        count(*) filter (where fits_memory = fits_as_published) as num_agreeing
    from comparison
    group by reference, published_group, estimator, variant
),

grouped as (
    select
        reference,
        published_group,
        estimator,
        variant
    from by_memory
    union
    select
        reference,
        published_group,
        estimator,
        variant
    from refused
)

select
    grouped.reference,
    grouped.published_group,
    grouped.estimator,
    grouped.variant,
    published.num_published,
    coalesce(refused.num_refused, 0) as num_refused,
    coalesce(by_time.num_timed, 0) as num_timed,
    by_time.time_mean_absolute_relative_error,
    by_time.time_median_absolute_relative_error,
    by_time.time_max_absolute_relative_error,
    by_time.time_bias,
    by_time.time_spearman_correlation,
    by_time.inside_fraction,
    by_time.constant_mfu,
    by_time.constant_time_mean_absolute_relative_error,
    coalesce(by_memory.num_memory_rows, 0) as num_memory_rows,
    by_memory.memory_mean_absolute_relative_error,
    by_memory.memory_bias,
    coalesce(by_memory.num_fit_rows, 0) + coalesce(refused.num_fit_rows, 0) as num_fit_rows,
    (coalesce(by_memory.num_agreeing, 0) + coalesce(refused.num_agreeing, 0))
    / nullif(coalesce(by_memory.num_fit_rows, 0) + coalesce(refused.num_fit_rows, 0), 0)
        as fit_agreement
from grouped
inner join published using (reference, published_group)
left join refused using (reference, published_group, estimator, variant)
left join by_time using (reference, published_group, estimator, variant)
left join by_memory using (reference, published_group, estimator, variant)
