-- Facts that follow from a problem and the reference tables: names, changes, groups to compare.
-- Grain: one row per problem
-- Key: problem_id
-- Kept: problem
--
-- View problem_group shows them. An id is a hash of text, so that another release of DuckDB gives
-- the same.
with condition as (
    select
        problem_id,
        cast(
            struct_pack(
                *columns(
                    * exclude (problem_id, num_gpus, num_clusters, max_num_gpus, nvlink_size)
                )
            ) as varchar
        ) as conditions
    from problem
)

select
    problem.problem_id,
    problem_model.model,
    problem_model.model_shape,
    problem_system.is_published_system,
    problem_system.system_changes,
    problem_assumption.assumptions,
    problem_assumption.num_changed_constants,
    problem_assumption.num_changed_step_constants,
    text_id(concat_ws(' ', condition.conditions, problem.nvlink_size)) as scaling_id,
    text_id(condition.conditions) as capacity_id,
    text_id(
        cast(
            row(
                problem_model.model_shape,
                problem.global_batch_size,
                problem.num_gpus,
                problem.num_clusters,
                problem.gpus_per_cluster,
                problem.dataset_tokens,
                problem_assumption.assumptions
            ) as varchar
        )
    ) as workload_id
from problem
inner join condition on problem.problem_id = condition.problem_id
inner join problem_model on problem.problem_id = problem_model.problem_id
inner join problem_system on problem.problem_id = problem_system.problem_id
inner join problem_assumption on problem.problem_id = problem_assumption.problem_id
