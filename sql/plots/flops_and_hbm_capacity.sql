-- Days of a run over the capacity of memory and the rate of arithmetic, by the best layouts.
-- Grain: one row per study, problem, estimator and variant
--
-- `accelerators` are the real ones, to be marked where they lie on the grid.
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
    hardware_sensitivity.hbm_bytes,
    hardware_sensitivity.matrix_flops_per_second,
    $tokens as dataset_tokens,
    hardware_sensitivity.best_step_seconds,
    in_days(
        ceil($tokens / (hardware_sensitivity.global_batch_size * problem.seq_len))
        * hardware_sensitivity.best_step_seconds
    ) as training_days,
    (
        select
            list(
                struct_pack(
                    accelerator := marked.accelerator,
                    hbm_bytes := marked.hbm_bytes,
                    rate := marked.bf16_flops_per_second
                )
                order by marked.accelerator
            )
        from accelerator as marked
    ) as accelerators
from hardware_sensitivity
inner join problem on hardware_sensitivity.problem_id = problem.problem_id
inner join problem_assumption
    on hardware_sensitivity.problem_id = problem_assumption.problem_id
where
    hardware_sensitivity.best_step_seconds is not null
    and hardware_sensitivity.swept_attributes like '%hbm_bytes%'
    and hardware_sensitivity.swept_attributes like '%matrix_flops_per_second%'
    and coalesce(problem_assumption.assumptions, '') = $assumptions
    and hardware_sensitivity.study = $study
    and hardware_sensitivity.estimator = $estimator
    and hardware_sensitivity.variant = $variant
    and hardware_sensitivity.model = $model
    and hardware_sensitivity.accelerator = $accelerator
    and hardware_sensitivity.global_batch_size = $global_batch_size
    and hardware_sensitivity.nvlink_size = $nvlink_size
    and hardware_sensitivity.num_gpus = $num_gpus
order by all
