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
        nvlink_size,
        virtual_pipeline,
        microbatch_size,
        activation_recompute,
        false as uses_sequence_parallel,
        0 as zero_stage,
        'megatron_lm_2021' as framework,
        'unfused' as attention,
        true as is_own_framework,
        achieved_flops_per_second_per_gpu as flops_per_second_per_gpu,
        0.5e12 / achieved_flops_per_second_per_gpu as published_rounding
    from published_megatron_scaling
    union all by name
    select
        'published_megatron_recompute' as reference,
        model || ' ' || activation_recompute as published_row,
        activation_recompute as published_group,
        unnest(published_case(published_megatron_recompute)) as published_case,
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
        head_count.num_heads,
        published.seq_len,
        published.vocab_size,
        published.accelerator,
        published.num_gpus,
        published.global_batch_size,
        least(published.model_parallel, 8) as tensor_parallel,
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
        * exclude (published_precision, published_step_seconds, printed_model, note, source)
        replace (
            coalesce(model, printed_model) as model,
            coalesce(expert_parallel, 1) as expert_parallel,
            coalesce(virtual_pipeline, 1) as virtual_pipeline
        ),
        published_precision as precision,
        published_step_seconds as step_seconds,
        0.0 as published_rounding
    from published_measurement
),

-- what a row leaves out of its shape is that of the model that it names, or as in a plain GPT
shaped as (
    select
        measured.* replace (
            coalesce(measured.num_layers, named.num_layers) as num_layers,
            coalesce(measured.hidden_size, named.hidden_size) as hidden_size,
            coalesce(measured.num_heads, named.num_heads) as num_heads,
            coalesce(measured.head_size, named.head_size) as head_size,
            coalesce(measured.seq_len, named.seq_len) as seq_len,
            coalesce(measured.vocab_size, named.vocab_size) as vocab_size,
            coalesce(measured.ties_embedding, named.ties_embedding) as ties_embedding,
            coalesce(measured.num_experts, named.num_experts) as num_experts,
            coalesce(measured.experts_per_token, named.experts_per_token) as experts_per_token,
            coalesce(
                measured.expert_ffn_hidden_size, named.expert_ffn_hidden_size
            ) as expert_ffn_hidden_size,
            coalesce(measured.num_shared_experts, named.num_shared_experts) as num_shared_experts,
            coalesce(measured.num_dense_layers, named.num_dense_layers) as num_dense_layers,
            coalesce(measured.num_mtp_layers, named.num_mtp_layers) as num_mtp_layers,
            coalesce(
                measured.ffn_hidden_size, named.ffn_hidden_size, 4 * measured.hidden_size
            ) as ffn_hidden_size,
            coalesce(measured.uses_glu, named.uses_glu, false) as uses_glu,
            coalesce(measured.num_kv_heads, named.num_kv_heads, measured.num_heads)
                as num_kv_heads,
            coalesce(measured.context_parallel, 1) as context_parallel,
            coalesce(accelerator_alias.accelerator, measured.accelerator) as accelerator,
            coalesce(measured.nvlink_size, accelerator.gpus_per_node) as nvlink_size
        ),
        named.* exclude (
            named.model, named.num_layers, named.hidden_size, named.ffn_hidden_size,
            named.uses_glu, named.num_heads, named.num_kv_heads, named.head_size, named.seq_len,
            named.vocab_size, named.ties_embedding, named.num_experts, named.experts_per_token,
            named.expert_ffn_hidden_size, named.num_shared_experts, named.num_dense_layers,
            named.num_mtp_layers, named.assumed, named.source, named.note
        ),
        named.model as named_model,
        accelerator.bf16_flops_per_second
    from measured
    left join model as named on measured.model = named.model
    left join accelerator_alias on measured.accelerator = accelerator_alias.alias
    left join accelerator
        on
            coalesce(accelerator_alias.accelerator, measured.accelerator)
            = accelerator.accelerator
),

