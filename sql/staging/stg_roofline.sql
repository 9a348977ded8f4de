-- Roofline estimates under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {roofline}
with estimate as (
    select
        *,
        -- ZeRO-1: gradients are held whole, in the precision of the weights
        weights_bytes as gradients_bytes,
        global_batch_size // (data_parallel * microbatch_size) as num_microbatches,
        -- share of the work that a stage waits for; not stored, as the rest of the step gives it
        (pipeline_parallel - 1) / (num_microbatches * virtual_pipeline) as bubble_share
    from current_roofline
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
    model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    num_heads,
    num_heads as num_kv_heads,
    hidden_size // num_heads as head_size,
    false as uses_glu,
    attention,
    seq_len,
    vocab_size,
    -- the estimator counts matrices, three biases and two norms a layer, no embeddings
    cast(num_layers as double) * (
        cast(hidden_size as double) * hidden_size * 4
        + cast(hidden_size as double) * ffn_hidden_size * 2
        + cast(ffn_hidden_size as double)
        + cast(hidden_size as double) * 6
    ) as parameters,

    -- system
    accelerator,
    nvlink_size,
    matrix_flops_per_second,
    vector_flops_per_second,
    hbm_bytes_per_second,
    hbm_bytes,
    nvlink_bytes_per_second,
    nvlink_efficiency,
    nvlink_latency_seconds,
    network_bytes_per_second,
    network_efficiency,
    network_latency_seconds,
    nics_per_gpu,
    flops_efficiency,
    launch_seconds,

    -- run
    num_gpus,
    global_batch_size,
    bytes_per_element,

    -- layout
    strategy,
    data_parallel,
    tensor_parallel,
    tensor_parallel_2,
    context_parallel,
    pipeline_parallel,
    virtual_pipeline,
    1 as zero_stage,
    microbatch_size,
    num_microbatches,
    summa_panels,
    nvlink_tensor_parallel,
    nvlink_tensor_parallel_2,
    nvlink_context_parallel,
    nvlink_data_parallel,
    nvlink_pipeline_parallel,
    activation_recompute,

    -- time
    step_seconds,
    compute_seconds,
    memory_seconds,
    tensor_comm_seconds,
    pipeline_comm_seconds,
    (step_seconds - data_comm_seconds) * bubble_share / (1 + bubble_share) as bubble_seconds,
    data_comm_seconds,
    flops_per_gpu,

    -- memory
    weights_bytes,
    gradients_bytes,
    optimizer_bytes,
    activations_bytes,
    weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes as memory_bytes,
    weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes <= hbm_bytes
        as fits_memory
from estimate
