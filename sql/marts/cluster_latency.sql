-- The least latency between two sites, over a run, in GPU time and money.
-- Grain: one row per run, pair of sites and interval between all-reduces
-- Key: cell_id, {cluster_latency}
select
    *,
    total_latency_seconds / (training_seconds + total_latency_seconds) as latency_fraction,
    case when usd_per_gpu_hour is null then 'no price was given: set usd_per_gpu_hour' end
        as price_note
from stg_cluster_latency
