-- Freedom of choice: the ranges of the degrees of all layouts within 5 % of the best of a problem.
-- Grain: one row per problem, estimator, estimator_version and variant of which a layout fits
-- Key: problem_id, estimator, estimator_version, variant
--
-- A degree whose lowest and highest value are the same leaves no choice. Strategies and
-- recomputations are listed. is_whole_space is false where only some layouts were evaluated.
-- near_optimal_layouts(percent) takes other percentages and has the layouts themselves.
--
-- Faster layouts that are riskier than the best (macro fit_risk) are left out. Layouts within 5 %
-- of the best of their cell are among its leading rows.
with near_layout as (
    select
        near_configuration_source.*,
        best_of_problem.is_whole_space,
        problem_group.model_shape,
        problem_group.system_changes,
        problem_group.assumptions
    from near_configuration_source
    inner join best_of_problem using (problem_id, estimator, estimator_version, variant)
    inner join problem_group
        on near_configuration_source.problem_id = problem_group.problem_id
    where
        near_configuration_source.fits_memory is distinct from false
        -- the macro takes the whole row
        and fit_risk(near_configuration_source) <= best_of_problem.best.fit_risk -- noqa: RF02
        and near_configuration_source.step_seconds <= best_of_problem.best.step_seconds * 1.05
)

select
    problem_id,
    estimator,
    estimator_version,
    variant,
    is_whole_space,

    model,
    model_shape,
    accelerator,
    system_changes,
    assumptions,
    nvlink_size,
    num_gpus,
    global_batch_size,

    min(step_seconds) as best_step_seconds,
    count(*) as num_near_layouts,
    count(distinct struct_pack(
        tensor_parallel := tensor_parallel,
        tensor_parallel_2 := tensor_parallel_2,
        context_parallel := context_parallel,
        pipeline_parallel := pipeline_parallel,
        data_parallel := data_parallel,
        tensor_parallel_external := tensor_parallel_external,
        sequence_parallel := sequence_parallel,
        expert_parallel := expert_parallel,
        expert_tensor_parallel := expert_tensor_parallel
    )) as num_near_splits,
    string_agg(distinct strategy, ', ' order by strategy) as near_strategies,
    string_agg(distinct activation_recompute, ', ' order by activation_recompute)
        as near_activation_recomputes,
    min(memory_bytes) as lowest_memory_bytes,
    max(memory_bytes) as highest_memory_bytes,
    min(data_parallel) as lowest_data_parallel,
    max(data_parallel) as highest_data_parallel,
    min(tensor_parallel) as lowest_tensor_parallel,
    max(tensor_parallel) as highest_tensor_parallel,
    min(tensor_parallel_2) as lowest_tensor_parallel_2,
    max(tensor_parallel_2) as highest_tensor_parallel_2,
    min(tensor_parallel_external) as lowest_tensor_parallel_external,
    max(tensor_parallel_external) as highest_tensor_parallel_external,
    min(context_parallel) as lowest_context_parallel,
    max(context_parallel) as highest_context_parallel,
    min(sequence_parallel) as lowest_sequence_parallel,
    max(sequence_parallel) as highest_sequence_parallel,
    min(expert_parallel) as lowest_expert_parallel,
    max(expert_parallel) as highest_expert_parallel,
    min(expert_tensor_parallel) as lowest_expert_tensor_parallel,
    max(expert_tensor_parallel) as highest_expert_tensor_parallel,
    min(pipeline_parallel) as lowest_pipeline_parallel,
    max(pipeline_parallel) as highest_pipeline_parallel,
    min(virtual_pipeline) as lowest_virtual_pipeline,
    max(virtual_pipeline) as highest_virtual_pipeline,
    min(microbatch_size) as lowest_microbatch_size,
    max(microbatch_size) as highest_microbatch_size
from near_layout
group by all
