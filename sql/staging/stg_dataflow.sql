-- Dataflow estimates under the shared column names; their time is a lower bound.
-- Grain: one row per configuration
-- Key: cell_id, {dataflow}
--
-- The time is that of the FLOPs alone, without bubble and without communication. Left out are
-- estimates without a rate of the clusters, which have no time, and those of the forward pass
-- alone, whose time is not that of training: both are in stg_dataflow_traffic.
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
    ffn_hidden_size,
    num_heads,
    -- one where queries share keys and values, as arithmetic: a column that a CASE passes on can
    -- fail in a join of DuckDB 2 ("dict-surviving cache ... changed identity")
    num_heads - (num_heads - 1) * cast(coalesce(multi_query_attention, false) as integer)
        as num_kv_heads,
    head_size,
    use_glu as uses_glu,
    seq_len,
    num_experts,
    1 as experts_per_token,
    parameters,
    effective_parameters as active_parameters,

    -- system
    accelerator,
    cluster_flops_per_second,

    -- run
    num_clusters,
    num_gpus,
    global_batch_size,
    dataset_tokens,
    tokens,
    num_steps,

    -- layout
    data_parallel,
    tensor_parallel,
    pipeline_parallel,
    expert_parallel,
    sequence_parallel,
    tensor_parallel_external,
    activation_recompute,
    skip_efficiency_check,

    -- time
    training_seconds,
    training_seconds / num_steps as step_seconds,
    total_flops,
    total_flops / num_steps as step_flops,

    -- traffic
    sent_bytes_per_flop,
    received_bytes_per_flop,
    network_bytes_per_flop,
    cluster_network_bytes_per_second
from stg_dataflow_traffic
where cluster_flops_per_second is not null and not forward_only
