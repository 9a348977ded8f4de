-- Traffic of each layout between clusters, in bytes for each FLOP.
-- Grain: one row per layout of a problem whose traffic is counted
-- Key: cell_id, {dataflow}
--
-- Bytes are those sent and received together, in the passes that the problem counts. A cluster at
-- its rate needs `cluster_network_bytes_per_second`; NULL where no rate is given. Ranks are within
-- one choice of recomputation and of whether the efficiency rules were skipped: a layout that was
-- evaluated with and without the rules has a rank in each.
select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    num_layers,
    hidden_size,
    num_experts,
    parameters,
    effective_parameters,
    global_batch_size,
    seq_len,
    tokens,
    use_glu,
    multi_query_attention,
    sequential_attention_ffn,
    activation_recompute,
    skip_efficiency_check,
    num_clusters,
    cluster_flops_per_second,
    data_parallel,
    pipeline_parallel,
    expert_parallel,
    sequence_parallel,
    tensor_parallel,
    tensor_parallel_external,
    total_network_elements,
    sent_bytes_per_flop,
    received_bytes_per_flop,
    network_bytes_per_flop,
    cluster_network_bytes_per_second,
    training_seconds,
    row_number() over (
        partition by problem_id, estimator_version, activation_recompute, skip_efficiency_check
        order by network_bytes_per_flop, total_network_elements
    ) as rank_by_traffic,
    row_number() over (
        partition by problem_id, estimator_version, activation_recompute, skip_efficiency_check
        order by total_network_elements, network_bytes_per_flop
    ) as rank_by_elements
from stg_dataflow_traffic
