-- The layouts that are at most percent % slower than the best of their problem, and fit in memory.
-- Grain: one row per configuration
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

        configuration_source.strategy,
        configuration_source.attention,
        configuration_source.activation_recompute,
        configuration_source.data_parallel,
        configuration_source.tensor_parallel,
        configuration_source.tensor_parallel_2,
        configuration_source.tensor_parallel_external,
        configuration_source.context_parallel,
        configuration_source.sequence_parallel,
        configuration_source.expert_parallel,
        configuration_source.pipeline_parallel,
        configuration_source.virtual_pipeline,
        configuration_source.uses_sequence_parallel,
        configuration_source.zero_stage,
        configuration_source.microbatch_size,
        configuration_source.num_microbatches,
        configuration_source.summa_panels,
        configuration_source.nvlink_data_parallel,
        configuration_source.nvlink_tensor_parallel,
        configuration_source.nvlink_tensor_parallel_2,
        configuration_source.nvlink_context_parallel,
        configuration_source.nvlink_pipeline_parallel,

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
