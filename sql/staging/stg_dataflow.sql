-- Dataflow estimates under the shared column names; their time is a lower bound.
-- Grain: one row per configuration
-- Key: cell_id, {dataflow}
--
-- The time is that of the FLOPs alone, without bubble and without communication. Left out are
-- estimates without a rate of the clusters, which have no time, and those of the forward pass
-- alone, whose time is not that of training: both are in stg_dataflow_traffic.
with estimate as (
    select
        *,
        cast(num_layers as double) * num_experts * hidden_size * (
            cast(num_heads as double)
            * head_size
            * (case when multi_query_attention then 2 else 4 end)
            + (case when multi_query_attention then 2 * cast(head_size as double) else 0 end)
            + cast(ffn_hidden_size as double) * (case when use_glu then 3 else 2 end)
        ) as parameters,
        round_even(dataset_tokens / (cast(global_batch_size as double) * seq_len), 0) as num_steps,
        forward_flops + backward_flops as total_flops,
        (case activation_recompute when 'full' then 2 else 1 end) * forward_received_elements
            as backward_received_elements,
        network_bytes_per_element * (forward_sent_elements + backward_sent_elements) / total_flops
            as sent_bytes_per_flop,
        network_bytes_per_element
        * (forward_received_elements + backward_received_elements)
        / total_flops as received_bytes_per_flop
    from current_dataflow
    where cluster_flops_per_second is not null and not forward_only
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
    parameters / num_experts as active_parameters,

    -- system
    accelerator,
    cluster_flops_per_second,

    -- run
    num_clusters,
    try_cast(cast(num_clusters as bigint) * gpus_per_cluster as integer) as num_gpus,
    global_batch_size,
    dataset_tokens,
    num_steps * global_batch_size * seq_len as tokens,
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
    total_flops / (num_clusters * cluster_flops_per_second) as training_seconds,
    training_seconds / num_steps as step_seconds,
    total_flops,
    total_flops / num_steps as step_flops,

    -- traffic
    sent_bytes_per_flop,
    received_bytes_per_flop,
    sent_bytes_per_flop + received_bytes_per_flop as network_bytes_per_flop,
    network_bytes_per_flop * cluster_flops_per_second as cluster_network_bytes_per_second
from estimate
