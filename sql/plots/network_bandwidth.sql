-- Speed of the best layout over the network's bandwidth of a GPU, relative to the slowest network.
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
    network_bytes_per_second,
    best_step_seconds,
    first_value(best_step_seconds) over family
    / best_step_seconds as relative_speed
from hardware_sensitivity
where
    best_step_seconds is not null
    and swept_attributes like '%network_bytes_per_second%'
    and study = $study
    and estimator = $estimator
    and variant = $variant
    and model = $model
    and accelerator = $accelerator
    and global_batch_size = $global_batch_size
    and nvlink_size = $nvlink_size
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
            nvlink_size,
            num_gpus
        order by network_bytes_per_second
    )
order by all
