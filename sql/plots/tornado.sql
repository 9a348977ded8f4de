-- The best layout of a problem, whose constants are then moved to the ends of their ranges.
-- Grain: one row per problem, estimator, estimator_version and variant
select
    best_of_problem.problem_id,
    best_of_problem.estimator,
    best_of_problem.variant,
    problem_group.model,
    problem_group.accelerator,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,
    problem.seq_len,
    problem.framework,
    best_of_problem.best_layout,
    best_of_problem.best['step_seconds'] as step_seconds
from best_of_problem
inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
inner join problem on best_of_problem.problem_id = problem.problem_id
where
    best_of_problem.best is not null
    and problem.model is not null
    and problem_group.num_gpus is not null
    and coalesce(problem_group.system_changes, '') = ''
    and coalesce(problem_group.assumptions, '') in ('', 'framework ' || problem.framework)
    and best_of_problem.estimator = $estimator
    and best_of_problem.variant = $variant
    and problem_group.model = $model
    and problem_group.accelerator = $accelerator
    and problem_group.num_gpus = $num_gpus
    and problem_group.global_batch_size = $global_batch_size
    and best_of_problem.problem_id = $problem_id
order by all
