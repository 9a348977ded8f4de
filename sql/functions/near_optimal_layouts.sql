-- The layouts that are at most percent % slower than the best of their problem, and fit in memory.
-- Grain: one row per configuration
-- Key: cell_id, {layout}
-- Example: select num_gpus, data_parallel, tensor_parallel, pipeline_parallel, step_seconds from
-- near_optimal_layouts(1) order by num_gpus, step_seconds limit 5
create or replace macro near_optimal_layouts(percent) as table
    with argument as (
        select
            case
                when cast(percent as double) between 0 and 1e9
                    then 1 + cast(percent as double) / 100
                else error(
                    '`percent` ' || coalesce(cast(percent as varchar), 'NULL')
                    || ': must be a number of at least 0'
                )
            end as largest_ratio
    ),

    -- one of both: DuckDB does not read the other
    candidate as (
        select *
        from near_configuration_source
        where coalesce(cast(percent as double) <= 5, true)
        union all by name
        select *
        from configuration_source
        where cast(percent as double) > 5
    )

    select
        candidate.cell_id,
        candidate.problem_id,
        candidate.estimator,
        candidate.estimator_version,
        candidate.variant,
        best_of_problem.is_whole_space,

        candidate.model,
        candidate.accelerator,
        candidate.nvlink_size,
        candidate.num_gpus,
        candidate.global_batch_size,

        unnest(layout_of(candidate)) as layout,

        candidate.step_seconds,
        candidate.memory_bytes,
        best_of_problem.best.step_seconds as best_step_seconds,
        candidate.step_seconds / best_step_seconds as ratio_to_best
    from candidate
    inner join best_of_problem
        on
            candidate.problem_id = best_of_problem.problem_id
            and candidate.estimator = best_of_problem.estimator
            and candidate.estimator_version = best_of_problem.estimator_version
            and candidate.variant = best_of_problem.variant
    cross join argument
    where
        candidate.fits_memory is distinct from false
        and candidate.step_seconds
        <= best_of_problem.best.step_seconds * argument.largest_ratio;
