-- The best layout of one system on each number of GPUs: degrees, memory and parts of the step.
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
        any_value(problem.hbm_bytes) as hbm_bytes,
        min(struct_pack(best := best_of_cell.best, layout := best_of_cell.best_layout)) as fastest
    from best_of_cell
    inner join problem_group on best_of_cell.problem_id = problem_group.problem_id
    inner join problem on best_of_cell.problem_id = problem.problem_id
    where
        best_of_cell.best is not null
        and best_of_cell.coverage.kept = '{}'
        and problem_group.num_gpus is not null
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
    * exclude (fastest),
    fastest['layout'] as best_layout,
    fastest['best']['step_seconds'] as step_seconds,
    fastest['best']['memory_bytes'] as memory_bytes,
    fastest['best']['data_parallel'] as data_parallel,
    fastest['best']['tensor_parallel'] * coalesce(fastest['best']['tensor_parallel_2'], 1)
    * coalesce(fastest['best']['context_parallel'], 1) as tensor_parallel,
    fastest['best']['pipeline_parallel'] as pipeline_parallel,
    global_batch_size // (fastest['best']['data_parallel'] * fastest['best']['microbatch_size'])
        as num_microbatches,
    fastest['best']['compute_seconds'] as compute_seconds,
    fastest['best']['memory_seconds'] as memory_seconds,
    fastest['best']['tensor_comm_seconds'] as tensor_comm_seconds,
    fastest['best']['pipeline_comm_seconds'] as pipeline_comm_seconds,
    fastest['best']['data_comm_seconds'] as data_comm_seconds,
    fastest['best']['bubble_seconds'] as bubble_seconds
from point
order by all
