-- Layouts of a problem that no other of it beats in both step time and memory per GPU, found anew.
-- Grain: one row per configuration of the front; of layouts of the same time and memory one
-- Key: problem_id, estimator, estimator_version, variant, step_seconds, memory_bytes
--
-- Table stored_front keeps these rows: commands that store cells fill it from here, and view
-- problem_front shows it. The front of a problem is made of layouts of the fronts of its cells,
-- which are among their leading rows.
with candidate as (
    select
        cell_id,
        problem_id,
        estimator,
        estimator_version,
        variant,
        coalesce(model, 'unnamed') as model,
        step_seconds,
        memory_bytes,
        layout_of(leading_configuration_source) as layout,
        coalesce(memory_bytes, 0) as compared_bytes,
        min(coalesce(memory_bytes, 0)) over (
            partition by problem_id, estimator, estimator_version, variant, model
            order by
                step_seconds,
                coalesce(memory_bytes, 0),
                -- of equals the one that ranks first, as in configuration_rank
                row(layout_order(leading_configuration_source), strategy, cell_id)
            rows between unbounded preceding and 1 preceding
        ) as undercut_bytes
    from leading_configuration_source
    where fits_memory is distinct from false
)

select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    model,

    unnest(layout) as layout,

    step_seconds,
    memory_bytes
from candidate
where undercut_bytes is null or compared_bytes < undercut_bytes
