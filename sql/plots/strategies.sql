-- The best layout of each strategy on each number of GPUs, relative to 1D tensor parallelism.
-- Grain: one row per assumptions, estimator, variant, model, batch, system, GPUs and strategy
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
        strategy,
        min(best)['step_seconds'] as step_seconds
    from best_of_search
    where
        strategy is not null
        and assumptions = $assumptions
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and global_batch_size = $global_batch_size
        and accelerator = $accelerator
        and nvlink_size = $nvlink_size
    group by all
),

compared as (
    select
        *,
        any_value(step_seconds) filter (where strategy = 'tensor_1d') over (
            partition by
                assumptions,
                estimator,
                variant,
                model,
                global_batch_size,
                accelerator,
                nvlink_size,
                num_gpus
        ) as tensor_1d_step_seconds
    from point
)

select
    *,
    tensor_1d_step_seconds / step_seconds as relative_speed
from compared
where tensor_1d_step_seconds is not null
order by all
