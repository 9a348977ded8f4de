-- deprecated: use published_accuracy where grouped_by = 'group'.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
select
    reference,
    published_group,
    estimator,
    variant,
    num_published,
    num_refused,
    num_timed,
    time_mean_absolute_relative_error,
    time_median_absolute_relative_error,
    time_max_absolute_relative_error,
    time_bias,
    time_spearman_correlation,
    inside_fraction,
    constant_mfu,
    constant_time_mean_absolute_relative_error,
    num_memory_rows,
    memory_mean_absolute_relative_error,
    memory_bias,
    num_fit_rows,
    fit_agreement
from published_accuracy
where grouped_by = 'group'
