-- Power and energy of runs, with the site's overhead, its price and its carbon.
-- Grain: one row per run
select * from stg_cluster_electricity
