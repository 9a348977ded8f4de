-- Bandwidth that a run needs: its best layout at each bandwidth, and the time lost to it.
-- Grain: one row per run and bandwidth
-- Key: problem_id, estimator, estimator_version, variant, available_bytes_per_second
--
-- `available_bytes_per_second` is that of one cluster or device, both ways together. `slowdown`
-- compares with the same run without a network. Where the estimator models time with its network,
-- it compares with the largest bandwidth that was evaluated.
select
    intercluster_time.problem_id,
    intercluster_time.estimator,
    intercluster_time.estimator_version,
    intercluster_time.variant,
    problem.accelerator,
    problem.num_layers,
    problem.hidden_size,
    problem.num_experts,
    problem.global_batch_size,
    problem.seq_len,
    problem.use_glu,
    problem.multi_query_attention,
    problem.sequential_attention_ffn,
    problem.source_version,
    problem.num_clusters,
    coalesce(
        problem.num_gpus,
        try_cast(cast(problem.num_clusters as bigint) * problem.gpus_per_cluster as integer)
    ) as num_gpus,
    intercluster_time.available_bytes_per_second,
    intercluster_time.num_layouts,
    intercluster_time.best.training_seconds as best_training_seconds,
    intercluster_time.best.training_seconds / coalesce(
        intercluster_time.least_seconds,
        min_by(
            intercluster_time.best.training_seconds,
            -intercluster_time.available_bytes_per_second
        ) over (
            partition by
                intercluster_time.estimator,
                intercluster_time.estimator_version,
                intercluster_time.variant,
                intercluster_time.conditions
        )
    ) as slowdown,
    intercluster_time.best.is_network_bound,
    intercluster_time.best.required_bytes_per_second,
    intercluster_time.best.network_bytes_per_flop as best_network_bytes_per_flop,
    intercluster_time.best.data_parallel as best_data_parallel,
    intercluster_time.best.pipeline_parallel as best_pipeline_parallel,
    intercluster_time.best.virtual_pipeline as best_virtual_pipeline,
    intercluster_time.best.expert_parallel as best_expert_parallel,
    intercluster_time.best.sequence_parallel as best_sequence_parallel,
    intercluster_time.best.tensor_parallel as best_tensor_parallel,
    intercluster_time.best.tensor_parallel_external as best_tensor_parallel_external,
    intercluster_time.best.num_microbatches as best_num_microbatches,
    intercluster_time.best.activation_recompute as best_activation_recompute
from intercluster_time
inner join problem on intercluster_time.problem_id = problem.problem_id
