-- The layouts that are at most percent % slower than the best of their problem, and fit in memory.
-- Grain: one row per configuration
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
    )

    select
        configuration_source.cell_id,
        configuration_source.problem_id,
        configuration_source.estimator,
        configuration_source.estimator_version,
        configuration_source.variant,
        best_of_problem.is_whole_space,

        configuration_source.model,
        configuration_source.accelerator,
        configuration_source.nvlink_size,
        configuration_source.num_gpus,
        configuration_source.global_batch_size,

        unnest(layout_of(configuration_source)) as layout,

        configuration_source.step_seconds,
        configuration_source.memory_bytes,
        best_of_problem.best.step_seconds as best_step_seconds,
        configuration_source.step_seconds / best_step_seconds as ratio_to_best
    from configuration_source
    inner join best_of_problem
        on
            configuration_source.problem_id = best_of_problem.problem_id
            and configuration_source.estimator = best_of_problem.estimator
            and configuration_source.estimator_version = best_of_problem.estimator_version
            and configuration_source.variant = best_of_problem.variant
    cross join argument
    where
        configuration_source.fits_memory is distinct from false
        and configuration_source.step_seconds
        <= best_of_problem.best.step_seconds * argument.largest_ratio;
