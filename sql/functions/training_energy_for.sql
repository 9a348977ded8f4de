-- Energy and carbon of whole runs over asked_tokens tokens, by basis of the power and by grid.
-- Grain: one row per estimator, variant, model, accelerator, tokens, power basis and grid
--
-- The site's overhead is given_pue, or that of a hyperscaler; electricity costs given_usd_per_kwh,
-- or the last industrial price known in the United States; given_watts and given_kg_co2e_per_kwh
-- take the place of what is published; only_id keeps the runs of one cell or problem, only_num_gpus
-- those on so many GPUs. Where no power was published, energy is NULL and power_note says so.
create or replace macro training_energy_for(
    asked_tokens,
    assumed_goodput := null,
    given_pue := null,
    given_usd_per_kwh := null,
    given_kg_co2e_per_kwh := null,
    given_watts := null,
    only_id := null,
    only_num_gpus := null
) as table
    with run_group as (
        select
            estimator,
            variant,
            model,
            accelerator,
            priced_as,
            dataset_tokens,
            count(*) as num_runs,
            min(gpu_hours) as lowest_gpu_hours,
            quantile_disc(gpu_hours, 0.5) as median_gpu_hours,
            max(gpu_hours) as highest_gpu_hours,
            -- of runs that take as long, the one on fewest GPUs
            min_by(
                struct_pack(
                    num_gpus := num_gpus,
                    training_seconds := training_seconds,
                    best_layout := best_layout
                ),
                struct_pack(
                    gpu_hours := gpu_hours, num_gpus := num_gpus, best_layout := best_layout
                )
            ) as cheapest
        from training_run_for(asked_tokens, assumed_goodput := assumed_goodput)
        where
            gpu_hours > 0
            and (only_id is null or only_id in (cell_id, problem_id))
            and (only_num_gpus is null or only_num_gpus = num_gpus)
        group by estimator, variant, model, accelerator, priced_as, dataset_tokens
    ),

    tariff as (
        select
            max_by(usd_per_kwh, year) as usd_per_kwh,
            max(year) as year
        from electricity_price
        where region = 'US industrial'
    ),

    carbon as (
        select
            grid,
            kg_co2e_per_kwh
        from grid_carbon
        where given_kg_co2e_per_kwh is null
        union all
        select
            'given' as grid,
            cast(given_kg_co2e_per_kwh as double) as kg_co2e_per_kwh
        where given_kg_co2e_per_kwh is not null
    ),

    powered as (
        select
            run_group.* exclude (cheapest),
            run_group.cheapest.num_gpus,
            run_group.cheapest.training_seconds,
            run_group.cheapest.best_layout,
            case when given_watts is null then gpu_power.power_basis else 'given' end
                as power_basis,
            case when given_watts is null then gpu_power.is_default else true end as is_default,
            coalesce(cast(given_watts as double), gpu_power.watts_per_gpu) as watts_per_gpu,
            coalesce(cast(given_pue as double), facility_pue.pue) as pue,
            coalesce(cast(given_usd_per_kwh as double), tariff.usd_per_kwh) as usd_per_kwh,
            case when given_usd_per_kwh is null then tariff.year end as year,
            carbon.grid,
            carbon.kg_co2e_per_kwh,
            case when given_watts is null then gpu_power.source else 'given' end as power_source,
            case
                when given_watts is not null then null
                when gpu_power.accelerator is null then 'no published power of the accelerator'
                else gpu_power.power_note
            end as power_note
        from run_group
        left join gpu_power
            on run_group.priced_as = gpu_power.accelerator and given_watts is null
        cross join tariff
        cross join carbon
        left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
    )

    select
        *,
        lowest_gpu_hours * watts_per_gpu / 1000 * pue as lowest_energy_kwh,
        median_gpu_hours * watts_per_gpu / 1000 * pue as median_energy_kwh,
        highest_gpu_hours * watts_per_gpu / 1000 * pue as highest_energy_kwh,
        num_gpus * watts_per_gpu * pue as power_watts,
        lowest_energy_kwh * usd_per_kwh as lowest_electricity_usd,
        lowest_energy_kwh * kg_co2e_per_kwh as lowest_kg_co2e,
        median_energy_kwh * kg_co2e_per_kwh as median_kg_co2e,
        highest_energy_kwh * kg_co2e_per_kwh as highest_kg_co2e
    from powered;
