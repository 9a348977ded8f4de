-- Groups of problems to compare, and the work of a step.
-- Grain: one row per problem
-- Key: problem_id
--
-- Problems of one scaling_id differ only in the number of GPUs; those of one capacity_id may also
-- differ in the size of the NVLink domain; those of one workload_id have the same model, batch,
-- number of GPUs and assumptions, on any system. The number of GPUs is that of all clusters where
-- an estimator counts in clusters.
select
    problem.problem_id,
    problem.accelerator,
    problem.nvlink_size,
    problem.hbm_bytes,
    problem.global_batch_size,
    problem.seq_len,
    stored_problem.model,
    stored_problem.model_shape,
    stored_problem.is_published_system,
    stored_problem.system_changes,
    stored_problem.assumptions,
    stored_problem.num_changed_constants,
    stored_problem.num_changed_step_constants,
    coalesce(
        problem.num_gpus,
        try_cast(
            cast(problem.num_clusters as bigint) * problem.gpus_per_cluster as integer
        )
    ) as num_gpus,
    cast(problem.global_batch_size as bigint) * problem.seq_len as step_tokens,
    stored_problem.scaling_id,
    stored_problem.capacity_id,
    stored_problem.workload_id
from problem
inner join stored_problem on problem.problem_id = stored_problem.problem_id
