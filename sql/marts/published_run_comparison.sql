-- Published runs, compared with simple arithmetic: hours, days, dollars, energy, carbon.
-- Grain: one row per published run (a stage at each number of GPUs), quantity and prediction
-- Key: run_kind, model, organization, num_gpus, quantity, prediction
--
-- Hours: 6 FLOPs an active parameter and token, over the peak rate times a utilization (the
-- budget's, the median of published ones, or the run's own). Days: hours over the run's GPUs.
-- Dollars: the published hours at the rent of that year. Energy: the published hours at the
-- server's average power, with the site's overhead (its own, or else a hyperscaler's) where the
-- published figure includes it. Carbon: the published energy with overhead, at the average grid of
-- the United States. is_circular marks figures that were themselves computed from the others, such
-- as hours from FLOPs or dollars from hours: they test their author's assumptions, not ours.
-- prediction_note says why nothing is predicted.
with published as (
    select
        published_training_runs.*,
        accelerator_spelling.accelerator as priced_as,
        accelerator.bf16_flops_per_second as peak_flops_per_second,
        gpu_power.watts_per_gpu as server_watts_per_gpu,
        gpu_hour_rate.usd_per_gpu_hour,
        facility_pue.pue as usual_pue,
        grid_carbon.kg_co2e_per_kwh
    from published_training_runs
    left join accelerator_spelling
        on published_training_runs.accelerator = accelerator_spelling.spelling
    left join accelerator on accelerator_spelling.accelerator = accelerator.accelerator
    left join gpu_power
        on accelerator_spelling.accelerator = gpu_power.accelerator and gpu_power.is_default
    left join gpu_hour_rate
        on
            accelerator_spelling.accelerator = gpu_hour_rate.accelerator
            and published_training_runs.year = gpu_hour_rate.year
            and gpu_hour_rate.basis = 'on_demand'
    left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
    left join grid_carbon on grid_carbon.grid = 'US average (LLaMA)'
),

assumed as (
    select
        parameter_value as utilization,
        'utilization ' || parameter_value || ' (' || parameter || ')' as prediction
    from cost_parameter
    where parameter in ('budget_utilization', 'median_utilization')
),

reached as (
    select
        published.*,
        assumed.prediction,
        assumed.utilization,
        false as is_own
    from published
    cross join assumed
    union all
    select
        *,
        'its own utilization' as prediction,
        mfu as utilization,
        true as is_own
    from published
    where mfu is not null
),

hours as (
    select
        *,
        6 * active_parameters * dataset_tokens
        / (peak_flops_per_second * utilization) / 3600 as predicted_gpu_hours
    from reached
),

quantities as (
    select
        *,
        'gpu_hours' as quantity,
        gpu_hours as published_value,
        predicted_gpu_hours as predicted_value,
        is_own or coalesce(is_time_circular, false) as is_circular
    from hours
    union all by name
    select
        *,
        'training_seconds' as quantity,
        training_seconds as published_value,
        predicted_gpu_hours / num_gpus * 3600 as predicted_value,
        is_own or coalesce(is_time_circular, false) as is_circular
    from hours
    union all by name
    select
        *,
        'cost_usd' as quantity,
        'its hours at the rent of that year' as prediction,
        cost_usd as published_value,
        gpu_hours * usd_per_gpu_hour as predicted_value,
        coalesce(is_cost_circular, false) as is_circular
    from published
    union all by name
    select
        *,
        'energy_kwh' as quantity,
        'its hours at average server power' as prediction,
        energy_kwh as published_value,
        gpu_hours * server_watts_per_gpu / 1000
        * case when is_energy_before_pue then 1 else coalesce(pue, usual_pue) end
            as predicted_value,
        coalesce(is_energy_circular, false) as is_circular
    from published
    union all by name
    select
        *,
        'kg_co2e' as quantity,
        'its energy in an average grid of the United States' as prediction,
        kg_co2e as published_value,
        energy_kwh * kg_co2e_per_kwh
        * case when is_energy_before_pue then coalesce(pue, 1) else 1 end as predicted_value,
        coalesce(is_energy_circular, false) as is_circular
    from published
)

select
    run_kind,
    model,
    organization,
    year,
    accelerator,
    num_gpus,
    quantity,
    prediction,
    published_value,
    predicted_value,
    predicted_value / published_value - 1 as relative_error,
    case
        when predicted_value is not null then null
        when quantity = 'kg_co2e' then 'its energy is not published'
        when priced_as is null then 'its accelerator is in no table'
        when quantity in ('cost_usd', 'energy_kwh') and gpu_hours is null
            then 'its hours are not published'
        when quantity = 'cost_usd' then 'no price of a rented hour of that year was published'
        when quantity = 'energy_kwh' then 'no published power of its server'
        when peak_flops_per_second is null then 'no published rate of its accelerator'
        when dataset_tokens is null then 'its tokens are not published'
        when active_parameters is null then 'its parameters are not published'
        else 'its number of GPUs is not published'
    end as prediction_note,
    is_circular,
    energy_kind,
    source
from quantities
where published_value is not null
