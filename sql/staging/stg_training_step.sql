-- Estimates of training_step under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {training_step}
--
-- compute_seconds has products, attention, vocabulary, recomputation and waits for launches;
-- memory_seconds has streams through memory: elementwise work, adding up gradients, the optimizer;
-- tensor_comm_seconds has the collectives of tensors, keys and values, and experts.
--
-- Most aliases are read one level above the select that makes them. On the same level DuckDB first
-- looks for a column of that name, then copies the expression: a fifth of the time to plan this
-- view.
with width as (
    select
        *,
        global_batch_size // (data_parallel * microbatch_size) as num_microbatches,
        cast(global_batch_size as double) * seq_len as step_tokens,
        case
            when num_experts > 1 then (num_layers - num_dense_layers) / num_layers else 0
        end as sparse_share,
        coalesce(num_mtp_layers, 0) as further_layers,
        case when num_experts > 1 then 1 else 0 end as further_share,
        coalesce(shared_ffn_hidden_size, num_shared_experts * expert_ffn_hidden_size)
            as shared_size,
        case when uses_glu then 3.0 else 2.0 end as ffn_products,
        case when coalesce(uses_linear_bias, not uses_glu) then 1.0 else 0.0 end as biases,
        -- latent attention: widths of both latents and of the keys that heads share
        coalesce(kv_lora_rank, 0) > 0 as has_latent,
        coalesce(q_lora_rank, 0.0) + coalesce(kv_lora_rank, 0) as latent_size,
        cast(num_heads as double)
        * (coalesce(qk_head_size, head_size) + coalesce(qk_rotary_size, 0)) as query_size,
        cast(num_heads as double) * coalesce(v_head_size, head_size) as result_size,
        cast(num_kv_heads as double) * head_size as head_width,
        -- the length of sequences with the causal attention of a windowed layer
        case
            when coalesce(attention_window, 0) = 0 or attention_window >= seq_len then seq_len
            when uses_chunked_attention then attention_window
            else attention_window * (2.0 - attention_window / seq_len)
        end as windowed_length,
        case
            when coalesce(attention_window, 0) = 0 then 1
            when window_period > 0 then num_layers // window_period / num_layers
            else 0
        end as unwindowed_share,
        weights_bytes
        + gradients_bytes
        + optimizer_bytes
        + activations_bytes
        + logits_bytes
        + gathered_bytes as allocated_bytes
    from current_training_step
),

shape as (
    select
        *,
        case when has_latent then query_size else head_width end as key_size,
        case when has_latent then result_size else head_width end as value_size,
        case
            when has_latent
                then
                    hidden_size * (latent_size + qk_rotary_size)
                    + case when q_lora_rank > 0 then q_lora_rank else hidden_size end * query_size
                    + cast(kv_lora_rank as double) * num_heads * (qk_head_size + v_head_size)
                    + hidden_size * result_size
            else hidden_size * (query_size + head_width + head_width + result_size)
        end as attention_weights,
        (1 - sparse_share) * ffn_hidden_size
        + sparse_share * (experts_per_token * expert_ffn_hidden_size + shared_size) as ffn_size,
        (1 - further_share) * ffn_hidden_size
        + further_share * (experts_per_token * expert_ffn_hidden_size + shared_size)
            as further_ffn_size,
        ffn_products * hidden_size + biases * (ffn_products - 1) as width_parameters,
        hidden_size + case when uses_router_bias then 1.0 else 0 end as router_parameters,
        -- rows of versions before 3 have neither
        allocated_bytes + coalesce(unused_bytes, 0) as reserved_bytes
    from width
),