counted as (
    select
        *,
        -- a gated layer has three matrices where model_flops counts two
        case when uses_glu then 3 else 2 end / 2 as products,
        -- the share of layers with experts, and the width that a token passes through in them
        case
            when num_experts > 1
                then 1 - coalesce(num_dense_layers, 0) / num_layers
            else 0
        end as sparse_share,
        coalesce(expert_ffn_hidden_size, ffn_hidden_size) as expert_width,
        coalesce(experts_per_token, 1) * expert_width
        + coalesce(
            shared_ffn_hidden_size, num_shared_experts * expert_width, 0
        ) as mixed_width,
        products
        * ((1 - sparse_share) * ffn_hidden_size + sparse_share * mixed_width) as ffn_width,
        -- layers that predict further tokens are of the last kind, behind a projection
        coalesce(num_mtp_layers, 0) as further_layers,
        case
            when num_experts > 1 then mixed_width else ffn_hidden_size
        end * products + hidden_size as further_width,
        coalesce(head_size, hidden_size // num_heads) as head_width,
        num_heads * (
            coalesce(qk_head_size, head_width) + coalesce(qk_rotary_size, 0)
        ) as query_width,
        num_heads * coalesce(v_head_size, head_width) as result_width,
        -- half of the weights of attention; latent ones by their ranks
        case
            when kv_lora_rank > 0
                then (
                    hidden_size
                    * (
                        coalesce(q_lora_rank, 0)
                        + kv_lora_rank
                        + qk_rotary_size
                        + result_width
                    )
                    + case
                        when q_lora_rank > 0
                            then q_lora_rank
                        else hidden_size
                    end * query_width
                    + kv_lora_rank
                    * num_heads
                    * (qk_head_size + v_head_size)
                ) / 2
            else
                query_width
                * hidden_size
                * (1 + coalesce(num_kv_heads, num_heads) / num_heads)
        end as attention_products,
        -- the length of sequences with the causal attention of the average layer
        case
            when coalesce(attention_window, 0) = 0 then 1
            when window_period > 0
                then num_layers // window_period / num_layers
            else 0
        end as unwindowed_share,
        unwindowed_share * seq_len
        + (1 - unwindowed_share) * case
            when attention_window >= seq_len then seq_len
            when uses_chunked_attention then attention_window
            else
                attention_window
                * (2.0 - attention_window / seq_len)
        end as windowed_part,
        coalesce(windowed_part, seq_len) as attended_length,
        (query_width + result_width) / 2 * attended_length as scores_width,
        case when activation_recompute = 'full' then 4 / 3 else 1 end as passes,
        -- macro model_flops, with experts and heads of any size
        passes
        * 12
        * cast(global_batch_size as double)
        * seq_len
        * (
            num_layers
            * (attention_products + scores_width + hidden_size * ffn_width)
            + further_layers
            * (attention_products + scores_width + hidden_size * further_width)
        )
        -- the logits are never computed again
        + cast(6 as double)
        * (1 + further_layers)
        * global_batch_size
        * seq_len
        * hidden_size
        * vocab_size as step_flops
    from shaped
)

select
    counted.* exclude (
        counted.named_model, counted.bf16_flops_per_second, counted.flops_per_second_per_gpu,
        counted.mfu, counted.step_seconds, counted.training_seconds, counted.products,
        counted.sparse_share, counted.expert_width, counted.mixed_width, counted.ffn_width,
        counted.further_layers, counted.further_width, counted.head_width, counted.query_width,
        counted.result_width, counted.attention_products, counted.unwindowed_share,
        counted.windowed_part, counted.attended_length, counted.scores_width, counted.passes
    )
    replace (
        -- a name of table model remains: models of one shape may differ in more
        coalesce(counted.named_model, same_shape.model, counted.model) as model
    ),
    coalesce(
        counted.flops_per_second_per_gpu,
        counted.mfu * counted.bf16_flops_per_second,
        counted.step_flops / counted.step_seconds / counted.num_gpus
    ) as published_flops_per_second_per_gpu,
    coalesce(
        counted.step_seconds,
        counted.step_flops / published_flops_per_second_per_gpu / counted.num_gpus
    ) as published_step_seconds,
    counted.training_seconds as published_training_seconds
from counted
left join model as same_shape
    on
        counted.num_layers = same_shape.num_layers
        and counted.hidden_size = same_shape.hidden_size
        and counted.ffn_hidden_size = same_shape.ffn_hidden_size
        and counted.uses_glu = same_shape.uses_glu
        and counted.num_heads = same_shape.num_heads
        and counted.num_kv_heads = same_shape.num_kv_heads
        and counted.vocab_size = same_shape.vocab_size
        and coalesce(counted.num_experts, 1) = coalesce(same_shape.num_experts, 1)
