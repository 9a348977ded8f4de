-- Freedom of choice: the ranges of the degrees of all layouts within 5 % of the best of a problem.
-- Grain: one row per problem, estimator, estimator_version and variant of which a layout fits
-- Key: problem_id, estimator, estimator_version, variant
--
-- A degree whose lowest and highest value are the same leaves no choice. Strategies and
-- recomputations are listed. is_whole_space is false where only some layouts were evaluated.
-- near_optimal_layouts(percent) takes other percentages and has the layouts themselves.
--
-- Layouts within 5 % of the best of their cell are among its leading rows.
with near_layout as (
    select
        near_configuration_source.*,
        best_of_problem.is_whole_space
    from near_configuration_source
    inner join best_of_problem
        on
            near_configuration_source.problem_id = best_of_problem.problem_id
            and near_configuration_source.estimator = best_of_problem.estimator
            and near_configuration_source.estimator_version = best_of_problem.estimator_version
            and near_configuration_source.variant = best_of_problem.variant
    where
        near_configuration_source.fits_memory is distinct from false
        and near_configuration_source.step_seconds <= best_of_problem.best.step_seconds * 1.05
),

near as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        model,
        accelerator,
        nvlink_size,
        num_gpus,
        global_batch_size,
        is_whole_space,

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
    group by
        problem_id,
        estimator,
        estimator_version,
        variant,
        model,
        accelerator,
        nvlink_size,
        num_gpus,
        global_batch_size,
        is_whole_space
)

select
    near.problem_id,
    near.estimator,
    near.estimator_version,
    near.variant,
    near.is_whole_space,

    near.model,
    problem_group.model_shape,
    near.accelerator,
    problem_group.system_changes,
    problem_group.assumptions,
    near.nvlink_size,
    near.num_gpus,
    near.global_batch_size,

    near.best_step_seconds,
    near.num_near_layouts,
    near.num_near_splits,
    near.near_strategies,
    near.near_activation_recomputes,
    near.lowest_memory_bytes,
    near.highest_memory_bytes,
    near.lowest_data_parallel,
    near.highest_data_parallel,
    near.lowest_tensor_parallel,
    near.highest_tensor_parallel,
    near.lowest_tensor_parallel_2,
    near.highest_tensor_parallel_2,
    near.lowest_tensor_parallel_external,
    near.highest_tensor_parallel_external,
    near.lowest_context_parallel,
    near.highest_context_parallel,
    near.lowest_sequence_parallel,
    near.highest_sequence_parallel,
    near.lowest_expert_parallel,
    near.highest_expert_parallel,
    near.lowest_expert_tensor_parallel,
    near.highest_expert_tensor_parallel,
    near.lowest_pipeline_parallel,
    near.highest_pipeline_parallel,
    near.lowest_virtual_pipeline,
    near.highest_virtual_pipeline,
    near.lowest_microbatch_size,
    near.highest_microbatch_size
from near
inner join problem_group on near.problem_id = problem_group.problem_id
