-- Published steps of all tables, with the layout of each.
-- Grain: one row per published measurement
-- Key: reference, published_row
-- Kept: reference
--
-- A microbatch or an interleaving that was not published is NULL. Assumed where the tables say
-- nothing: feed-forward layers four times as wide as the model; for the training times, pipelines
-- of model_parallel / 8 stages of eight GPUs each, full recomputation, and the heads that table 1
-- has at that width; for Megatron-Core on H100, sequence parallelism, the distributed optimizer and
-- no recomputation. Rows of programs that the estimators do not model are evaluated with the
-- constants of the nearest program: is_own_framework is false. Rates are FLOP/s as Megatron counts
-- them: full recomputation included, selective recomputation not, attention over the whole square.
-- Rows of table published_measurement take the inputs that their sources name, and a name of table
-- model where no shape is given. There a NULL ZeRO stage, sequence parallelism, attention,
-- precision, rate or constant is the default of the program or of the accelerator. A run without a
-- published time has its memory, or did not fit. model is the key of table model that has the same
-- shape and vocabulary, else the name that the source prints. View compared_step adds a team's own
-- runs.
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
        case
            when published.scheme = 'ZeRO-3' then 'deepspeed_2021' else 'megatron_lm_2021'
        end as framework,
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
        coalesce(virtual_pipeline, case when pipeline_parallel = 1 then 1 end)
            as virtual_pipeline,
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
    union all by name
    select
        'published_measurement' as reference,
        published.published_row,
        published.published_group,
        coalesce(published.model, published.printed_model) as model,
        coalesce(published.num_layers, model.num_layers) as num_layers,
        coalesce(published.hidden_size, model.hidden_size) as hidden_size,
        coalesce(
            published.ffn_hidden_size, model.ffn_hidden_size, 4 * published.hidden_size
        ) as ffn_hidden_size,
        coalesce(published.uses_glu, model.uses_glu, false) as uses_glu,
        coalesce(published.num_heads, model.num_heads) as num_heads,
        coalesce(
            published.num_kv_heads, model.num_kv_heads, published.num_heads
        ) as num_kv_heads,
        coalesce(published.head_size, model.head_size) as head_size,
        coalesce(published.seq_len, model.seq_len) as seq_len,
        coalesce(published.vocab_size, model.vocab_size) as vocab_size,
        coalesce(published.ties_embedding, model.ties_embedding) as ties_embedding,
        coalesce(published.num_experts, model.num_experts) as num_experts,
        coalesce(published.experts_per_token, model.experts_per_token) as experts_per_token,
        coalesce(
            published.expert_ffn_hidden_size, model.expert_ffn_hidden_size
        ) as expert_ffn_hidden_size,
        coalesce(published.num_shared_experts, model.num_shared_experts) as num_shared_experts,
        coalesce(published.num_dense_layers, model.num_dense_layers) as num_dense_layers,
        coalesce(published.num_mtp_layers, model.num_mtp_layers) as num_mtp_layers,
        model.q_lora_rank,
        model.kv_lora_rank,
        model.qk_head_size,
        model.qk_rotary_size,
        model.v_head_size,
        model.shared_ffn_hidden_size,
        model.moe_period,
        model.route_groups,
        model.route_groups_kept,
        model.attention_window,
        model.window_period,
        model.uses_chunked_attention,
        model.uses_qk_norm,
        model.uses_attention_sinks,
        model.uses_linear_bias,
        model.uses_gate_clamp,
        model.uses_yarn,
        model.uses_router_bias,
        published.accelerator,
        published.framework,
        published.is_own_framework,
        published.published_precision as precision,
        published.attention,
        published.activation_recompute,
        published.num_gpus,
        published.global_batch_size,
        published.tensor_parallel,
        coalesce(published.context_parallel, 1) as context_parallel,
        coalesce(published.expert_parallel, 1) as expert_parallel,
        published.pipeline_parallel,
        coalesce(published.virtual_pipeline, 1) as virtual_pipeline,
        published.data_parallel,
        published.microbatch_size,
        published.zero_stage,
        published.uses_sequence_parallel,
        published.hbm_bytes,
        published.hbm_bytes_per_second,
        published.network_bytes_per_second,
        published.tensor_overlap_fraction,
        published.reduced_gradient_bytes,
        published.splits_tensor_exchanges,
        published.gradient_overlap_fraction,
        published.parameter_overlap_fraction,
        published.number_recipe,
        published.power_limit_watts,
        published.uses_cuda_graphs,
        published.framework_release,
        published.published_step_seconds as step_seconds,
        published.published_memory_bytes,
        published.measured_memory_kind,
        published.fits_as_published,
        0.0 as published_rounding
    from published_measurement as published
    left join model on published.model = model.model
),

