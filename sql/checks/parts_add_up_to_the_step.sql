-- Steps that differ from the sum of their parts by more than 1e-12.
--
-- A part that an estimator does not model (NULL) adds nothing. Estimators without parts are left
-- out, and so is recomputed attention as published: erratum R10 is that its parts do not add up.
with summed as (
    select
        *,
        coalesce(compute_seconds, 0)
        + coalesce(memory_seconds, 0)
        + coalesce(tensor_comm_seconds, 0)
        + coalesce(pipeline_comm_seconds, 0)
        + coalesce(bubble_seconds, 0)
        + coalesce(data_comm_seconds, 0) as parts_seconds
    from configuration_source
    where
        coalesce(
            compute_seconds,
            memory_seconds,
            tensor_comm_seconds,
            pipeline_comm_seconds,
            bubble_seconds,
            data_comm_seconds
        ) is not null
        and (
            attention is distinct from 'unfused_recompute'
            or list_contains(string_split(mends, ','), 'R10')
        )
)

select
    estimator,
    variant,
    problem_id,
    cell_id,
    step_seconds,
    parts_seconds,
    parts_seconds / step_seconds - 1 as relative_error
from summed
where abs(parts_seconds / step_seconds - 1) > 1e-12
