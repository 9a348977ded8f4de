-- How far apart two estimators are: step times of the same layout of the same problem.
-- Grain: one row per pair of problems, estimator versions, variants and layout
-- Key: problem_id, other_problem_id, estimator, estimator_version, variant, other_estimator,
-- other_estimator_version, other_variant, data_parallel, tensor_parallel, tensor_parallel_2,
-- context_parallel, expert_parallel, expert_tensor_parallel, pipeline_parallel, virtual_pipeline,
-- microbatch_size, activation_recompute
--
-- Problems match as in problem_pair; layouts match in all degrees, microbatch and recomputation. A
-- degree that an estimator does not have is 1. Choices that only one of them has (placement in
-- NVLink domains, sharding, attention) are those of its fastest step. The memory is of that layout,
-- which may not fit (fits_memory). Ratios are the second's over the first's.
with layout as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        coalesce(data_parallel, 1) as data_parallel,
        coalesce(tensor_parallel, 1) as tensor_parallel,
        coalesce(tensor_parallel_2, tensor_parallel_external, 1) as tensor_parallel_2,
        coalesce(context_parallel, sequence_parallel, 1) as context_parallel,
        coalesce(expert_parallel, 1) as expert_parallel,
        coalesce(expert_tensor_parallel, 1) as expert_tensor_parallel,
        coalesce(pipeline_parallel, 1) as pipeline_parallel,
        coalesce(virtual_pipeline, 1) as virtual_pipeline,
        microbatch_size,
        coalesce(activation_recompute, 'none') as activation_recompute,
        -- of layouts that take as long the one that needs less memory
        min(
            struct_pack(
                step_seconds := step_seconds,
                memory_bytes := memory_bytes,
                fits_memory := fits_memory
            )
        ) as fastest,
        count(*) as num_layouts
    from configuration_source
    where
        microbatch_size is not null
        and cell_id in (select paired_cell.cell_id from paired_cell)
    group by all
)

select
    problem_pair.problem_id,
    problem_pair.other_problem_id,
    problem_pair.estimator,
    layout.estimator_version,
    layout.variant,
    problem_pair.other_estimator,
    another.estimator_version as other_estimator_version,
    another.variant as other_variant,

    problem_group.model,
    problem_pair.accelerator,
    problem_group.assumptions,
    other_group.assumptions as other_assumptions,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,

    layout.data_parallel,
    layout.tensor_parallel,
    layout.tensor_parallel_2,
    layout.context_parallel,
    layout.expert_parallel,
    layout.expert_tensor_parallel,
    layout.pipeline_parallel,
    layout.virtual_pipeline,
    layout.microbatch_size,
    layout.activation_recompute,

    layout.num_layouts,
    another.num_layouts as other_num_layouts,
    layout.fastest.step_seconds,
    another.fastest.step_seconds as other_step_seconds,
    another.fastest.step_seconds / layout.fastest.step_seconds as step_ratio,
    layout.fastest.memory_bytes,
    another.fastest.memory_bytes as other_memory_bytes,
    another.fastest.memory_bytes / layout.fastest.memory_bytes as memory_ratio,
    layout.fastest.fits_memory,
    another.fastest.fits_memory as other_fits_memory
from problem_pair
inner join layout using (problem_id, estimator)
inner join layout as another
    on
        problem_pair.other_problem_id = another.problem_id
        and problem_pair.other_estimator = another.estimator
        and layout.data_parallel = another.data_parallel
        and layout.tensor_parallel = another.tensor_parallel
        and layout.tensor_parallel_2 = another.tensor_parallel_2
        and layout.context_parallel = another.context_parallel
        and layout.expert_parallel = another.expert_parallel
        and layout.expert_tensor_parallel = another.expert_tensor_parallel
        and layout.pipeline_parallel = another.pipeline_parallel
        and layout.virtual_pipeline = another.virtual_pipeline
        and layout.microbatch_size = another.microbatch_size
        and layout.activation_recompute = another.activation_recompute
inner join problem_group on problem_pair.problem_id = problem_group.problem_id
inner join problem_group as other_group
    on problem_pair.other_problem_id = other_group.problem_id
