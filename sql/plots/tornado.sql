-- The best layout of a problem, whose constants are then moved to the ends of their ranges.
-- Grain: one row per problem, estimator, estimator_version and variant
with assumed as (
    select
        problem.problem_id,
        problem.model,
        problem.seq_len,
        problem.framework,
        -- the program of a problem is not an assumption of this picture
        coalesce(nullif(problem_group.assumptions, 'framework ' || problem.framework), '')
            as assumptions
    from problem
    inner join problem_group on problem.problem_id = problem_group.problem_id
)

select
    best_of_problem.problem_id,
    best_of_problem.estimator,
    best_of_problem.variant,
    problem_group.model,
    problem_group.accelerator,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,
    assumed.seq_len,
    assumed.framework,
    assumed.assumptions,
    best_of_problem.best_layout,
    best_of_problem.best['step_seconds'] as step_seconds
from best_of_problem
inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
inner join assumed on best_of_problem.problem_id = assumed.problem_id
where
    best_of_problem.best is not null
    and assumed.model is not null
    and problem_group.num_gpus is not null
    and coalesce(problem_group.system_changes, '') = ''
    and assumed.assumptions = $assumptions
    and best_of_problem.estimator = $estimator
    and best_of_problem.variant = $variant
    and problem_group.model = $model
    and problem_group.accelerator = $accelerator
    and problem_group.num_gpus = $num_gpus
    and problem_group.global_batch_size = $global_batch_size
    and best_of_problem.problem_id = $problem_id
order by all
