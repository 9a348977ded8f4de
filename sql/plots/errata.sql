-- Change of the best step time by each mend of an erratum.
-- Grain: one row per problem, estimator, mended variant and strategy
select
    estimator,
    variant as mended,
    fault,
    model,
    strategy,
    accelerator,
    nvlink_size,
    num_gpus,
    best_step_ratio - 1 as best_step_change,
    is_best_changed
from erratum_effect
where
    best_step_ratio is not null
    and strategy <> 'all'
    and estimator = $estimator
    and model = $model
    and strategy = $strategy
    and accelerator = $accelerator
    and num_gpus = $num_gpus
qualify count(*) filter (where variant <> 'corrected') over (partition by problem_id) > 0
order by all
