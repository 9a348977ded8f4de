-- The best layout of a model on a number of GPUs by every estimator, on every system.
-- Grain: one row per problem, estimator, estimator_version and variant of which a layout fits
-- Key: problem_id, estimator, estimator_version, variant
--
-- Fastest first: best('gpt3_1T', 4096). NULL GPUs: every number. The model may have any of its
-- names; there is no row where nothing of it is stored. The best is that of num_layouts: one
-- layout, perhaps, of an evaluated file (is_whole_space). View run_per_trillion_tokens has the same
-- layouts of every model.
-- Example: select estimator, variant, accelerator, best_layout, best_step_seconds from
-- best('gpt3_1T', 4096) limit 5
create or replace macro best(asked_model, asked_num_gpus) as table
    with argument as materialized (
        select
            known_name as model,
            -- an aggregate: from a constant DuckDB would learn that nothing has this number of
            -- GPUs, and would not look at the name
            any_value(
                argument_within('asked_num_gpus', asked_num_gpus, 1, 1e9, 'must be at least 1')
            ) as num_gpus
        from name_asked('asked_model', asked_model, ['model'])
        group by known_name
    )

    select
        best_of_problem.estimator,
        best_of_problem.estimator_version,
        best_of_problem.variant,
        problem_group.model,
        problem_group.accelerator,
        problem_group.system_changes,
        problem_group.assumptions,
        problem_group.nvlink_size,
        problem_group.num_gpus,
        problem_group.global_batch_size,
        best_of_problem.best_layout,
        best_of_problem.best.step_seconds as best_step_seconds,
        problem_group.step_tokens / best_step_seconds as tokens_per_second,
        best_of_problem.best.memory_bytes as best_memory_bytes,
        best_of_problem.num_layouts,
        best_of_problem.num_fitting_layouts,
        best_of_problem.is_whole_space,
        best_of_problem.problem_id,
        best_of_problem.cell_id
    from best_of_problem
    inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
    inner join argument
        on
            problem_group.model = argument.model
            and (argument.num_gpus is null or problem_group.num_gpus = argument.num_gpus)
    where best_of_problem.best is not null
    order by best_of_problem.best.step_seconds;
