-- Days of a run by the best layout of each system on each number of GPUs.
-- Grain: one row per estimator, variant, model, batch, system and number of GPUs
select
    best_of_cell.estimator,
    best_of_cell.variant,
    problem_group.model,
    problem_group.global_batch_size,
    problem_group.accelerator,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    $tokens as dataset_tokens,
    min(best_of_cell.best.step_seconds) as step_seconds,
    arg_min(best_of_cell.best_layout, best_of_cell.best.step_seconds) as best_layout,
    in_days(ceil($tokens / any_value(problem_group.step_tokens)) * step_seconds) as training_days
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
order by all
