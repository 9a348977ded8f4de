-- Speed of the best layout over the size of the NVLink domain, relative to the smallest.
-- Grain: one row per study, problem, estimator and variant
select
    coalesce(problem_assumption.assumptions, '') as assumptions,
    hardware_sensitivity.study,
    hardware_sensitivity.estimator,
    hardware_sensitivity.variant,
    hardware_sensitivity.model,
    hardware_sensitivity.global_batch_size,
    hardware_sensitivity.accelerator,
    hardware_sensitivity.nvlink_size,
    hardware_sensitivity.num_gpus,
    hardware_sensitivity.best_step_seconds,
    first_value(hardware_sensitivity.best_step_seconds) over family
    / hardware_sensitivity.best_step_seconds as relative_speed
from hardware_sensitivity
inner join problem_assumption
    on hardware_sensitivity.problem_id = problem_assumption.problem_id
where
    hardware_sensitivity.best_step_seconds is not null
    and hardware_sensitivity.swept_attributes = 'nvlink_size'
    and coalesce(problem_assumption.assumptions, '') = $assumptions
    and hardware_sensitivity.study = $study
    and hardware_sensitivity.estimator = $estimator
    and hardware_sensitivity.variant = $variant
    and hardware_sensitivity.model = $model
    and hardware_sensitivity.accelerator = $accelerator
    and hardware_sensitivity.global_batch_size = $global_batch_size
    and hardware_sensitivity.num_gpus = $num_gpus
window
    family as (
        partition by
            coalesce(problem_assumption.assumptions, ''),
            hardware_sensitivity.study,
            hardware_sensitivity.estimator,
            hardware_sensitivity.variant,
            hardware_sensitivity.model,
            hardware_sensitivity.global_batch_size,
            hardware_sensitivity.accelerator,
            hardware_sensitivity.num_gpus
        order by hardware_sensitivity.nvlink_size
    )
order by all
