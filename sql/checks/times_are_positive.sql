-- Steps without a positive time, and parts of a step that are negative or not finite.
select
    estimator,
    variant,
    problem_id,
    cell_id,
    step_seconds,
    compute_seconds,
    memory_seconds,
    tensor_comm_seconds,
    pipeline_comm_seconds,
    bubble_seconds,
    data_comm_seconds
from configuration_source
where
    step_seconds is null
    or not isfinite(step_seconds)
    or step_seconds <= 0
    or not isfinite(compute_seconds)
    or compute_seconds < 0
    or not isfinite(memory_seconds)
    or memory_seconds < 0
    or not isfinite(tensor_comm_seconds)
    or tensor_comm_seconds < 0
    or not isfinite(pipeline_comm_seconds)
    or pipeline_comm_seconds < 0
    or not isfinite(bubble_seconds)
    or bubble_seconds < 0
    or not isfinite(data_comm_seconds)
    or data_comm_seconds < 0
