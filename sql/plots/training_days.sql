-- Days of a run by the best layout of each system on each number of GPUs.
-- Grain: one row per assumptions, estimator, variant, model, batch, system and number of GPUs
select
    assumptions,
    estimator,
    variant,
    model,
    global_batch_size,
    accelerator,
    nvlink_size,
    num_gpus,
    $tokens as dataset_tokens,
    min(best)['step_seconds'] as step_seconds,
    arg_min(best_layout, best) as best_layout,
    in_days(ceil($tokens / any_value(step_tokens)) * min(best)['step_seconds']) as training_days
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
order by all
