-- The layouts that are at most percent % slower than the best of their problem, and fit as surely.
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
        candidate.is_default_variant,
        best_of_problem.is_whole_space,

        candidate.model,
        problem_group.model_shape,
        candidate.accelerator,
        problem_group.system_changes,
        problem_group.assumptions,
        candidate.precision,
        candidate.nvlink_size,
        candidate.num_gpus,
        candidate.global_batch_size,

        candidate.strategy,
        candidate.activation_recompute,
        candidate.attention,
        candidate.data_parallel,
        candidate.tensor_parallel,
        candidate.tensor_parallel_2,
        candidate.tensor_parallel_external,
        candidate.context_parallel,
        candidate.sequence_parallel,
        candidate.expert_parallel,
        candidate.expert_tensor_parallel,
        candidate.pipeline_parallel,
        candidate.virtual_pipeline,
        candidate.uses_sequence_parallel,
        candidate.zero_stage,
        candidate.microbatch_size,
        candidate.num_microbatches,
        candidate.summa_panels,
        candidate.nvlink_tensor_parallel,
        candidate.nvlink_tensor_parallel_2,
        candidate.nvlink_context_parallel,
        candidate.nvlink_data_parallel,
        candidate.nvlink_pipeline_parallel,
        candidate.schedule,
        candidate.pipeline_layout,
        candidate.layers_in_first_stage,
        candidate.layers_in_last_stage,
        candidate.counts_embedding,
        candidate.counts_loss,
        candidate.microbatch_group,

        candidate.step_seconds,
        candidate.memory_bytes,
        best_of_problem.best.step_seconds as best_step_seconds,
        candidate.step_seconds / best_step_seconds as ratio_to_best
    from candidate
    inner join best_of_problem using (problem_id, estimator, estimator_version, variant)
    inner join problem_group on candidate.problem_id = problem_group.problem_id
    cross join argument
    where
        candidate.fits_memory is distinct from false
        and fit_risk(candidate) <= best_of_problem.best.fit_risk
        and candidate.step_seconds
        <= best_of_problem.best.step_seconds * argument.largest_ratio;
