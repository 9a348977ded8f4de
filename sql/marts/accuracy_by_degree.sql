-- deprecated: use published_accuracy where grouped_by is a degree. Errors are of the rate.
-- Grain: one row per estimator, variant, accelerator, framework, degree and its value
-- Key: estimator, variant, accelerator, framework, degree, degree_value
select
    estimator,
    variant,
    accelerator,
    framework,
    grouped_by as degree,
    coalesce(tensor_parallel, pipeline_parallel, microbatch_size) as degree_value,
    num_timed as num_rows,
    rate_bias as bias,
    rate_mean_absolute_relative_error as mean_absolute_relative_error,
    time_bias
from published_accuracy
where degree_value is not null and is_own_framework and not is_own_run and num_timed > 0
