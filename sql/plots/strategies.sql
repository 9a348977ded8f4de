-- The best layout of each strategy on each number of GPUs, relative to 1D tensor parallelism.
-- Grain: one row per estimator, variant, model, batch, system, number of GPUs and strategy
with point as (
    select
        best_of_cell.estimator,
        best_of_cell.variant,
        problem_group.model,
        problem_group.global_batch_size,
        problem_group.accelerator,
        problem_group.nvlink_size,
        problem_group.num_gpus,
        best_of_cell.coverage['strategy'] as strategy,
        min(best_of_cell.best.step_seconds) as step_seconds
    from best_of_cell
    inner join problem_group on best_of_cell.problem_id = problem_group.problem_id
    where
        best_of_cell.best is not null
        and best_of_cell.coverage.kept = '{}'
        and best_of_cell.coverage.strategy is not null
        and problem_group.num_gpus is not null
        and coalesce(problem_group.system_changes, '') = ''
        and coalesce(problem_group.assumptions, '') = ''
        and best_of_cell.estimator = $estimator
        and best_of_cell.variant = $variant
        and problem_group.model = $model
        and problem_group.global_batch_size = $global_batch_size
        and problem_group.accelerator = $accelerator
        and problem_group.nvlink_size = $nvlink_size
    group by all
),

compared as (
    select
        *,
        any_value(step_seconds) filter (where strategy = 'tensor_1d') over (
            partition by
                estimator,
                variant,
                model,
                global_batch_size,
                accelerator,
                nvlink_size,
                num_gpus
        ) as tensor_1d_step_seconds
    from point
)

select
    *,
    tensor_1d_step_seconds / step_seconds as relative_speed
from compared
where tensor_1d_step_seconds is not null
order by all
