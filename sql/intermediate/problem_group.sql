-- Groups of problems to compare, and the work of a step.
-- Grain: one row per problem
--
-- Problems of one scaling_id differ only in the number of GPUs; those of one capacity_id may also
-- differ in the size of the NVLink domain; those of one workload_id have the same model, batch,
-- number of GPUs and assumptions, on any system. The number of GPUs is that of all clusters where
-- an estimator counts in clusters.
with condition as (
    select
        problem_id,
        struct_pack(
            *columns(
                * exclude (problem_id, num_gpus, num_clusters, max_num_gpus, nvlink_size)
            )
        ) as conditions
    from problem
)

select
    problem.problem_id,
    problem.accelerator,
    problem.nvlink_size,
    problem.hbm_bytes,
    problem.global_batch_size,
    problem.seq_len,
    problem_model.model,
    problem_model.model_shape,
    problem_system.is_published_system,
    problem_system.system_changes,
    problem_assumption.assumptions,
    coalesce(
        problem.num_gpus,
        try_cast(
            cast(problem.num_clusters as bigint) * problem.gpus_per_cluster as integer
        )
    ) as num_gpus,
    cast(problem.global_batch_size as bigint) * problem.seq_len as step_tokens,
    hash(condition.conditions, problem.nvlink_size) as scaling_id,
    hash(condition.conditions) as capacity_id,
    hash(
        problem_model.model_shape,
        problem.global_batch_size,
        problem.num_gpus,
        problem.num_clusters,
        problem.gpus_per_cluster,
        problem.dataset_tokens,
        problem_assumption.assumptions
    ) as workload_id
from problem
inner join condition on problem.problem_id = condition.problem_id
inner join problem_model on problem.problem_id = problem_model.problem_id
inner join problem_system on problem.problem_id = problem_system.problem_id
inner join problem_assumption on problem.problem_id = problem_assumption.problem_id
