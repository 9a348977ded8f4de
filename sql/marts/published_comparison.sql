-- Published steps and your own, each with the estimates of exactly the same configuration.
-- Grain: one row per published measurement or own run, estimator and variant
-- Key: reference, published_row, estimator, variant
--
-- Only estimates for the hardware as published and with the default constants take part; points of
-- a sweep do not. Where a publication does not say the microbatch or the interleaving, the estimate
-- assumes one sequence a microbatch without interleaving, or the least that was evaluated.
-- num_choices, lowest_step_seconds and highest_step_seconds give the range of the other choices
-- that fit in memory; the interval of the default is wider by them, as nobody knows which was run.
-- A row of table published_measurement has the estimate that was made of it, as table
-- published_estimate says, with the rates and constants that its source names; one without a
-- published time has no error of the time. Of several NVLink placements the fastest counts. Errors
-- are estimated over published, less one: negative where the estimate is too fast or too small. An
-- estimator without layouts (data_parallel is NULL) has one time for all of them; it is left out
-- where it was given the reached rate, as it then predicts nothing. tensor_comm_seconds includes
-- context_comm_seconds and expert_comm_seconds, which only some estimators tell apart.
with candidate as (
    select * exclude (model, step_flops)
    from configuration
    where cell_id in (select measured_cell.cell_id from measured_cell)
),

-- one row for each estimator that completed a measurement: its problem is the estimate's
published as (
    select
        compared_step.*,
        completed.problem_id as completed_problem_id,
        completed.estimator as completed_estimator,
        completed.variant as completed_variant,
        completed.attention as completed_attention,
        completed.expert_parallel as completed_expert_parallel,
        completed.expert_tensor_parallel as completed_expert_tensor_parallel,
        completed.zero_stage as completed_zero_stage,
        completed.uses_sequence_parallel as completed_sequence_parallel
    from compared_step
    left join published_estimate as completed
        on
            compared_step.reference = completed.reference
            and compared_step.published_row = completed.published_row
            and completed.problem_id is not null
    where
        compared_step.reference <> 'published_measurement' or completed.problem_id is not null
),

estimate as (
    select
        published.reference,
        published.published_row,
        published.published_group,
        published.is_own_run,
        published.is_own_framework,
        published.step_flops,
        published.published_flops_per_second_per_gpu,
        published.published_step_seconds,
        published.published_rounding,
        published.published_memory_bytes,
        published.measured_memory_kind,
        published.fits_as_published,
        candidate.*,
        published.model
    from candidate
    inner join published
        on
            candidate.num_layers = published.num_layers
            and candidate.hidden_size = published.hidden_size
            and candidate.ffn_hidden_size = published.ffn_hidden_size
            and candidate.uses_glu = published.uses_glu
            and coalesce(candidate.num_heads, published.num_heads) = published.num_heads
            and coalesce(candidate.num_kv_heads, published.num_kv_heads) = published.num_kv_heads
            and candidate.seq_len = published.seq_len
            and coalesce(candidate.vocab_size, published.vocab_size) = published.vocab_size
            and candidate.accelerator = published.accelerator
            and coalesce(candidate.nvlink_size, published.nvlink_size) = published.nvlink_size
            and candidate.num_gpus = published.num_gpus
            and candidate.global_batch_size = published.global_batch_size
            and (
                candidate.data_parallel is null
                or (
                    candidate.data_parallel = published.data_parallel
                    and candidate.tensor_parallel = published.tensor_parallel
                    and coalesce(candidate.context_parallel, 1) = published.context_parallel
                    and candidate.pipeline_parallel = published.pipeline_parallel
                    and candidate.virtual_pipeline
                    = coalesce(published.virtual_pipeline, candidate.virtual_pipeline)
                    and candidate.microbatch_size
                    = coalesce(published.microbatch_size, candidate.microbatch_size)
                )
            )
            and candidate.activation_recompute = published.activation_recompute
            and coalesce(candidate.framework, published.framework) = published.framework
    left join system on published.accelerator = system.accelerator
    where
        -- tensors split along one dimension, in half precision
        coalesce(candidate.strategy, 'tensor_1d') = 'tensor_1d'
        and coalesce(candidate.tensor_parallel_2, 1) = 1
        and coalesce(candidate.bytes_per_element, 2) = 2
        and (
            candidate.achieved_flops_per_second_per_gpu is null
            or candidate.achieved_flops_per_second_per_gpu = candidate.matrix_flops_per_second
        )
        and case
            when published.completed_problem_id is not null
                then
                    candidate.problem_id = published.completed_problem_id
                    and candidate.estimator = published.completed_estimator
                    and candidate.variant = published.completed_variant
                    and candidate.attention is not distinct from published.completed_attention
                    and candidate.expert_parallel
                    is not distinct from published.completed_expert_parallel
                    -- completions that were stored before there was such a degree do not have it
                    and candidate.expert_tensor_parallel
                    is not distinct from coalesce(
                        published.completed_expert_tensor_parallel,
                        candidate.expert_tensor_parallel
                    )
                    and candidate.zero_stage is not distinct from published.completed_zero_stage
                    and candidate.uses_sequence_parallel
                    is not distinct from published.completed_sequence_parallel
            else
                coalesce(candidate.expert_parallel, 1) = 1
                and coalesce(candidate.num_experts, 1) = 1
                and case
                    when candidate.framework is null
                        then
                            -- an estimate without a program shards as ZeRO 0 to 2 do: no ZeRO 3
                            (published.zero_stage < 3 or candidate.data_parallel is null)
                            and coalesce(
                                candidate.matrix_flops_per_second = system.matrix_flops_per_second,
                                true
                            )
                            and coalesce(
                                candidate.vector_flops_per_second = system.vector_flops_per_second,
                                true
                            )
                            and coalesce(
                                candidate.hbm_bytes_per_second = system.hbm_bytes_per_second, true
                            )
                            and coalesce(candidate.hbm_bytes = system.hbm_bytes, true)
                            and coalesce(
                                candidate.nvlink_bytes_per_second = system.nvlink_bytes_per_second,
                                true
                            )
                            and coalesce(
                                candidate.nvlink_efficiency = system.nvlink_efficiency, true
                            )
                            and coalesce(
                                candidate.nvlink_latency_seconds = system.nvlink_latency_seconds,
                                true
                            )
                            and coalesce(
                                candidate.network_bytes_per_second
                                = system.network_bytes_per_second,
                                true
                            )
                            and coalesce(
                                candidate.network_efficiency = system.network_efficiency, true
                            )
                            and coalesce(
                                candidate.network_latency_seconds = system.network_latency_seconds,
                                true
                            )
                            and coalesce(candidate.nics_per_gpu = system.nics_per_gpu, true)
                            and coalesce(candidate.flops_efficiency = system.flops_efficiency, true)
                            and coalesce(candidate.launch_seconds = system.launch_seconds, true)
                    else
                        candidate.profile = 'default'
                        and candidate.precision in ('bf16', 'fp16')
                        and candidate.attention = published.attention
                        and candidate.zero_stage = published.zero_stage
                        and candidate.uses_sequence_parallel = published.uses_sequence_parallel
                        and candidate.problem_id not in (
                            select problem_group.problem_id
                            from problem_group
                            where problem_group.num_changed_constants > 0
                        )
                end
        end
),

