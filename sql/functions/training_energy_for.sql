-- Energy and carbon of whole runs over asked_tokens tokens, by basis of the power and by grid.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, basis of power and grid
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, power_basis, grid
--
-- The site's overhead is given_pue, or that of a hyperscaler. Electricity costs given_usd_per_kwh,
-- or the last industrial price known in the United States. given_watts and given_kg_co2e_per_kwh
-- replace published values. Without the latter, every grid of grid_carbon has a row: filter grid,
-- or is_default_grid. is_default_power marks the power of the run's own steps, where its estimator
-- has it (that of the cheapest run of a line), or else the server's average; is_default marks the
-- default power on the default grids. only_id keeps the runs of one cell or problem, only_num_gpus
-- those on that number of GPUs, only_seq_len those of that sequence length. each_num_gpus := false
-- merges the rows of all numbers of GPUs. Where no power is known, energy is NULL, and power_note
-- says why.
-- View energy_per_trillion_tokens is this for 1e12.
-- Example: select model, accelerator, num_gpus, lowest_energy_kwh, lowest_kg_co2e from
-- training_energy_for(1e12, given_pue := 1.2) where is_default_power and grid = 'France' limit 5
create or replace macro training_energy_for(
    asked_tokens,
    assumed_goodput := null,
    given_pue := null,
    given_usd_per_kwh := null,
    given_kg_co2e_per_kwh := null,
    given_watts := null,
    only_id := null,
    only_num_gpus := null,
    only_seq_len := null,
    each_num_gpus := true
) as table
    with argument as (
        select
            argument_within('given_pue', given_pue, 1, 10, 'must be from 1 to 10')
                as pue,
            argument_within('given_usd_per_kwh', given_usd_per_kwh, 0, 1e30, 'must be at least 0')
                as usd_per_kwh,
            argument_within(
                'given_kg_co2e_per_kwh', given_kg_co2e_per_kwh, 0, 1e30, 'must be at least 0'
            ) as kg_co2e_per_kwh,
            argument_within('given_watts', given_watts, 1e-30, 1e30, 'must be a number above 0')
                as watts
    ),

    run_group as (
        select *
        from
            training_run_group_for(
                asked_tokens,
                assumed_goodput := assumed_goodput,
                only_id := only_id,
                only_num_gpus := only_num_gpus,
                only_seq_len := only_seq_len,
                each_num_gpus := each_num_gpus
            )
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
            grid_carbon.grid,
            grid_carbon.kg_co2e_per_kwh,
            grid_carbon.is_default as is_default_grid
        from grid_carbon
        cross join argument
        where argument.kg_co2e_per_kwh is null
        union all
        select
            'given' as grid,
            kg_co2e_per_kwh,
            true as is_default_grid
        from argument
        where kg_co2e_per_kwh is not null
    ),

    -- the power of a run's own steps is its default
    power as (
        select
            accelerator as priced_as,
            power_basis,
            watts_per_gpu,
            is_default,
            source,
            power_note,
            false as is_of_step
        from gpu_power
        union all
        select
            cast(null as varchar) as priced_as,
            'step' as power_basis,
            cast(null as double) as watts_per_gpu,
            true as is_default,
            'estimated: the load of its steps' as source,
            cast(null as varchar) as power_note,
            true as is_of_step
    ),

    powered as (
        select
            run_group.* exclude (slot_watts),
            case when argument.watts is null then power.power_basis else 'given' end
                as power_basis,
            -- without a power the row is the only one of its run
            argument.watts is not null
            or coalesce(
                power.is_default and (power.is_of_step or run_group.slot_watts is null), true
            ) as is_default_power,
            is_default_power and carbon.is_default_grid as is_default,
            coalesce(
                argument.watts,
                case when power.is_of_step then run_group.slot_watts else power.watts_per_gpu end
            ) as watts_per_gpu,
            coalesce(argument.pue, facility_pue.pue) as pue,
            coalesce(argument.usd_per_kwh, tariff.usd_per_kwh) as usd_per_kwh,
            case when argument.usd_per_kwh is null then tariff.year end as year,
            carbon.grid,
            carbon.is_default_grid,
            carbon.kg_co2e_per_kwh,
            case when argument.watts is null then power.source else 'given' end
                as power_source,
            case
                when argument.watts is not null or power.is_of_step then null
                when not run_group.is_published_system
                    then 'its system is not the accelerator as published'
                when run_group.accelerator is null then 'no accelerator is named: give a power'
                when power.priced_as is null then 'no published power of the accelerator'
                else power.power_note
            end as power_note
        from run_group
        cross join argument
        left join power
            on
                argument.watts is null
                and (
                    run_group.priced_as = power.priced_as
                    or (power.is_of_step and run_group.slot_watts is not null)
                )
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
