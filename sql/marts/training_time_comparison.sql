-- Published times of whole runs, compared with the estimated step times the steps of the run.
-- Grain: one row per published run, estimator and variant
-- Key: reference, published_row, estimator, variant
--
-- Where the published time was computed from a measured rate, as in table 2 of arXiv 2104.04473,
-- this adds nothing to the comparison of steps: neither contains interruptions of the run.
select
    published_comparison.reference,
    published_comparison.published_row,
    published_comparison.published_group,
    published_comparison.is_own_framework,
    published_comparison.estimator,
    published_comparison.variant,
    published_comparison.num_gpus,
    published_step.dataset_tokens,
    published_step.dataset_tokens
    / (cast(published_step.global_batch_size as double) * published_step.seq_len) as num_steps,
    published_step.published_training_seconds,
    num_steps * published_comparison.published_step_seconds as measured_training_seconds,
    num_steps * published_comparison.step_seconds as training_seconds,
    training_seconds / published_step.published_training_seconds - 1 as time_relative_error
from published_comparison
inner join published_step using (reference, published_row)
where
    published_step.published_training_seconds is not null
    and published_step.dataset_tokens is not null
