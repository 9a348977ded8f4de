-- Training on several sites: time and share of the run that waits for gradients, and its price.
-- Grain: one row per run and way to all-reduce gradients
-- Key: cell_id, {cluster_communication}
select
    *,
    training_seconds + sync_seconds as elapsed_seconds,
    case when usd_per_gpu_hour is null then 'no price was given: set usd_per_gpu_hour' end
        as price_note
from stg_cluster_communication
