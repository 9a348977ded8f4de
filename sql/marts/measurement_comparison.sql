-- A team's measurements, each with the estimates of exactly the same configuration.
-- Grain: one row per measurement, estimator, variant and profile of constants
-- Key: reference, measured_row, estimator, variant, profile
--
-- Errors are estimated over measured, less one: positive where the estimate is too slow or too
-- large. An estimator that does not model a part of the configuration is compared all the same; one
-- with another value of it is not. Of several NVLink placements the fastest counts. Estimates for
-- other hardware or constants than the published ones take part only where the measurement was
-- stored with them. Each calibrated profile has a row.
with candidate as (
    select
        configuration.*,
        problem_group.is_published_system
    from configuration
    semi join measured_cell on configuration.cell_id = measured_cell.cell_id
    inner join problem_group on configuration.problem_id = problem_group.problem_id
    where
        coalesce(configuration.strategy, 'tensor_1d') = 'tensor_1d'
        and coalesce(configuration.tensor_parallel_2, 1) = 1
        and coalesce(configuration.tensor_parallel_external, 1) = 1
),

-- the problems that a measurement was stored with
estimated as (
    select
        reference,
        measured_row,
        unnest([problem_id, profiled_problem_id]) as problem_id
    from measurement
),

matched as (
    select
        estimated.reference,
        estimated.measured_row,
        candidate.problem_id,
        candidate.estimator,
        candidate.variant
    from estimated
    inner join candidate on estimated.problem_id = candidate.problem_id
    union
    select
        measurement.reference,
        measurement.measured_row,
        candidate.problem_id,
        candidate.estimator,
        candidate.variant
    from measurement
    inner join candidate
        on
            measurement.num_layers = candidate.num_layers
            and measurement.hidden_size = candidate.hidden_size
            and measurement.ffn_hidden_size = candidate.ffn_hidden_size
            and measurement.num_heads = candidate.num_heads
            and measurement.num_kv_heads = candidate.num_kv_heads
            and measurement.seq_len = candidate.seq_len
            and measurement.accelerator = candidate.accelerator
            and measurement.num_gpus = candidate.num_gpus
            and measurement.global_batch_size = candidate.global_batch_size
    where
        coalesce(candidate.uses_glu, measurement.uses_glu) = measurement.uses_glu
        and coalesce(candidate.head_size, measurement.head_size) = measurement.head_size
        and coalesce(candidate.num_experts, 1) = measurement.num_experts
        and coalesce(candidate.experts_per_token, 1) = measurement.experts_per_token
        and (
            candidate.vocab_size is null
            or measurement.vocab_size is null
            or candidate.vocab_size = measurement.vocab_size
        )
        and coalesce(candidate.nvlink_size, measurement.nvlink_size) = measurement.nvlink_size
        and coalesce(candidate.framework, measurement.framework) = measurement.framework
        and coalesce(candidate.precision, measurement.precision) = measurement.precision
        and candidate.is_published_system is distinct from false
        and (
            coalesce(candidate.profile, 'default') <> 'default'
            or candidate.problem_id not in (
                select problem_group.problem_id
                from problem_group
                where problem_group.num_changed_constants > 0
            )
        )
)

select
    measurement.reference,
    measurement.measured_row,
    candidate.estimator,
    candidate.estimator_version,
    candidate.variant,
    candidate.profile,
    candidate.problem_id,
    candidate.cell_id,

    coalesce(measurement.model, candidate.model) as model,
    measurement.accelerator,
    measurement.framework,
    measurement.num_gpus,
    measurement.global_batch_size,
    measurement.data_parallel,
    measurement.tensor_parallel,
    measurement.context_parallel,
    measurement.pipeline_parallel,
    measurement.virtual_pipeline,
    measurement.expert_parallel,
    measurement.expert_tensor_parallel,
    measurement.microbatch_size,
    measurement.zero_stage,
    measurement.uses_sequence_parallel,
    measurement.activation_recompute,
    measurement.attention,

    measurement.measured_step_seconds,
    candidate.step_seconds,
    candidate.step_seconds / measurement.measured_step_seconds - 1 as time_relative_error,
    abs(time_relative_error) as absolute_relative_error,
    candidate.mfu,
    measurement.measured_memory_bytes,
    measurement.measured_memory_kind,
    candidate.memory_bytes,
    memory_of_kind(
        measurement.measured_memory_kind,
        candidate.allocated_bytes,
        candidate.reserved_bytes,
        candidate.memory_bytes
    ) as compared_memory_bytes,
    compared_memory_bytes / measurement.measured_memory_bytes - 1 as memory_relative_error,
    candidate.fits_memory,
    candidate.fit_probability,

    candidate.compute_seconds,
    candidate.memory_seconds,
    candidate.tensor_comm_seconds,
    candidate.pipeline_comm_seconds,
    candidate.bubble_seconds,
    candidate.data_comm_seconds,

    measurement.source,
    measurement.note
from matched
inner join measurement using (reference, measured_row)
inner join candidate
    on
        matched.problem_id = candidate.problem_id
        and matched.estimator = candidate.estimator
        and matched.variant = candidate.variant
        -- both are NULL of an estimator without the degree, if it completed the measurement
        and measurement.data_parallel is not distinct from candidate.data_parallel
        and measurement.tensor_parallel is not distinct from candidate.tensor_parallel
        and measurement.pipeline_parallel is not distinct from candidate.pipeline_parallel
        and measurement.microbatch_size is not distinct from candidate.microbatch_size
        and measurement.activation_recompute is not distinct from candidate.activation_recompute
where
    coalesce(candidate.context_parallel, 1) = coalesce(measurement.context_parallel, 1)
    and coalesce(candidate.virtual_pipeline, 1) = coalesce(measurement.virtual_pipeline, 1)
    and coalesce(candidate.expert_parallel, 1) = coalesce(measurement.expert_parallel, 1)
    -- measurements that were stored before there was such a degree do not have it
    and coalesce(candidate.expert_tensor_parallel, measurement.expert_tensor_parallel, 1)
    = coalesce(measurement.expert_tensor_parallel, candidate.expert_tensor_parallel, 1)
    and coalesce(candidate.attention, measurement.attention)
    is not distinct from measurement.attention
    and coalesce(candidate.uses_sequence_parallel, measurement.uses_sequence_parallel)
    is not distinct from measurement.uses_sequence_parallel
    -- an estimate without a program shards as ZeRO 0 to 2 do: no ZeRO 3
    and case
        when candidate.framework is null then coalesce(measurement.zero_stage, 0) < 3
        else candidate.zero_stage = measurement.zero_stage
    end
qualify
    row_number() over (
        partition by
            measurement.reference,
            measurement.measured_row,
            candidate.estimator,
            candidate.variant,
            candidate.profile
        order by
            matched.problem_id <> measurement.problem_id asc,
            matched.problem_id is distinct from measurement.profiled_problem_id asc,
            candidate.step_seconds asc,
            candidate.nvlink_tensor_parallel desc,
            candidate.nvlink_data_parallel desc,
            candidate.problem_id asc
    ) = 1
