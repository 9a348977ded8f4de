-- deprecated: use published_accuracy where grouped_by = 'program'. Errors are of the rate.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
select
    estimator,
    variant,
    reference,
    case when is_own_framework then 'its own programs' else 'other programs, by the nearest one' end
        as published_group,
    num_rows,
    rate_mean_absolute_relative_error as mean_absolute_relative_error,
    rate_max_absolute_relative_error as max_absolute_relative_error,
    rate_bias as bias,
    time_mean_absolute_relative_error,
    time_max_absolute_relative_error,
    time_bias
from published_accuracy
where grouped_by = 'program' and not is_own_run and num_rows > 0
