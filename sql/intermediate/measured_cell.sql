-- Cells that may have the configuration of a step that was measured, published or one's own.
-- Grain: one row per cell
--
-- Whatever the problem says of layers, width, accelerator, number of GPUs and of sequences, a
-- measurement says as well; what a problem does not say tells nothing apart here. So a cell that is
-- missing has no such configuration, and views that look for them read the rows of these cells
-- only: DuckDB hands a join's cells, but not its problems, to the scan of the rows.
with step as (
    select
        cast(null as bigint) as problem_id,
        num_layers,
        hidden_size,
        accelerator,
        num_gpus,
        global_batch_size
    from published_step
    union all by name
    select
        problem_id,
        num_layers,
        hidden_size,
        accelerator,
        num_gpus,
        global_batch_size
    from measurement
)

select
    current_cell.cell_id,
    current_cell.problem_id,
    current_cell.estimator,
    current_cell.estimator_version,
    current_cell.variant
from current_cell
inner join problem on current_cell.problem_id = problem.problem_id
semi join step
    on
        problem.problem_id = step.problem_id
        or (
            coalesce(problem.num_layers, step.num_layers) = step.num_layers
            and coalesce(problem.hidden_size, step.hidden_size) = step.hidden_size
            and coalesce(problem.accelerator, step.accelerator) = step.accelerator
            and coalesce(problem.num_gpus, step.num_gpus) = step.num_gpus
            and coalesce(problem.global_batch_size, step.global_batch_size)
            = step.global_batch_size
        )
