-- Published steps and a team's own runs, each with its layout.
-- Grain: one row per published measurement or own run
-- Key: reference, published_row
--
-- A team's own runs count like published ones: their reference is the name that they were stored
-- under. Those of mixtures of experts and in 8 bits are left out; view measurement_comparison has
-- their times.
with own as (
    select
        measurement.* replace (
            coalesce(
                measurement.model,
                measurement.num_layers || ' layers of ' || measurement.hidden_size
            ) as model,
            coalesce(accelerator_alias.accelerator, measurement.accelerator) as accelerator,
            coalesce(measurement.nvlink_size, accelerator.gpus_per_node) as nvlink_size
        ),
        -- a gated layer has three matrices where model_flops counts two
        measurement.ffn_hidden_size * case when measurement.uses_glu then 1.5 else 1 end
            as ffn_width,
        case when measurement.activation_recompute = 'full' then 4 / 3 else 1 end as passes
    from measurement
    left join accelerator_alias on measurement.accelerator = accelerator_alias.alias
    left join accelerator
        on
            coalesce(accelerator_alias.accelerator, measurement.accelerator)
            = accelerator.accelerator
    where measurement.num_experts = 1 and measurement.precision not in ('fp8', 'fp4')
)

select
    *,
    false as is_own_run
from published_step
union all by name
select
    reference,
    measured_row as published_row,
    'all' as published_group,
    unnest(published_case(own)) as published_case,
    ffn_hidden_size,
    uses_glu,
    num_kv_heads,
    nvlink_size,
    context_parallel,
    virtual_pipeline,
    microbatch_size,
    activation_recompute,
    uses_sequence_parallel,
    zero_stage,
    framework,
    attention,
    true as is_own_framework,
    true as is_own_run,
    -- the logits are never computed again
    passes
    * model_flops(
        global_batch_size,
        seq_len,
        num_layers,
        hidden_size,
        ffn_width,
        num_heads,
        num_kv_heads,
        0
    )
    + cast(6 as double) * global_batch_size * seq_len * hidden_size * vocab_size as step_flops,
    step_flops / measured_step_seconds / num_gpus as published_flops_per_second_per_gpu,
    measured_step_seconds as published_step_seconds,
    0.0 as published_rounding
from own
