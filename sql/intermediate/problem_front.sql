-- Layouts of a problem that no other of it beats in both step time and memory per GPU.
-- Grain: one row per configuration of the front; of layouts of the same time and memory one
-- Key: problem_id, estimator, estimator_version, variant, step_seconds, memory_bytes
--
-- At one number of GPUs a slower step also costs more a token, so cost adds nothing. An estimator
-- without a model of memory has only its fastest layout. View found_front defines the rows of table
-- stored_front.
with front as (
    select
        cell_id,
        step_seconds,
        memory_bytes,
        layout_of(stored_front) as layout
    from stored_front
)

select
    current_cell.cell_id,
    current_cell.problem_id,
    current_cell.estimator,
    current_cell.estimator_version,
    current_cell.variant,
    coalesce(problem.model, 'unnamed') as model,

    unnest(front.layout) as layout,

    front.step_seconds,
    front.memory_bytes
from front
inner join current_cell on front.cell_id = current_cell.cell_id
inner join problem on current_cell.problem_id = problem.problem_id
