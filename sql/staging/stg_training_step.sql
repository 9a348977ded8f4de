-- Estimates of training_step under the shared column names.
-- Grain: one row per configuration
--
-- compute_seconds has products, attention, vocabulary, what is recomputed and waits for launches;
-- memory_seconds has what streams through memory: elementwise work, adding up gradients, the
-- optimizer; tensor_comm_seconds has the collectives of tensors, keys and values, and experts.
with estimate as (
    select
        *,
        global_batch_size // (data_parallel * microbatch_size) as num_microbatches,
        case
            when num_experts > 1 then (num_layers - num_dense_layers) / num_layers else 0
        end as sparse_share,
        cast(num_heads as double) * head_size as query_size,
        cast(num_kv_heads as double) * head_size as key_size,
        case when uses_glu then 3.0 else 2.0 end as ffn_products,
        cast(global_batch_size as double) * seq_len as step_tokens,
        -- FLOPs of one token forward: products of the layers, and scores over the whole square
        2.0 * num_layers * hidden_size * (
            2 * query_size
            + 2 * key_size
            + ffn_products * (
                (1 - sparse_share) * ffn_hidden_size
                + sparse_share * (experts_per_token + num_shared_experts) * expert_ffn_hidden_size
            )
            + sparse_share * num_experts
        ) as layer_flops,
        4.0 * num_layers * seq_len * query_size as score_flops,
        -- by operation: products of keys and behind attention, the second of a gated layer's two
        2.0 * num_layers * hidden_size * (
            key_size
            + query_size
            + case when uses_glu then 1 else 0 end * (
                (1 - sparse_share) * ffn_hidden_size
                + sparse_share * (experts_per_token + num_shared_experts) * expert_ffn_hidden_size
            )
        ) as operation_flops,
        weights_bytes
        + gradients_bytes
        + optimizer_bytes
        + activations_bytes
        + logits_bytes
        + gathered_bytes
        + framework_bytes as memory_bytes,
        -- NULL where the limit is not known, and in rows of versions without power
        case
            when power_limit_watts is not null
                then least(
                    gpu_idle_watts
                    + (
                        layer_joules
                        + memory_joules_per_byte
                        * hbm_bytes_per_second
                        * hbm_efficiency
                        * (accumulation_seconds + optimizer_seconds)
                        + transfer_watts * (pipeline_comm_seconds + data_comm_seconds)
                    )
                    / step_seconds,
                    power_limit_watts
                )
        end as gpu_watts
    from current_training_step
)

select
    -- record
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    mends,
    variant,

    -- model
    model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    num_heads,
    num_kv_heads,
    head_size,
    uses_glu,
    num_experts,
    experts_per_token,
    attention,
    seq_len,
    vocab_size,
    cast(num_layers as double) * (
        hidden_size * (2 * query_size + 2 * key_size)
        + ffn_products
        * hidden_size
        * (
            (1 - sparse_share) * ffn_hidden_size
            + sparse_share * (num_experts + num_shared_experts) * expert_ffn_hidden_size
        )
        + sparse_share * hidden_size * num_experts
        + case
            when uses_glu then 2.0 * hidden_size
            else 6.0 * hidden_size + query_size + 2 * key_size + ffn_hidden_size
        end
    )
    + cast(coalesce(vocab_size, 0) as double)
    * hidden_size
    * case when ties_embedding then 1 else 2 end as parameters,

    -- system
    accelerator,
    nvlink_size,
    matrix_flops_per_second,
    case when precision = 'fp8' then fp8_flops_per_second else matrix_flops_per_second end
        as peak_flops_per_second,
    hbm_bytes_per_second,
    hbm_bytes,
    nvlink_bytes_per_second,
    nvlink_efficiency,
    nvlink_latency_seconds,
    network_bytes_per_second,
    network_efficiency,
    network_latency_seconds,
    nics_per_gpu,
    launch_seconds,
    framework,
    profile,
    precision,

    -- run
    num_gpus,
    global_batch_size,

    -- layout
    'tensor_1d' as strategy,
    data_parallel,
    tensor_parallel,
    context_parallel,
    pipeline_parallel,
    virtual_pipeline,
    expert_parallel,
    zero_stage,
    uses_sequence_parallel,
    microbatch_size,
    num_microbatches,
    activation_recompute,

    -- time
    step_seconds,
    gemm_seconds
    + attention_seconds
    + vocabulary_seconds
    + recompute_seconds
    + host_seconds as compute_seconds,
    elementwise_seconds + accumulation_seconds + optimizer_seconds as memory_seconds,
    tensor_comm_seconds + context_comm_seconds + expert_comm_seconds as tensor_comm_seconds,
    pipeline_comm_seconds,
    greatest(
        step_seconds
        - compute_seconds
        - memory_seconds
        - (tensor_comm_seconds + context_comm_seconds + expert_comm_seconds)
        - pipeline_comm_seconds
        - data_comm_seconds,
        0
    ) as bubble_seconds,
    data_comm_seconds,
    gemm_seconds,
    attention_seconds,
    elementwise_seconds,
    vocabulary_seconds,
    recompute_seconds,
    host_seconds,
    accumulation_seconds,
    optimizer_seconds,
    context_comm_seconds,
    expert_comm_seconds,

    -- arithmetic: model FLOPs, and those with what is done again
    step_tokens * 3 * (layer_flops + score_flops + 2.0 * hidden_size * coalesce(vocab_size, 0))
        as model_flops,
    model_flops
    + step_tokens * case
        when activation_recompute = 'full' then layer_flops + score_flops
        when activation_recompute = 'selective' and recomputes_operations then operation_flops
        when activation_recompute = 'selective' then score_flops
        else 0
    end as hardware_flops,
    hardware_flops / (step_seconds * num_gpus * peak_flops_per_second) as hfu,

    -- power: the board, and with its share of the host
    gpu_watts,
    gpu_watts + host_watts as slot_watts,

    -- memory
    weights_bytes,
    gradients_bytes,
    optimizer_bytes,
    activations_bytes,
    logits_bytes,
    gathered_bytes,
    framework_bytes,
    memory_bytes,
    memory_bytes <= hbm_bytes as fits_memory
from estimate
