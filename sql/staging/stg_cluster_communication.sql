-- All-reduces of gradients between the sites of a run.
-- Grain: one row per run and way to all-reduce gradients
-- Key: cell_id, {cluster_communication}
--
-- As published, rent of idle GPUs is divided by its price (C2). All GPUs of a run are idle, unless
-- the source's left-over number replaces them (C3).
with waiting as (
    select
        *,
        sync_seconds * coalesce(idle_num_gpus, num_gpus) as idle_gpu_seconds
    from current_cluster_communication
)

select
    unnest(cluster_question(waiting)) as question,

    -- sites
    num_sites,
    site_bytes_per_second,
    gradient_bytes_per_parameter,
    sync_interval_steps,
    site_links,
    exchange,
    overlaps_exchange,

    -- run
    usd_per_gpu_hour,
    goodput,
    try_cast(num_gpus as integer) as num_gpus,
    num_steps,
    step_seconds,
    training_seconds,

    -- exchange
    gradient_bytes,
    exchange_bytes,
    num_exchanges,
    exchange_seconds,
    case when step_seconds > 0 then greatest(ceil(exchange_seconds / step_seconds), 1) end
        as hiding_interval_steps,
    sync_seconds,
    case when sync_seconds > 0 then sync_seconds / (training_seconds + sync_seconds) else 0 end
        as sync_fraction,
    coalesce(idle_num_gpus, num_gpus) as idle_num_gpus,
    idle_gpu_seconds,
    case
        when has_mend(mends, 'C2') then idle_gpu_seconds / 3600 * usd_per_gpu_hour
        else idle_gpu_seconds / 3600 / usd_per_gpu_hour
    end as idle_cost_usd
from waiting
