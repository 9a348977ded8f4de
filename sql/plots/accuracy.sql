-- Errors of the predicted time of published steps, with the interval of each prediction.
-- Grain: one row per published step, estimator and variant
select
    estimator,
    variant,
    case
        when reference = 'published_measurement' then published_group
        else
            regexp_replace(reference, '^published_(megatron_|training_)', '')
            || if(published_group = 'all', '', ' ' || published_group)
    end as measured,
    published_row,
    published_step_seconds,
    step_seconds,
    time_relative_error,
    low_step_seconds / published_step_seconds - 1 as low_relative_error,
    high_step_seconds / published_step_seconds - 1 as high_relative_error,
    is_inside_interval
from published_comparison
where
    time_relative_error is not null
    and not is_own_run
    and estimator = $estimator
    and variant = $variant
    and model = $model
    and accelerator = $accelerator
order by all
