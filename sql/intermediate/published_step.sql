-- Published and measured steps of all tables, with the layout of each.
-- Grain: one row per published measurement
--
-- A microbatch or an interleaving that was not published is NULL. Assumed where the tables say
-- nothing: feed-forward layers four times as wide as the model; for the training times, pipelines
-- of model_parallel / 8 stages of eight GPUs each, full recomputation, and the heads that table 1
-- has at that width; for Megatron-Core on H100, sequence parallelism, the distributed optimizer and
-- no recomputation. Rows of another program than ours are evaluated with the constants of the
-- nearest one: is_own_framework is false. Rates are FLOP/s as Megatron counts them: full
-- recomputation included, selective recomputation not, attention over the whole square.
-- Measurements of mixtures of experts and in 8 bits are left out: no publication here has either,
-- and their FLOPs are counted otherwise. measurement_comparison has their times.
with head_count as (
    select distinct
        hidden_size,
        num_heads
    from published_megatron_scaling
),

measured as (
    select
        'published_megatron_scaling' as reference,
        model as published_row,
        'all' as published_group,
        unnest(published_case(published_megatron_scaling)) as published_case,
        4 * hidden_size as ffn_hidden_size,
        false as uses_glu,
        num_heads as num_kv_heads,
        nvlink_size,
        1 as context_parallel,
        virtual_pipeline,
        microbatch_size,
        activation_recompute,
        false as uses_sequence_parallel,
        0 as zero_stage,
        'megatron_lm_2021' as framework,
        'unfused' as attention,
        true as is_own_framework,
        cast(null as double) as step_seconds,
        achieved_flops_per_second_per_gpu as flops_per_second_per_gpu,
        cast(null as double) as mfu,
        0.5e12 / achieved_flops_per_second_per_gpu as published_rounding,
        cast(null as double) as dataset_tokens,
        cast(null as double) as training_seconds
    from published_megatron_scaling
    union all by name
    select
        'published_megatron_recompute' as reference,
        model || ' ' || activation_recompute as published_row,
        activation_recompute as published_group,
        unnest(published_case(published_megatron_recompute)) as published_case,
        4 * hidden_size as ffn_hidden_size,
        false as uses_glu,
        num_heads as num_kv_heads,
        1 as context_parallel,
        virtual_pipeline,
        microbatch_size,
        activation_recompute,
        uses_sequence_parallel,
        0 as zero_stage,
        'megatron_lm_2022' as framework,
        'unfused' as attention,
        true as is_own_framework,
        step_seconds,
        0.005 / step_seconds as published_rounding
    from published_megatron_recompute
    union all by name
    select
        'published_megatron_training_time' as reference,
        published.scheme
        || ' '
        || cast(round(published.parameters / 1e9) as integer)
        || 'B '
        || published.num_gpus as published_row,
        published.scheme as published_group,
        cast(round(published.parameters / 1e9) as integer) || 'B' as model,
        published.num_layers,
        published.hidden_size,
        4 * published.hidden_size as ffn_hidden_size,
        false as uses_glu,
        head_count.num_heads,
        head_count.num_heads as num_kv_heads,
        published.seq_len,
        published.vocab_size,
        published.accelerator,
        published.num_gpus,
        published.global_batch_size,
        least(published.model_parallel, 8) as tensor_parallel,
        1 as context_parallel,
        greatest(published.model_parallel // 8, 1) as pipeline_parallel,
        published.num_gpus // published.model_parallel as data_parallel,
        case when published.model_parallel = 1 then 1 end as virtual_pipeline,
        published.microbatch_size,
        'full' as activation_recompute,
        false as uses_sequence_parallel,
        case when published.scheme = 'ZeRO-3' then 3 else 0 end as zero_stage,
        'megatron_lm_2021' as framework,
        'unfused' as attention,
        published.scheme <> 'ZeRO-3' as is_own_framework,
        published.achieved_flops_per_second_per_gpu as flops_per_second_per_gpu,
        0.5e12 / published.achieved_flops_per_second_per_gpu as published_rounding,
        published.dataset_tokens,
        published.training_seconds
    from published_megatron_training_time as published
    left join head_count on published.hidden_size = head_count.hidden_size
    union all by name
    select
        'published_megatron_h100_scaling' as reference,
        model as published_row,
        'all' as published_group,
        unnest(published_case(published_megatron_h100_scaling)) as published_case,
        4 * hidden_size as ffn_hidden_size,
        false as uses_glu,
        num_heads as num_kv_heads,
        1 as context_parallel,
        case when pipeline_parallel = 1 then 1 end as virtual_pipeline,
        'none' as activation_recompute,
        tensor_parallel > 1 as uses_sequence_parallel,
        1 as zero_stage,
        'megatron_core' as framework,
        'flash' as attention,
        true as is_own_framework,
        achieved_flops_per_second_per_gpu as flops_per_second_per_gpu,
        0.05e12 / achieved_flops_per_second_per_gpu as published_rounding
    from published_megatron_h100_scaling
    union all by name
    select
        'published_training_stage' as reference,
        model || ' ' || num_gpus as published_row,
        model as published_group,
        unnest(published_case(published_training_stage)) as published_case,
        ffn_hidden_size,
        uses_glu,
        num_kv_heads,
        context_parallel,
        case when pipeline_parallel = 1 then 1 end as virtual_pipeline,
        activation_recompute,
        uses_sequence_parallel,
        zero_stage,
        framework,
        case framework when 'megatron_core' then 'flash' else 'unfused' end as attention,
        is_own_framework,
        step_seconds,
        mfu,
        half_last_digit / coalesce(step_seconds, mfu) as published_rounding,
        dataset_tokens,
        training_seconds
    from published_training_stage
    -- one's own measurements count like published ones
    union all by name
    select
        reference,
        measured_row as published_row,
        'all' as published_group,
        unnest(published_case(measurement)) as published_case,
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
        measured_step_seconds as step_seconds,
        0.0 as published_rounding
    from measurement
    where num_experts = 1 and precision <> 'fp8'
),

counted as (
    select
        measured.* exclude (accelerator, nvlink_size),
        coalesce(accelerator_alias.accelerator, measured.accelerator) as accelerator,
        coalesce(measured.nvlink_size, accelerator.gpus_per_node) as nvlink_size,
        accelerator.bf16_flops_per_second,
        -- a gated layer has three matrices where model_flops counts two
        measured.ffn_hidden_size * case when measured.uses_glu then 3 else 2 end / 2 as ffn_width,
        case when measured.activation_recompute = 'full' then 4 / 3 else 1 end as passes,
        passes * model_flops(
            measured.global_batch_size,
            measured.seq_len,
            measured.num_layers,
            measured.hidden_size,
            ffn_width,
            measured.num_heads,
            measured.num_kv_heads,
            0
        )
        -- the logits are never computed again
        + cast(6 as double)
        * measured.global_batch_size
        * measured.seq_len
        * measured.hidden_size
        * measured.vocab_size as step_flops
    from measured
    left join accelerator_alias on measured.accelerator = accelerator_alias.alias
    left join accelerator
        on
            coalesce(accelerator_alias.accelerator, measured.accelerator)
            = accelerator.accelerator
)

select
    reference,
    published_row,
    published_group,
    is_own_framework,
    model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    uses_glu,
    num_heads,
    num_kv_heads,
    seq_len,
    vocab_size,
    accelerator,
    nvlink_size,
    framework,
    attention,
    num_gpus,
    global_batch_size,
    data_parallel,
    tensor_parallel,
    context_parallel,
    pipeline_parallel,
    virtual_pipeline,
    microbatch_size,
    zero_stage,
    uses_sequence_parallel,
    activation_recompute,
    step_flops,
    coalesce(
        flops_per_second_per_gpu, mfu * bf16_flops_per_second, step_flops / step_seconds / num_gpus
    ) as published_flops_per_second_per_gpu,
    coalesce(step_seconds, step_flops / published_flops_per_second_per_gpu / num_gpus)
        as published_step_seconds,
    published_rounding,
    dataset_tokens,
    training_seconds as published_training_seconds
from counted
