-- Power and energy of runs, at the power that each was given.
-- Grain: one row per run
-- Key: cell_id, {cluster_electricity}
select
    unnest(cluster_question(current_cluster_electricity)) as question,

    -- power
    watts_per_gpu,
    pue,
    usd_per_kwh,
    kg_co2e_per_kwh,

    -- run
    goodput,
    try_cast(num_gpus as integer) as num_gpus,
    num_steps,
    step_seconds,
    training_seconds,

    -- energy
    watts_per_gpu * num_gpus as power_watts,
    power_watts * training_seconds as energy_joules,
    energy_joules / 3.6e6 as energy_kwh,
    power_watts * step_seconds / 3.6e6 as step_energy_kwh,
    energy_kwh * pue as facility_energy_kwh,
    facility_energy_kwh * usd_per_kwh as electricity_usd,
    facility_energy_kwh * kg_co2e_per_kwh as kg_co2e
from current_cluster_electricity
