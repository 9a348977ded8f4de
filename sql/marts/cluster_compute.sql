-- GPUs that finish a step in the time asked for, with the time and the cost of the whole run.
-- Grain: one row per run
-- Key: cell_id, {cluster_compute}
--
-- The price of an hour is the one that the run was evaluated with: the source's 2 dollars where no
-- accelerator was named. training_cost has the prices of the reference tables.
select
    *,
    gpu_hours * usd_per_gpu_hour as cost_usd,
    case
        when usd_per_gpu_hour is null
            then 'no price was given: set usd_per_gpu_hour, or see training_cost'
    end as price_note
from stg_cluster_compute
