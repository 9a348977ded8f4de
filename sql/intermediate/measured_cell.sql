-- Cells that may hold the configuration of a published or measured step.
-- Grain: one row per cell
-- Key: cell_id
--
-- A cell qualifies if its problem contradicts no measurement in layers, width, accelerator, number
-- of GPUs or sequences. A value that the problem leaves open contradicts nothing. Other cells have
-- no such configuration. Table published_estimate has the problems of table published_measurement.
-- Views read the rows of these cells only, because DuckDB passes a join's cells, but not its
-- problems, to the scan of the rows. DuckDB 1.5 passes only the lowest and the highest cell unless
-- a condition remains on the tables of these cells. It removes conditions that statistics prove.
-- The last line is always true, but statistics do not prove it.
with step as (
    select
        cast(null as bigint) as problem_id,
        num_layers,
        hidden_size,
        accelerator,
        num_gpus,
        global_batch_size
    from published_step
    where reference <> 'published_measurement'
    union all by name
    select
        problem_id,
        num_layers,
        hidden_size,
        accelerator,
        num_gpus,
        global_batch_size
    from measurement
    union all by name
    select problem_id
    from published_estimate
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
where length(current_cell.relation) > 0
