-- Published steps of table printed_step, with the layout of each.
-- Grain: one row per published measurement
-- Key: reference, published_row
-- Kept: reference
--
-- A microbatch or an interleaving that was not published is NULL. Assumed where the sources say
-- nothing: feed-forward layers four times as wide as the model; for the training times, pipelines
-- of model_parallel / 8 stages of eight GPUs each, full recomputation, and the heads that table 1
-- has at that width; for Megatron-Core on H100, sequence parallelism, the distributed optimizer and
-- no recomputation. Rows of programs that the estimators do not model are evaluated with the
-- constants of the nearest program: is_own_framework is false. Rates are FLOP/s as Megatron counts
-- them: full recomputation included, selective recomputation not, attention over the whole square.
-- Rows of published_measurement take the inputs that their sources name, and a name of table model
-- where no shape is given. There a NULL ZeRO stage, sequence parallelism, attention, precision,
-- rate or constant is the default of the program or of the accelerator. A run without a published
-- time has its memory, or did not fit. model is the key of table model that has the same shape and
-- vocabulary, else the name that the source prints. View compared_step adds a team's own runs.
with shaped as (
    -- a row's own shape goes before that of the model that it names, or that of a plain GPT
    select
        printed.* replace (
            coalesce(printed.num_layers, named.num_layers) as num_layers,
            coalesce(printed.hidden_size, named.hidden_size) as hidden_size,
            coalesce(printed.ffn_hidden_size, named.ffn_hidden_size, 4 * printed.hidden_size)
                as ffn_hidden_size,
            coalesce(printed.uses_glu, named.uses_glu, false) as uses_glu,
            coalesce(printed.num_heads, named.num_heads) as num_heads,
            coalesce(printed.num_kv_heads, named.num_kv_heads, printed.num_heads) as num_kv_heads,
            coalesce(printed.head_size, named.head_size) as head_size,
            coalesce(printed.seq_len, named.seq_len) as seq_len,
            coalesce(printed.vocab_size, named.vocab_size) as vocab_size,
            coalesce(printed.ties_embedding, named.ties_embedding) as ties_embedding,
            coalesce(printed.num_experts, named.num_experts) as num_experts,
            coalesce(printed.experts_per_token, named.experts_per_token) as experts_per_token,
            coalesce(printed.expert_ffn_hidden_size, named.expert_ffn_hidden_size)
                as expert_ffn_hidden_size,
            coalesce(printed.num_shared_experts, named.num_shared_experts) as num_shared_experts,
            coalesce(printed.num_dense_layers, named.num_dense_layers) as num_dense_layers,
            coalesce(printed.num_mtp_layers, named.num_mtp_layers) as num_mtp_layers,
            coalesce(accelerator_alias.accelerator, printed.accelerator) as accelerator,
            coalesce(printed.nvlink_size, accelerator.gpus_per_node) as nvlink_size,
            coalesce(printed.context_parallel, 1) as context_parallel,
            coalesce(printed.expert_parallel, 1) as expert_parallel,
            coalesce(
                printed.virtual_pipeline,
                case
                    when printed.reference = 'published_measurement' then 1
                    when printed.pipeline_parallel = 1 then 1
                end
            ) as virtual_pipeline
        ),
        named.* exclude (
            named.model, named.num_layers, named.hidden_size, named.ffn_hidden_size,
            named.uses_glu, named.num_heads, named.num_kv_heads, named.head_size, named.seq_len,
            named.vocab_size, named.ties_embedding, named.num_experts, named.experts_per_token,
            named.expert_ffn_hidden_size, named.num_shared_experts, named.num_dense_layers,
            named.num_mtp_layers, named.assumed, named.source, named.note
        ),
        accelerator.bf16_flops_per_second
    from printed_step as printed
    left join model as named on printed.model = named.model
    left join accelerator_alias on printed.accelerator = accelerator_alias.alias
    left join accelerator
        on coalesce(accelerator_alias.accelerator, printed.accelerator) = accelerator.accelerator
),

