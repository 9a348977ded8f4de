-- Layouts of a problem that no other of it beats in both step time and memory per GPU.
-- Grain: one row per configuration of the front; of layouts of the same time and memory one
-- Key: problem_id, estimator, estimator_version, variant, step_seconds, memory_bytes
--
-- At one number of GPUs a slower step also costs more a token, so cost adds nothing. An estimator
-- without a model of memory has only its fastest layout.
with front as (
    select
        *,
        layout_of(leading_row) as layout
    from leading_row
    where is_on_front
)

select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    coalesce(model, 'unnamed') as model,

    unnest(layout) as layout,

    step_seconds,
    memory_bytes
from front
