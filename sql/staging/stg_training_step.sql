-- Estimates of training_step under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {training_step}
--
-- compute_seconds has matmuls, attention, vocabulary, recomputation and waits for launches;
-- memory_seconds has streams through memory: elementwise work, adding up gradients, the optimizer;
-- tensor_comm_seconds has the collectives of tensors, keys and values, and experts.
--
-- Most aliases are read one level above the select that makes them: on the same level DuckDB copies
-- the expression, which takes a fifth of the time to plan this view.
with allocated as (
    select
        *,
        weights_bytes
        + gradients_bytes
        + optimizer_bytes
        + activations_bytes
        + logits_bytes
        + gathered_bytes as allocated_bytes
    from current_training_step
),

reserved as (
    select
        *,
        -- rows of versions before 3 have neither unused nor library bytes
        allocated_bytes + coalesce(unused_bytes, 0) as reserved_bytes
    from allocated
),

estimate as (
    select
        *,
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
    from reserved
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
    parameters,

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
    global_batch_size // (data_parallel * microbatch_size) as num_microbatches,
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
    model_flops,
    hardware_flops,
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
    fit_probability(memory_bytes, hbm_bytes, memory_error_mean, memory_error_deviation)
        as fit_probability
from estimate
