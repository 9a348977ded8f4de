-- Steps of greedy paths, with time and utilization.
-- Grain: one row per step of a path
-- Key: cell_id, path_step
--
-- The degrees of a path are real numbers, and so is their product path_num_gpus; num_gpus is the
-- nearest whole number.
with timed as (
    select
        * exclude (num_gpus),
        pipeline_parallel
        * data_parallel
        * tensor_parallel
        * tensor_parallel_external as path_num_gpus,
        optimizer_training_seconds(training_flops, step_seconds) as training_seconds
    from current_run_optimizer_path
)

select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    is_default_variant,
    accelerator,
    flops_8bit_per_second,
    memory_bytes_per_second,
    network_bytes_per_second,
    base_utilization,
    training_flops,
    internal_ratio,
    bytes_per_element,
    reduces_in_network,
    max_num_gpus,
    tie_rule,
    path_step,
    pipeline_parallel,
    data_parallel,
    tensor_parallel,
    tensor_parallel_external,
    num_microbatches,
    try_cast(path_num_gpus as integer) as num_gpus,
    path_num_gpus,
    step_seconds,
    training_seconds,
    training_flops
    / (training_seconds * path_num_gpus * flops_8bit_per_second / bytes_per_element) as utilization
from timed
