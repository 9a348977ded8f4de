-- FLOPs of dataflow estimates and their traffic between clusters.
-- Grain: one row per configuration, with or without a rate of its clusters
-- Key: cell_id, {dataflow}
--
-- Elements are summed over all clusters, sent and received separately. Rates, bytes per FLOP and
-- seconds are of the whole run, or of its forward pass alone where `forward_only` is set. Seconds
-- are a lower bound: neither the bubble nor communication is in them. Columns of rates and times
-- are NULL where the clusters' rate is not given.
with estimate as (
    select
        *,
        -- every expert takes its share of the tokens, so that a token meets one
        cast(num_layers as double) * num_experts * hidden_size * (
            cast(num_heads as double)
            * head_size
            * (case when multi_query_attention then 2 else 4 end)
            + (case when multi_query_attention then 2 * cast(head_size as double) else 0 end)
            + cast(ffn_hidden_size as double) * (case when use_glu then 3 else 2 end)
        ) as parameters,
        round_even(dataset_tokens / (cast(global_batch_size as double) * seq_len), 0) as num_steps,
        -- the backward pass receives what the forward pass does, and again where it repeats it
        (case activation_recompute when 'full' then 2 else 1 end) * forward_received_elements
            as backward_received_elements,
        forward_flops + backward_flops as total_flops,
        forward_sent_elements + backward_sent_elements as total_sent_elements,
        forward_received_elements + backward_received_elements as total_received_elements
    from current_dataflow
),

counted as (
    select
        *,
        case when forward_only then forward_flops else total_flops end as counted_flops,
        network_bytes_per_element
        * (case when forward_only then forward_sent_elements else total_sent_elements end)
        / counted_flops as sent_bytes_per_flop,
        network_bytes_per_element
        * (case when forward_only then forward_received_elements else total_received_elements end)
        / counted_flops as received_bytes_per_flop
    from estimate
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
    head_size,
    num_experts,
    use_glu,
    multi_query_attention,
    sequential_attention_ffn,
    seq_len,
    parameters,
    parameters / num_experts as effective_parameters,

    -- run
    accelerator,
    gpus_per_cluster,
    num_clusters,
    try_cast(cast(num_clusters as bigint) * gpus_per_cluster as integer) as num_gpus,
    global_batch_size,
    dataset_tokens,
    num_steps * global_batch_size * seq_len as tokens,
    num_steps,
    network_bytes_per_element,
    forward_only,

    -- layout
    data_parallel,
    pipeline_parallel,
    expert_parallel,
    sequence_parallel,
    tensor_parallel,
    tensor_parallel_external,
    activation_recompute,
    skip_efficiency_check,

    -- FLOPs and elements
    forward_flops,
    backward_flops,
    total_flops,
    forward_sent_elements,
    backward_sent_elements,
    total_sent_elements,
    forward_received_elements,
    backward_received_elements,
    total_received_elements,
    forward_sent_elements + forward_received_elements as forward_network_elements,
    backward_sent_elements + backward_received_elements as backward_network_elements,
    total_sent_elements + total_received_elements as total_network_elements,

    -- bytes
    sent_bytes_per_flop,
    received_bytes_per_flop,
    sent_bytes_per_flop + received_bytes_per_flop as network_bytes_per_flop,

    -- rates
    cluster_flops_per_second,
    sent_bytes_per_flop * cluster_flops_per_second as cluster_sent_bytes_per_second,
    received_bytes_per_flop * cluster_flops_per_second as cluster_received_bytes_per_second,
    network_bytes_per_flop * cluster_flops_per_second as cluster_network_bytes_per_second,
    num_clusters * cluster_flops_per_second as fleet_flops_per_second,
    num_clusters * cluster_sent_bytes_per_second as fleet_sent_bytes_per_second,
    num_clusters * cluster_received_bytes_per_second as fleet_received_bytes_per_second,
    num_clusters * cluster_network_bytes_per_second as fleet_network_bytes_per_second,

    -- time
    counted_flops / fleet_flops_per_second as training_seconds
from counted
