-- Throughput of a GPU on each number of GPUs, relative to the fewest that hold the model.
-- Grain: one row per estimator, variant, model, batch, system and number of GPUs
with point as (
    select
        best_of_cell.estimator,
        best_of_cell.variant,
        problem_group.model,
        problem_group.global_batch_size,
        problem_group.accelerator,
        problem_group.nvlink_size,
        problem_group.num_gpus,
        min(best_of_cell.best.step_seconds) as step_seconds,
        any_value(problem_group.step_tokens) / min(best_of_cell.best.step_seconds)
        / any_value(problem_group.num_gpus) as tokens_per_second_per_gpu
    from best_of_cell
    inner join problem_group on best_of_cell.problem_id = problem_group.problem_id
    where
        best_of_cell.best is not null
        and best_of_cell.coverage.kept = '{}'
        and problem_group.num_gpus is not null
        and problem_group.step_tokens is not null
        and coalesce(problem_group.system_changes, '') = ''
        and coalesce(problem_group.assumptions, '') = ''
        and best_of_cell.estimator = $estimator
        and best_of_cell.variant = $variant
        and best_of_cell.coverage.strategy = $strategy
        and problem_group.model = $model
        and problem_group.global_batch_size = $global_batch_size
        and problem_group.accelerator = $accelerator
        and problem_group.nvlink_size = $nvlink_size
    group by all
)

select
    *,
    tokens_per_second_per_gpu / first_value(tokens_per_second_per_gpu) over (
        partition by estimator, variant, model, global_batch_size, accelerator, nvlink_size
        order by num_gpus
    ) as relative_throughput
from point
order by all