counted as (
    select
        reference,
        published_row,
        -- a gated layer has three matrices where model_flops counts two
        case when uses_glu then 3 else 2 end / 2 as products,
        -- the share of layers with experts, and the width that a token passes through in them
        case when num_experts > 1 then 1 - coalesce(num_dense_layers, 0) / num_layers else 0 end
            as sparse_share,
        coalesce(expert_ffn_hidden_size, ffn_hidden_size) as expert_width,
        coalesce(experts_per_token, 1) * expert_width
        + coalesce(shared_ffn_hidden_size, num_shared_experts * expert_width, 0) as mixed_width,
        products * ((1 - sparse_share) * ffn_hidden_size + sparse_share * mixed_width) as ffn_width,
        -- layers that predict further tokens are of the last kind, behind a projection
        coalesce(num_mtp_layers, 0) as further_layers,
        case when num_experts > 1 then mixed_width else ffn_hidden_size end * products + hidden_size
            as further_width,
        coalesce(head_size, hidden_size // num_heads) as head_width,
        num_heads * (coalesce(qk_head_size, head_width) + coalesce(qk_rotary_size, 0))
            as query_width,
        num_heads * coalesce(v_head_size, head_width) as result_width,
        -- half of the weights of attention; latent ones by their ranks
        case
            when kv_lora_rank > 0
                then (
                    hidden_size
                    * (coalesce(q_lora_rank, 0) + kv_lora_rank + qk_rotary_size + result_width)
                    + case when q_lora_rank > 0 then q_lora_rank else hidden_size end * query_width
                    + kv_lora_rank * num_heads * (qk_head_size + v_head_size)
                ) / 2
            else query_width * hidden_size * (1 + num_kv_heads / num_heads)
        end as attention_products,
        -- the length of sequences with the causal attention of the average layer
        case
            when coalesce(attention_window, 0) = 0 then 1
            when window_period > 0 then num_layers // window_period / num_layers
            else 0
        end as unwindowed_share,
        case
            when unwindowed_share = 1 or attention_window >= seq_len then seq_len
            when uses_chunked_attention then attention_window
            else attention_window * (2.0 - attention_window / seq_len)
        end as windowed_length,
        unwindowed_share * seq_len + (1 - unwindowed_share) * windowed_length as attended_length,
        (query_width + result_width) / 2 * attended_length as scores_width,
        cast(global_batch_size as double) * seq_len as tokens,
        -- macro model_flops, with experts and heads of any size
        case when activation_recompute = 'full' then 4 / 3 else 1 end * 12 * tokens * (
            num_layers * (attention_products + scores_width + hidden_size * ffn_width)
            + further_layers * (attention_products + scores_width + hidden_size * further_width)
        )
        -- the logits are never computed again
        + 6 * (1 + further_layers) * tokens * hidden_size * vocab_size as step_flops
    from shaped
)

select
    shaped.* exclude (
        shaped.printed_model, shaped.parameters, shaped.software, shaped.published_precision,
        shaped.model_parallel, shaped.peak_flops_per_second,
        shaped.achieved_flops_per_second_per_gpu, shaped.aggregate_flops_per_second,
        shaped.achieved_fraction_of_peak, shaped.mfu, shaped.hfu, shaped.half_last_digit,
        shaped.published_step_seconds, shaped.training_seconds, shaped.training_days_as_printed,
        shaped.bf16_flops_per_second, shaped.source, shaped.note
    )
    replace (
        -- a name of table model remains: models of one shape may differ in more
        coalesce(shaped.model, same_shape.model, shaped.printed_model) as model,
        coalesce(shaped.ties_embedding, same_shape.ties_embedding) as ties_embedding
    ),
    shaped.published_precision as precision,
    counted.step_flops,
    coalesce(
        shaped.achieved_flops_per_second_per_gpu,
        counted.step_flops / shaped.published_step_seconds / shaped.num_gpus,
        shaped.mfu * shaped.bf16_flops_per_second
    ) as published_flops_per_second_per_gpu,
    coalesce(
        shaped.published_step_seconds,
        counted.step_flops / published_flops_per_second_per_gpu / shaped.num_gpus
    ) as published_step_seconds,
    shaped.training_seconds as published_training_seconds,
    coalesce(
        shaped.half_last_digit / coalesce(
            shaped.achieved_flops_per_second_per_gpu, shaped.published_step_seconds, shaped.mfu
        ),
        0
    ) as published_rounding
from shaped
inner join counted using (reference, published_row)
left join model as same_shape
    on
        shaped.num_layers = same_shape.num_layers
        and shaped.hidden_size = same_shape.hidden_size
        and shaped.ffn_hidden_size = same_shape.ffn_hidden_size
        and shaped.uses_glu = same_shape.uses_glu
        and shaped.num_heads = same_shape.num_heads
        and shaped.num_kv_heads = same_shape.num_kv_heads
        and shaped.vocab_size = same_shape.vocab_size
        and coalesce(shaped.num_experts, 1) = coalesce(same_shape.num_experts, 1)
