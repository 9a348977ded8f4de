-- Speed of the best layout over the size of the NVLink domain, relative to the smallest.
-- Grain: one row per study, problem, estimator and variant
select
    study,
    estimator,
    variant,
    model,
    global_batch_size,
    accelerator,
    nvlink_size,
    num_gpus,
    best_step_seconds,
    first_value(best_step_seconds) over family
    / best_step_seconds as relative_speed
from hardware_sensitivity
where
    best_step_seconds is not null
    and swept_attributes = 'nvlink_size'
    and study = $study
    and estimator = $estimator
    and variant = $variant
    and model = $model
    and accelerator = $accelerator
    and global_batch_size = $global_batch_size
    and num_gpus = $num_gpus
window
    family as (
        partition by
            study,
            estimator,
            variant,
            model,
            global_batch_size,
            accelerator,
            num_gpus
        order by nvlink_size
    )
order by all
