-- How far each estimator is from published steps, compared with trivial baselines.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
--
-- Errors are of FLOP/s per GPU, relative to the published rate. The bias is their mean with sign:
-- positive where estimates are too fast. Errors of the time have their own columns. Each baseline
-- sees the published rates of the other rows of the group, never its own row: the mean of these
-- rates; a line in the logarithm of the hidden size; the estimator's predictions times one factor,
-- the geometric mean of published over predicted. An estimator that is no better than the mean
-- explains nothing; one that only the factor improves explains the differences but not the level. A
-- reference with several groups also has a row `all groups`, without a rank correlation, as rates
-- of different groups do not compare. A team's own runs are no published steps: their reference is
-- the name that they were stored under. Those of mixtures and in 8 bits do not count (see
-- published_step). View accuracy_by_group has the best constant of each group, the errors of memory
-- and the configurations that are refused. Means are of sorted values, so that their last digits do
-- not depend on the threads of a query.
with comparison as (
    select
        reference,
        published_group,
        published_row,
        estimator,
        variant,
        ln(hidden_size) as width,
        published_flops_per_second_per_gpu as published,
        predicted_flops_per_second_per_gpu as predicted,
        time_relative_error,
        error_beyond_rounding
    from megatron_comparison
    where published_step_seconds is not null
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
    left join comparison as other
        on
            one.reference = other.reference
            and one.published_group = other.published_group
            and one.estimator = other.estimator
            and one.variant = other.variant
            and one.published_row <> other.published_row
    group by one.reference, one.published_row, one.estimator, one.variant, one.width
),

compared as (
    select
        comparison.*,
        left_out.baseline,
        left_out.log_line,
        left_out.rescaled,
        comparison.predicted / comparison.published - 1 as error,
        left_out.baseline / comparison.published - 1 as baseline_error,
        left_out.log_line / comparison.published - 1 as line_error,
        left_out.rescaled / comparison.published - 1 as rescaled_error
    from comparison
    inner join left_out using (reference, published_row, estimator, variant)
),

-- equal values share the mean of their ranks
ranked as (
    select
        *,
        count(*) over (partition by reference, estimator, variant)
        > count(*) over (partition by reference, published_group, estimator, variant)
            as has_other_groups,
        rank()
            over (
                partition by reference, published_group, estimator, variant order by published
            )
        + count(*) over (
            partition by reference, published_group, estimator, variant, published
        ) / 2 as published_rank,
        rank()
            over (
                partition by reference, published_group, estimator, variant order by predicted
            )
        + count(*) over (
            partition by reference, published_group, estimator, variant, predicted
        ) / 2 as predicted_rank,
        rank()
            over (
                partition by reference, published_group, estimator, variant order by baseline
            )
        + count(*) over (
            partition by reference, published_group, estimator, variant, baseline
        ) / 2 as baseline_rank
    from compared
),

measured as (
    select
        reference,
        coalesce(published_group, 'all groups') as published_group,
        estimator,
        variant,
        count(*) as num_rows,
        avg(abs(error) order by abs(error)) as mean_absolute_relative_error,
        max(abs(error)) as max_absolute_relative_error,
        avg(error order by error) as bias,
        avg(abs(error_beyond_rounding) order by abs(error_beyond_rounding))
            as mean_absolute_error_beyond_rounding,
        avg(abs(time_relative_error) order by abs(time_relative_error))
            as time_mean_absolute_relative_error,
        max(abs(time_relative_error)) as time_max_absolute_relative_error,
        avg(time_relative_error order by time_relative_error) as time_bias,
        -- undefined, not a number, where all values are equal or there is one
        case
            when grouping(published_group) = 0
                then nullif(
                    corr(predicted_rank, published_rank order by predicted_rank, published_rank),
                    cast('nan' as double)
                )
        end as spearman_correlation,
        avg(abs(baseline_error) order by abs(baseline_error))
            as baseline_mean_absolute_relative_error,
        max(abs(baseline_error)) as baseline_max_absolute_relative_error,
        avg(baseline_error order by baseline_error) as baseline_bias,
        case
            when grouping(published_group) = 0
                then nullif(
                    corr(baseline_rank, published_rank order by baseline_rank, published_rank),
                    cast('nan' as double)
                )
        end as baseline_spearman_correlation,
        avg(abs(line_error) order by abs(line_error)) as line_mean_absolute_relative_error,
        max(abs(line_error)) as line_max_absolute_relative_error,
        avg(abs(rescaled_error) order by abs(rescaled_error))
            as rescaled_mean_absolute_relative_error,
        max(abs(rescaled_error)) as rescaled_max_absolute_relative_error,
        grouping(published_group) = 1 and not bool_or(has_other_groups) as is_repeated
    from ranked
    group by grouping sets (
        (reference, published_group, estimator, variant),
        (reference, estimator, variant)
    )
)

select * exclude (is_repeated)
from measured
where not is_repeated
