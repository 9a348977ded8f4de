-- Published times of whole runs, compared with their FLOPs at the published rate.
-- Grain: one row per published run, estimator and variant
-- Key: reference, published_row, estimator, variant
--
-- No rate is predicted: the published one is taken. This tests whether the FLOPs, tokens and days
-- of a publication agree. training_seconds counts the FLOPs of every step;
-- approximate_training_seconds is equation 4 of arXiv 2104.04473. A published rate may be off by
-- half of its last digit, and published days are whole.
with run as (
    select
        published.reference,
        published.published_row,
        published.published_group,
        candidate.estimator,
        candidate.variant,
        candidate.problem_id,
        candidate.num_gpus,
        candidate.achieved_flops_per_second_per_gpu,
        candidate.dataset_tokens,
        candidate.num_steps,
        published.published_training_seconds,
        candidate.training_seconds,
        candidate.training_seconds / (1 + published.published_rounding) as lowest_training_seconds,
        candidate.training_seconds / (1 - published.published_rounding) as highest_training_seconds,
        candidate.approximate_training_seconds
    from configuration as candidate
    inner join published_step as published
        on
            candidate.num_layers = published.num_layers
            and candidate.hidden_size = published.hidden_size
            and candidate.ffn_hidden_size = published.ffn_hidden_size
            and candidate.uses_glu = published.uses_glu
            and coalesce(candidate.num_heads, published.num_heads) = published.num_heads
            and coalesce(candidate.num_kv_heads, published.num_kv_heads) = published.num_kv_heads
            and candidate.seq_len = published.seq_len
            and candidate.vocab_size = published.vocab_size
            and coalesce(candidate.accelerator, published.accelerator) = published.accelerator
            and candidate.num_gpus = published.num_gpus
            and candidate.global_batch_size = published.global_batch_size
            and candidate.activation_recompute = published.activation_recompute
            and candidate.dataset_tokens = published.dataset_tokens
            and candidate.achieved_flops_per_second_per_gpu
            = published.published_flops_per_second_per_gpu
    where
        published.reference = 'published_megatron_training_time'
        -- follows from the join, and keeps estimators without that column from being read
        and candidate.achieved_flops_per_second_per_gpu is not null
        and candidate.achieved_flops_per_second_per_gpu
        is distinct from candidate.matrix_flops_per_second
    -- several problems differ only in columns that the equations do not read
    qualify
        row_number() over (
            partition by
                published.reference,
                published.published_row,
                candidate.estimator,
                candidate.variant
            order by candidate.problem_id
        ) = 1
)

select
    *,
    training_seconds / published_training_seconds - 1 as time_relative_error,
    lowest_training_seconds <= published_training_seconds + 43200
    and highest_training_seconds >= published_training_seconds - 43200 as is_within_rounding,
    approximate_training_seconds / published_training_seconds - 1
        as approximate_time_relative_error
from run