fastest_placement as (
    select *
    from estimate
    qualify
        row_number() over (
            partition by
                reference,
                published_row,
                estimator,
                variant,
                microbatch_size,
                virtual_pipeline
            order by
                step_seconds asc,
                vocab_size asc nulls last,
                nvlink_tensor_parallel desc,
                nvlink_data_parallel desc,
                nvlink_pipeline_parallel desc,
                problem_id asc
        ) = 1
),

default_choice as (
    select
        *,
        count(*) over choices as num_choices,
        min(step_seconds) filter (where fits_memory is not false) over choices
            as lowest_step_seconds,
        max(step_seconds) filter (where fits_memory is not false) over choices
            as highest_step_seconds
    from fastest_placement
    window choices as (partition by reference, published_row, estimator, variant)
    qualify
        row_number() over (
            partition by reference, published_row, estimator, variant
            order by microbatch_size asc, virtual_pipeline asc
        ) = 1
),

with_interval as (
    select
        default_choice.*,
        completed.low_step_seconds
        * least(default_choice.lowest_step_seconds / default_choice.step_seconds, 1)
            as low_step_seconds,
        completed.high_step_seconds
        * greatest(default_choice.highest_step_seconds / default_choice.step_seconds, 1)
            as high_step_seconds
    from default_choice
    left join published_estimate as completed using (reference, published_row, estimator, variant)
)

select
    reference,
    published_row,
    published_group,
    is_own_run,
    is_own_framework,
    model,
    estimator,
    estimator_version,
    variant,
    problem_id,
    cell_id,

    accelerator,
    framework,
    precision,
    hidden_size,
    num_gpus,
    global_batch_size,
    data_parallel,
    tensor_parallel,
    context_parallel,
    pipeline_parallel,
    virtual_pipeline,
    expert_parallel,
    expert_tensor_parallel,
    microbatch_size,
    activation_recompute,
    uses_sequence_parallel,
    zero_stage,
    nvlink_size,
    nvlink_data_parallel,
    nvlink_tensor_parallel,
    nvlink_pipeline_parallel,

    published_flops_per_second_per_gpu,
    step_flops / (step_seconds * num_gpus) as predicted_flops_per_second_per_gpu,
    published_step_seconds,
    step_seconds,
    step_seconds / published_step_seconds - 1 as time_relative_error,
    case when abs(time_relative_error) <= published_rounding then 0 else time_relative_error end
        as time_error_beyond_rounding,
    low_step_seconds,
    high_step_seconds,
    published_step_seconds between low_step_seconds and high_step_seconds as is_inside_interval,
    mfu,
    mfu * step_seconds / published_step_seconds as published_mfu,
    published_rounding,

    num_choices,
    lowest_step_seconds,
    highest_step_seconds,

    compute_seconds,
    memory_seconds,
    tensor_comm_seconds,
    context_comm_seconds,
    expert_comm_seconds,
    pipeline_comm_seconds,
    bubble_seconds,
    data_comm_seconds,
    gemm_seconds,
    attention_seconds,
    elementwise_seconds,
    vocabulary_seconds,
    recompute_seconds,
    host_seconds,
    accumulation_seconds,
    optimizer_seconds,
    published_memory_bytes,
    measured_memory_kind,
    memory_bytes,
    memory_of_kind(measured_memory_kind, allocated_bytes, reserved_bytes, memory_bytes)
        as compared_memory_bytes,
    compared_memory_bytes / published_memory_bytes - 1 as memory_relative_error,
    fits_as_published,
    fits_memory,
    fit_probability
from with_interval
