-- Training on several sites: time and share of the run that waits for gradients, and its price.
-- Grain: one row per run and way to exchange gradients
select
    *,
    training_seconds + sync_seconds as elapsed_seconds
from stg_cluster_communication