counted as (
    select
        measured.* exclude (model, accelerator, nvlink_size),
        -- a name of table model remains: models of one shape may differ in more
        coalesce(named.model, same_shape.model, measured.model) as model,
        coalesce(accelerator_alias.accelerator, measured.accelerator) as accelerator,
        coalesce(measured.nvlink_size, accelerator.gpus_per_node) as nvlink_size,
        accelerator.bf16_flops_per_second,
        -- a gated layer has three matrices where model_flops counts two
        case when measured.uses_glu then 3 else 2 end / 2 as products,
        -- the share of layers with experts, and the width that a token passes through in them
        case
            when measured.num_experts > 1
                then 1 - coalesce(measured.num_dense_layers, 0) / measured.num_layers
            else 0
        end as sparse_share,
        coalesce(measured.expert_ffn_hidden_size, measured.ffn_hidden_size) as expert_width,
        coalesce(measured.experts_per_token, 1) * expert_width
        + coalesce(
            measured.shared_ffn_hidden_size, measured.num_shared_experts * expert_width, 0
        ) as mixed_width,
        products
        * ((1 - sparse_share) * measured.ffn_hidden_size + sparse_share * mixed_width) as ffn_width,
        -- layers that predict further tokens are of the last kind, behind a projection
        coalesce(measured.num_mtp_layers, 0) as further_layers,
        case
            when measured.num_experts > 1 then mixed_width else measured.ffn_hidden_size
        end * products + measured.hidden_size as further_width,
        coalesce(measured.head_size, measured.hidden_size // measured.num_heads) as head_width,
        measured.num_heads * (
            coalesce(measured.qk_head_size, head_width) + coalesce(measured.qk_rotary_size, 0)
        ) as query_width,
        measured.num_heads * coalesce(measured.v_head_size, head_width) as result_width,
        -- half of the weights of attention; latent ones by their ranks
        case
            when measured.kv_lora_rank > 0
                then (
                    measured.hidden_size
                    * (
                        coalesce(measured.q_lora_rank, 0)
                        + measured.kv_lora_rank
                        + measured.qk_rotary_size
                        + result_width
                    )
                    + case
                        when measured.q_lora_rank > 0
                            then measured.q_lora_rank
                        else measured.hidden_size
                    end * query_width
                    + measured.kv_lora_rank
                    * measured.num_heads
                    * (measured.qk_head_size + measured.v_head_size)
                ) / 2
            else
                query_width
                * measured.hidden_size
                * (1 + coalesce(measured.num_kv_heads, measured.num_heads) / measured.num_heads)
        end as attention_products,
        -- the length of sequences with the causal attention of the average layer
        case
            when coalesce(measured.attention_window, 0) = 0 then 1
            when measured.window_period > 0
                then measured.num_layers // measured.window_period / measured.num_layers
            else 0
        end as unwindowed_share,
        unwindowed_share * measured.seq_len
        + (1 - unwindowed_share) * case
            when measured.attention_window >= measured.seq_len then measured.seq_len
            when measured.uses_chunked_attention then measured.attention_window
            else
                measured.attention_window
                * (2.0 - measured.attention_window / measured.seq_len)
        end as windowed_part,
        coalesce(windowed_part, measured.seq_len) as attended_length,
        (query_width + result_width) / 2 * attended_length as scores_width,
        case when measured.activation_recompute = 'full' then 4 / 3 else 1 end as passes,
        -- macro model_flops, with experts and heads of any size
        passes
        * 12
        * cast(measured.global_batch_size as double)
        * measured.seq_len
        * (
            measured.num_layers
            * (attention_products + scores_width + measured.hidden_size * ffn_width)
            + further_layers
            * (attention_products + scores_width + measured.hidden_size * further_width)
        )
        -- the logits are never computed again
        + cast(6 as double)
        * (1 + further_layers)
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
    left join model as named on measured.model = named.model
    left join model as same_shape
        on
            measured.num_layers = same_shape.num_layers
            and measured.hidden_size = same_shape.hidden_size
            and measured.ffn_hidden_size = same_shape.ffn_hidden_size
            and measured.uses_glu = same_shape.uses_glu
            and measured.num_heads = same_shape.num_heads
            and measured.num_kv_heads = same_shape.num_kv_heads
            and measured.vocab_size = same_shape.vocab_size
            and coalesce(measured.num_experts, 1) = coalesce(same_shape.num_experts, 1)
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
    head_size,
    ties_embedding,
    num_experts,
    experts_per_token,
    expert_ffn_hidden_size,
    num_shared_experts,
    num_dense_layers,
    num_mtp_layers,
    q_lora_rank,
    kv_lora_rank,
    qk_head_size,
    qk_rotary_size,
    v_head_size,
    shared_ffn_hidden_size,
    moe_period,
    route_groups,
    route_groups_kept,
    attention_window,
    window_period,
    uses_chunked_attention,
    uses_qk_norm,
    uses_attention_sinks,
    uses_linear_bias,
    uses_gate_clamp,
    uses_yarn,
    uses_router_bias,
    accelerator,
    nvlink_size,
    framework,
    precision,
    attention,
    hbm_bytes,
    hbm_bytes_per_second,
    network_bytes_per_second,
    tensor_overlap_fraction,
    reduced_gradient_bytes,
    splits_tensor_exchanges,
    gradient_overlap_fraction,
    parameter_overlap_fraction,
    number_recipe,
    power_limit_watts,
    uses_cuda_graphs,
    framework_release,
    num_gpus,
    global_batch_size,
    data_parallel,
    tensor_parallel,
    context_parallel,
    expert_parallel,
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
    published_memory_bytes,
    measured_memory_kind,
    fits_as_published,
    dataset_tokens,
    training_seconds as published_training_seconds
from counted
