-- Run-optimizer estimates at whole-number degrees under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {run_optimizer}
--
-- Rows whose degrees are not whole numbers are no configurations of devices and are left out.
-- Layers and width of the model are real numbers, so the shared columns do not have them. A number
-- of microbatches too large for the shared column is NULL here; the fact table has it.
with whole as (
    select
        *,
        sqrt(training_flops / 120) as parameters,
        -- a step's tokens grow with the sixth root of the FLOPs
        4194304 * pow(training_flops / 1e25, 1 / 6) as batch_tokens,
        optimizer_training_seconds(training_flops, step_seconds) as training_seconds
    from current_run_optimizer
    where num_gpus is not null and num_microbatches = floor(num_microbatches)
)

select
    -- record
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    mends,
    variant,
    is_default_variant,

    -- model
    parameters,
    parameters as active_parameters,

    -- system
    accelerator,
    flops_8bit_per_second,
    memory_bytes_per_second,
    network_bytes_per_second,
    base_utilization,

    -- run
    num_gpus,
    bytes_per_element,
    20 * parameters as tokens,
    20 * parameters / batch_tokens as num_steps,
    training_flops,
    training_flops as total_flops,

    -- layout
    cast(pipeline_parallel as integer) as pipeline_parallel,
    cast(data_parallel as integer) as data_parallel,
    cast(tensor_parallel as integer) as tensor_parallel,
    cast(tensor_parallel_external as integer) as tensor_parallel_external,
    try_cast(num_microbatches as integer) as num_microbatches,

    -- time
    step_seconds,
    training_seconds,
    training_flops
    / (training_seconds * num_gpus * flops_8bit_per_second / bytes_per_element) as utilization
from whole
