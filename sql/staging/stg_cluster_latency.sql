-- Least latency between the two sites of a run: that of light.
-- Grain: one row per run, pair of sites and interval between all-reduces
-- Key: cell_id, {cluster_latency}
select
    unnest(cluster_question(current_cluster_latency)) as question,

    -- sites
    site_a,
    latitude_a,
    longitude_a,
    site_b,
    latitude_b,
    longitude_b,
    medium,
    sync_interval_steps,

    -- run
    usd_per_gpu_hour,
    goodput,
    try_cast(num_gpus as integer) as num_gpus,
    num_steps,
    training_seconds,

    -- latency
    num_exchanges,
    distance_km,
    latency_seconds,
    latency_seconds * num_exchanges as total_latency_seconds,
    coalesce(idle_num_gpus, num_gpus) as idle_num_gpus,
    total_latency_seconds * coalesce(idle_num_gpus, num_gpus) as idle_gpu_seconds,
    idle_gpu_seconds / 3600 * usd_per_gpu_hour as idle_cost_usd
from current_cluster_latency
