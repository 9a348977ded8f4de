-- How far each estimator is from published results, beside the trivial baseline.
-- Grain: one row per estimator, variant and reference table
--
-- The baseline predicts each published rate as the mean of the other rows of the comparison: an
-- estimator that is no better has explained nothing. Errors are of FLOP/s per GPU, relative to
-- the published rate; the bias is their mean with sign, positive where the estimate is too fast.
with comparison as (
    select
        'published_megatron_scaling' as reference,
        estimator,
        variant,
        published_flops_per_second_per_gpu as published,
        predicted_flops_per_second_per_gpu as predicted
    from megatron_comparison
),

with_baseline as (
    select
        *,
        (sum(published) over comparison_rows - published)
        / nullif(count(*) over comparison_rows - 1, 0) as baseline
    from comparison
    window comparison_rows as (partition by reference, estimator, variant)
),

-- equal values share the mean of their ranks
ranked as (
    select
        *,
        rank() over (partition by reference, estimator, variant order by published)
        + count(*) over (partition by reference, estimator, variant, published) / 2
            as published_rank,
        rank() over (partition by reference, estimator, variant order by predicted)
        + count(*) over (partition by reference, estimator, variant, predicted) / 2
            as predicted_rank,
        rank() over (partition by reference, estimator, variant order by baseline)
        + count(*) over (partition by reference, estimator, variant, baseline) / 2
            as baseline_rank
    from with_baseline
)

select
    reference,
    estimator,
    variant,
    count(*) as num_rows,
    avg(abs(predicted / published - 1)) as mean_absolute_relative_error,
    max(abs(predicted / published - 1)) as max_absolute_relative_error,
    avg(predicted / published - 1) as bias,
    -- undefined, not a number, where all values are equal or there is one
    nullif(corr(predicted_rank, published_rank), cast('nan' as double)) as spearman_correlation,
    avg(abs(baseline / published - 1)) as baseline_mean_absolute_relative_error,
    max(abs(baseline / published - 1)) as baseline_max_absolute_relative_error,
    avg(baseline / published - 1) as baseline_bias,
    nullif(corr(baseline_rank, published_rank), cast('nan' as double))
        as baseline_spearman_correlation
from ranked
group by reference, estimator, variant
