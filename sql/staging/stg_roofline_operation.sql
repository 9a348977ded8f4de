-- Operations of roofline estimates, with how often each occurs in a step.
-- Grain: one row per configuration and operation
-- Key: cell_id, {roofline_operation}
--
-- Figures of an operation of a layer are those of one layer and one microbatch; seconds of a
-- transfer between layers are those of the whole step. Weights and activations are of one GPU.
with operation as (
    select
        *,
        part in ('feed_forward', 'attention') as is_of_layer,
        num_layers // pipeline_parallel as layers_per_stage,
        global_batch_size // (data_parallel * microbatch_size) as num_microbatches
    from current_roofline_operation
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

    -- problem
    model,
    seq_len,
    accelerator,
    nvlink_size,
    num_gpus,
    global_batch_size,
    bytes_per_element,

    -- layout
    strategy,
    attention,
    activation_recompute,
    data_parallel,
    tensor_parallel,
    tensor_parallel_2,
    context_parallel,
    pipeline_parallel,
    virtual_pipeline,
    microbatch_size,
    num_microbatches,
    layers_per_stage,
    summa_panels,
    nvlink_tensor_parallel,
    nvlink_tensor_parallel_2,
    nvlink_context_parallel,
    nvlink_data_parallel,
    nvlink_pipeline_parallel,
    step_seconds,

    -- operation
    operation_index,
    operation,
    part,
    uses_matrix_units,
    forward_flops,
    backward_flops,
    forward_hbm_bytes,
    backward_hbm_bytes,
    forward_comm_bytes,
    backward_comm_bytes,
    forward_collectives,
    backward_collectives,
    comm_group_size,
    nvlink_comm_group,
    comm_group_size_2,
    nvlink_comm_group_2,
    forward_seconds,
    backward_seconds,
    forward_compute_seconds,
    backward_compute_seconds,
    forward_memory_seconds,
    backward_memory_seconds,
    forward_comm_seconds,
    backward_comm_seconds,

    -- step
    case
        when is_of_layer then cast(layers_per_stage as bigint) * num_microbatches
        else 1
    end as num_passes,
    case
        when comm_group_size = 1 and comm_group_size_2 = 1 then 0
        when is_of_layer then cast(layers_per_stage as bigint) * num_microbatches
        when part = 'data' then layers_per_stage
        else cast(num_microbatches as bigint) * virtual_pipeline
    end as num_transfers,
    weights_bytes * layers_per_stage as weights_bytes,
    -- 1F1B keeps the activations of at most as many microbatches as there are stages
    activations_bytes * layers_per_stage * least(pipeline_parallel, num_microbatches)
        as activations_bytes
from operation
