-- Parts of the predicted step of published measurements, over the measured step.
-- Grain: one row per published step, estimator and variant
select
    estimator,
    variant,
    reference,
    published_group,
    published_row,
    num_gpus,
    published_step_seconds,
    step_seconds,
    case when num_choices > 1 then lowest_step_seconds end as lowest_step_seconds,
    case when num_choices > 1 then highest_step_seconds end as highest_step_seconds,
    gemm_seconds,
    attention_seconds,
    recompute_seconds,
    elementwise_seconds + accumulation_seconds as elementwise_seconds,
    vocabulary_seconds,
    optimizer_seconds + host_seconds as optimizer_seconds,
    tensor_comm_seconds,
    pipeline_comm_seconds,
    data_comm_seconds,
    bubble_seconds
from published_comparison
where
    published_step_seconds is not null
    and gemm_seconds is not null
    and reference <> 'published_measurement'
    and estimator = $estimator
    and variant = $variant
    and model = $model
    and accelerator = $accelerator
order by reference, published_group, num_gpus, published_row
