-- Measured and predicted rates of published steps.
-- Grain: one row per published step, estimator and variant
select
    estimator,
    variant,
    reference,
    case
        when reference = 'published_measurement' then published_group
        else published_row
    end as measured,
    published_row,
    accelerator,
    in_tflops(published_flops_per_second_per_gpu) as measured_tflops,
    in_tflops(predicted_flops_per_second_per_gpu) as predicted_tflops,
    predicted_tflops / measured_tflops - 1 as rate_error
from published_comparison
where
    time_relative_error is not null
    and estimator = $estimator
    and variant = $variant
    and model = $model
    and accelerator = $accelerator
order by all
