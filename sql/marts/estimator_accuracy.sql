-- deprecated: use published_accuracy where grouped_by = 'group'. Errors are of the rate.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
--
-- A reference with several groups also has a row `all groups`. Errors of the rate are positive
-- where the estimate is too fast.
select
    reference,
    coalesce(published_group, 'all groups') as published_group,
    estimator,
    variant,
    num_timed as num_rows,
    rate_mean_absolute_relative_error as mean_absolute_relative_error,
    rate_max_absolute_relative_error as max_absolute_relative_error,
    rate_bias as bias,
    rate_mean_absolute_error_beyond_rounding as mean_absolute_error_beyond_rounding,
    time_mean_absolute_relative_error,
    time_max_absolute_relative_error,
    time_bias,
    rate_spearman_correlation as spearman_correlation,
    baseline_rate_mean_absolute_relative_error as baseline_mean_absolute_relative_error,
    baseline_rate_max_absolute_relative_error as baseline_max_absolute_relative_error,
    baseline_rate_bias as baseline_bias,
    baseline_rate_spearman_correlation as baseline_spearman_correlation,
    line_rate_mean_absolute_relative_error as line_mean_absolute_relative_error,
    line_rate_max_absolute_relative_error as line_max_absolute_relative_error,
    rescaled_rate_mean_absolute_relative_error as rescaled_mean_absolute_relative_error,
    rescaled_rate_max_absolute_relative_error as rescaled_max_absolute_relative_error
from published_accuracy
where
    num_timed > 0
    and (grouped_by = 'group' or (grouped_by = 'reference' and num_timed_groups > 1))
