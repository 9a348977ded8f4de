-- Throughput of a GPU on each number of GPUs, relative to the fewest that hold the model.
-- Grain: one row per assumptions, estimator, variant, model, batch, system and number of GPUs
with point as (
    select
        assumptions,
        estimator,
        variant,
        model,
        global_batch_size,
        accelerator,
        nvlink_size,
        num_gpus,
        min(best)['step_seconds'] as step_seconds,
        any_value(step_tokens) / min(best)['step_seconds'] / any_value(num_gpus)
            as tokens_per_second_per_gpu
    from best_of_search
    where
        step_tokens is not null
        and assumptions = $assumptions
        and estimator = $estimator
        and variant = $variant
        and strategy = $strategy
        and model = $model
        and global_batch_size = $global_batch_size
        and accelerator = $accelerator
        and nvlink_size = $nvlink_size
    group by all
)

select
    *,
    tokens_per_second_per_gpu / first_value(tokens_per_second_per_gpu) over (
        partition by
            assumptions, estimator, variant, model, global_batch_size, accelerator, nvlink_size
        order by num_gpus
    ) as relative_throughput
from point
order by all
