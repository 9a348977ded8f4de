-- Layouts that no other beats in both step time and memory, on each number of GPUs.
-- Grain: one row per configuration of the front
select
    coalesce(problem_group.assumptions, '') as assumptions,
    problem_front.estimator,
    problem_front.variant,
    problem_group.model,
    problem_group.global_batch_size,
    problem_group.accelerator,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_front.step_seconds,
    in_gb(problem_front.memory_bytes) as memory_gb,
    in_gb(problem.hbm_bytes) as hbm_gb
from problem_front
inner join problem_group on problem_front.problem_id = problem_group.problem_id
inner join problem on problem_front.problem_id = problem.problem_id
where
    problem_front.memory_bytes is not null
    and problem_group.num_gpus is not null
    and coalesce(problem_group.system_changes, '') = ''
    and coalesce(problem_group.assumptions, '') = $assumptions
    and problem_front.estimator = $estimator
    and problem_front.variant = $variant
    and problem_group.model = $model
    and problem_group.global_batch_size = $global_batch_size
    and problem_group.accelerator = $accelerator
    and problem_group.nvlink_size = $nvlink_size
    and problem_group.num_gpus = $num_gpus
order by all
