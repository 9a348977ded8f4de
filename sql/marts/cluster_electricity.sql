-- Power and energy of runs, with the site's overhead, its price and its carbon.
-- Grain: one row per run
-- Key: cell_id, {cluster_electricity}
select
    *,
    case
        when watts_per_gpu is null
            then 'no published power of its server: set watts_per_gpu, or see training_energy'
    end as power_note,
    case when usd_per_kwh is null then 'no price of electricity was given: set usd_per_kwh' end
        as price_note,
    case when kg_co2e_per_kwh is null then 'no grid was given: set kg_co2e_per_kwh' end
        as carbon_note
from stg_cluster_electricity