estimate as (
    select
        *,
        -- FLOPs of one token forward: products of the layers, and scores over the whole square
        2.0 * num_layers * (
            attention_weights
            + hidden_size * (ffn_products * ffn_size + sparse_share * num_experts)
        )
        + 2.0 * further_layers * (
            attention_weights
            + hidden_size * (ffn_products * further_ffn_size + further_share * num_experts)
            + 2.0 * hidden_size * hidden_size
        ) as layer_flops,
        2.0
        * (num_layers + further_layers)
        * (unwindowed_share * seq_len + (1 - unwindowed_share) * windowed_length)
        * (query_size + result_size) as score_flops,
        2.0 * (1 + further_layers) * hidden_size * coalesce(vocab_size, 0) as word_flops,
        -- by operation: products of keys and behind attention, the second of a gated layer's two
        2.0 * num_layers * hidden_size * (
            key_size + result_size + case when uses_glu then 1 else 0 end * ffn_size
        ) as operation_flops,
        -- layers without experts: norms and biases after the weights
        attention_weights
        + case when has_latent then latent_size else 0 end
        + case when uses_glu then 2.0 else 4.0 end * hidden_size
        + case when uses_qk_norm then 2.0 * head_size else 0 end
        + case when uses_attention_sinks then num_heads else 0 end
        + biases * (query_size + key_size + value_size + hidden_size) as attention_parameters,
        reserved_bytes + coalesce(library_bytes, 0) + framework_bytes as memory_bytes,
        -- measured over estimated memory is log-normal: its mean and its middle nine tenths
        (
            select interval_term.constant_value
            from interval_term
            where interval_term.interval_term = 'memory_error'
        ) as memory_error_mean,
        (
            select (interval_term.highest_value - interval_term.lowest_value) / 3.2897072539029444
            from interval_term
            where interval_term.interval_term = 'memory_error'
        ) as memory_error_deviation,
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
    from shape
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
    num_kv_heads,
    head_size,
    uses_glu,
    num_experts,
    experts_per_token,
    attention,
    seq_len,
    vocab_size,
    round(
        num_layers * attention_parameters
        + num_layers * (1 - sparse_share)
        * (width_parameters * ffn_hidden_size + biases * hidden_size)
        + num_layers * sparse_share * (
            num_experts
            * (
                router_parameters
                + width_parameters * expert_ffn_hidden_size
                + biases * hidden_size
            )
            + width_parameters * shared_size
            + case when shared_size > 0 then biases * hidden_size else 0 end
        )
    )
    + case when uses_glu then 1 else 2 end * hidden_size
    + cast(coalesce(vocab_size, 0) as double)
    * hidden_size
    * case when ties_embedding then 1 else 2 end as parameters,

    -- system
    accelerator,
    nvlink_size,
    matrix_flops_per_second,
    -- not CASE precision WHEN ...: that passes on the dictionary of one column or of another, which
    -- a join after it, as in ranked_layouts, refuses with an internal error (DuckDB 2.0.0)
    greatest(
        case when precision = 'fp8' then fp8_flops_per_second end,
        case when precision = 'fp4' then fp4_flops_per_second end,
        case when coalesce(precision not in ('fp8', 'fp4'), true) then matrix_flops_per_second end
    ) as peak_flops_per_second,
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
    -- rows of versions without the degree split experts as they split other widths
    coalesce(expert_tensor_parallel, case when num_experts > 1 then tensor_parallel else 1 end)
        as expert_tensor_parallel,
    zero_stage,
    uses_sequence_parallel,
    microbatch_size,
    num_microbatches,
    activation_recompute,
    schedule,
    pipeline_layout,
    layers_in_first_stage,
    layers_in_last_stage,
    counts_embedding,
    counts_loss,
    microbatch_group,

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
    step_tokens * 3 * (layer_flops + score_flops + word_flops) as model_flops,
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
    unused_bytes,
    library_bytes,
    framework_bytes,
    allocated_bytes,
    reserved_bytes,
    memory_bytes,
    memory_bytes <= hbm_bytes as fits_memory,
    normal_cumulative(
        (ln(hbm_bytes / nullif(memory_bytes, 0)) - memory_error_mean) / memory_error_deviation
    ) as fit_probability
from estimate
