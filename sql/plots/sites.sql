-- A run on several sites by batch: its GPUs, dollars of GPUs that wait, seconds of latency.
-- Grain: one row per quantity, place on its axis and series
with compute as (
    select distinct
        'gpus' as kind,
        estimator,
        variant,
        parameters,
        dataset_tokens,
        global_batch_tokens as place,
        'accumulation ' || gradient_accumulation as series,
        gradient_accumulation as series_rank,
        num_gpus as quantity
    from cluster_compute
    where
        num_gpus > 0
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and dataset_tokens = $tokens
),

communication as (
    select distinct
        'wait' as kind,
        estimator,
        variant,
        parameters,
        dataset_tokens,
        global_batch_tokens as place,
        'every ' || if(sync_interval_steps = 1, 'step', sync_interval_steps || ' steps')
        || printf(', %g B', gradient_bytes_per_parameter) as series,
        sync_interval_steps * 10 + gradient_bytes_per_parameter as series_rank,
        idle_cost_usd as quantity
    from cluster_communication
    where
        idle_cost_usd > 0
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and dataset_tokens = $tokens
),

latency as (
    select distinct
        'latency' as kind,
        estimator,
        variant,
        parameters,
        dataset_tokens,
        global_batch_tokens as place,
        replace(site_b, '_', ' ') || ', every '
        || if(sync_interval_steps = 1, 'step', sync_interval_steps || ' steps') as series,
        sync_interval_steps as series_rank,
        total_latency_seconds as quantity
    from cluster_latency
    where
        total_latency_seconds > 0
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and dataset_tokens = $tokens
)

select *
from compute
union all
select *
from communication
union all
select *
from latency
order by all
