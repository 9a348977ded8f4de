-- The best time of each run at each bandwidth between its clusters, or devices.
-- Grain: one row per problem, version, variant and bandwidth
-- Key: problem_id, estimator, estimator_version, variant, available_bytes_per_second
--
-- Where only traffic is counted, communication overlaps perfectly: the run takes as long as the
-- slower of FLOPs and network. Where a problem has a bandwidth, its layouts are compared at that
-- bandwidth. `conditions` holds the rest of the problem.
with available as (
    select
        unnest([1e9, 2e9, 5e9, 10e9, 12.5e9, 25e9, 50e9, 100e9, 200e9, 400e9, 900e9])
            as available_bytes_per_second
),

overlapped as (
    select
        stg_dataflow_traffic.*,
        available.available_bytes_per_second,
        stg_dataflow_traffic.training_seconds * greatest(
            1,
            stg_dataflow_traffic.cluster_network_bytes_per_second
            / available.available_bytes_per_second
        ) as overlapped_seconds
    from stg_dataflow_traffic
    cross join available
    where stg_dataflow_traffic.training_seconds is not null
),

counted as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        available_bytes_per_second,
        min(training_seconds) as least_seconds,
        count(*) as num_layouts,
        min_by(
            struct_pack(
                training_seconds := overlapped_seconds,
                required_bytes_per_second := cluster_network_bytes_per_second,
                network_bytes_per_flop := network_bytes_per_flop,
                is_network_bound := cluster_network_bytes_per_second > available_bytes_per_second,
                data_parallel := data_parallel,
                pipeline_parallel := pipeline_parallel,
                virtual_pipeline := cast(null as integer),
                expert_parallel := expert_parallel,
                sequence_parallel := sequence_parallel,
                tensor_parallel := tensor_parallel,
                tensor_parallel_external := tensor_parallel_external,
                num_microbatches := cast(null as integer),
                activation_recompute := activation_recompute
            ),
            struct_pack(
                overlapped_seconds := overlapped_seconds,
                cluster_network_bytes_per_second := cluster_network_bytes_per_second
            )
        ) as best
    from overlapped
    group by problem_id, estimator, estimator_version, variant, available_bytes_per_second
),

modelled as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        network_bytes_per_second as available_bytes_per_second,
        cast(null as double) as least_seconds,
        count(*) as num_layouts,
        min_by(
            struct_pack(
                training_seconds := training_seconds,
                required_bytes_per_second := cast(null as double),
                network_bytes_per_flop := cast(null as double),
                is_network_bound := tensor_comm_seconds > 0,
                data_parallel := data_parallel,
                pipeline_parallel := pipeline_parallel,
                virtual_pipeline := virtual_pipeline,
                expert_parallel := expert_parallel,
                sequence_parallel := cast(null as integer),
                tensor_parallel := tensor_parallel,
                tensor_parallel_external := tensor_parallel_external,
                num_microbatches := num_microbatches,
                activation_recompute := cast(null as varchar)
            ),
            step_seconds
        ) as best
    from stg_pipeline
    group by problem_id, estimator, estimator_version, variant, network_bytes_per_second
),

every_run as (
    from counted
    union all by name
    from modelled
),

conditions as (
    select
        problem_id,
        struct_pack(*columns(* exclude (problem_id, network_bytes_per_second))) as conditions
    from problem
)

select
    every_run.*,
    conditions.conditions
from every_run
inner join conditions on every_run.problem_id = conditions.problem_id
