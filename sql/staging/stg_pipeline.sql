-- Pipeline estimates under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {pipeline}
--
-- The steady phase overlaps arithmetic and communication: what communication adds to it is counted
-- as collectives inside layers, hops between stages and experts included.
with sized as (
    select
        *,
        2 * cast(num_layers as double) * hidden_size * internal_size as expert_parameters,
        cast(global_batch_size as double) * seq_len as batch_tokens,
        floor(dataset_tokens / (cast(global_batch_size as double) * seq_len)) as num_steps
    from current_pipeline
),

counted as (
    select
        *,
        expert_parameters * num_experts as parameters,
        expert_parameters * experts_per_token as active_parameters,
        num_steps * batch_tokens as tokens,
        6 * expert_parameters * experts_per_token * batch_tokens as step_flops,
        case
            when source_version = 'readme' then steady_compute_seconds
            else greatest(steady_compute_seconds, steady_network_seconds)
        end as steady_seconds
    from sized
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
    num_layers,
    hidden_size,
    internal_size,
    seq_len,
    num_experts,
    experts_per_token,
    parameters,
    active_parameters,

    -- system
    source_version,
    accelerator,
    flops_8bit_per_second,
    memory_bytes_per_second,
    network_bytes_per_second,
    base_utilization,

    -- run
    num_gpus,
    global_batch_size,
    precision_bits,
    dataset_tokens,
    tokens,
    num_steps,

    -- layout: each expert has devices of its own; a microbatch is that of all replicas there
    pipeline_parallel,
    virtual_pipeline,
    data_parallel,
    num_experts as expert_parallel,
    tensor_parallel,
    tensor_parallel_external,
    case when microbatch_size % data_parallel = 0 then microbatch_size // data_parallel end
        as microbatch_size,
    global_batch_size // microbatch_size as num_microbatches,

    -- time
    step_seconds,
    steady_compute_seconds as compute_seconds,
    case
        when source_version = 'readme' then 0
        else greatest(steady_network_seconds - steady_compute_seconds, 0)
    end as tensor_comm_seconds,
    -- not stored, as the rest of the step gives it
    case
        when pipeline_parallel = 1 then 0
        else greatest(step_seconds - steady_seconds - gradient_reduction_seconds, 0)
    end as bubble_seconds,
    gradient_reduction_seconds as data_comm_seconds,
    num_steps * step_seconds as training_seconds,
    step_flops,
    step_flops * num_steps as total_flops,
    step_flops
    / (step_seconds * num_gpus * flops_8bit_per_second * 8 / precision_bits) as utilization
from counted
