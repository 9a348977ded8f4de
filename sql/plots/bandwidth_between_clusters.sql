-- Time that a run loses at each bandwidth between its clusters, by its best layout there.
-- Grain: one row per run and bandwidth
select
    estimator,
    variant,
    num_layers,
    hidden_size,
    num_experts,
    global_batch_size,
    seq_len,
    num_clusters,
    use_glu,
    multi_query_attention,
    sequential_attention_ffn,
    available_bytes_per_second / 1e9 as gigabytes_per_second,
    in_days(best_training_seconds) as training_days,
    slowdown
from intercluster_bandwidth_best
where
    num_clusters is not null
    and estimator = $estimator
    and variant = $variant
    and num_clusters = $num_clusters
    and global_batch_size = $global_batch_size
order by all
