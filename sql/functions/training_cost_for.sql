-- Dollars of whole runs over asked_tokens tokens, at every price of an hour, or at given_price.
-- Grain: one row per estimator, variant, model, system, tokens, year and basis of the price
--
-- Models are told apart by their shapes. Runs that differ in anything else are counted: the
-- cheapest (fewest GPU-hours), the one in the middle and the dearest; only_id keeps those of one
-- cell or problem, only_num_gpus those on so many GPUs. Where no price was published the cost is
-- NULL and price_note says so. An owned accelerator draws its electricity at given_watts, given_pue
-- and given_usd_per_kwh where they are given. Runs that run_note of training_run_for speaks of are
-- left out.
create or replace macro training_cost_for(
    asked_tokens,
    assumed_goodput := null,
    given_price := null,
    given_pue := null,
    given_usd_per_kwh := null,
    given_watts := null,
    only_id := null,
    only_num_gpus := null
) as table
    with argument as (
        select
            case
                when given_price is null then null
                when cast(given_price as double) between 1e-30 and 1e30
                    then cast(given_price as double)
                else error('`given_price` ' || given_price || ': must be a number above 0')
            end as price,
            case
                when given_pue is null then null
                when cast(given_pue as double) between 1 and 10
                    then cast(given_pue as double)
                else error('`given_pue` ' || given_pue || ': must be from 1 to 10')
            end as pue,
            case
                when given_usd_per_kwh is null then null
                when cast(given_usd_per_kwh as double) between 0 and 1e30
                    then cast(given_usd_per_kwh as double)
                else error('`given_usd_per_kwh` ' || given_usd_per_kwh || ': must be at least 0')
            end as usd_per_kwh,
            case
                when given_watts is null then null
                when cast(given_watts as double) between 1e-30 and 1e30
                    then cast(given_watts as double)
                else error('`given_watts` ' || given_watts || ': must be a number above 0')
            end as watts
    ),

    asked as (
        select
            *,
            row_number() over (partition by run_id, dataset_tokens order by cell_id) as place
        from training_run_for(asked_tokens, assumed_goodput := assumed_goodput)
        where
            run_note is null
            and (only_id is null or only_id in (cell_id, problem_id))
            and (only_num_gpus is null or only_num_gpus = num_gpus)
    ),

    run_group as (
        select
            estimator,
            variant,
            model,
            model_shape,
            accelerator,
            is_published_system,
            system_changes,
            priced_as,
            is_lower_bound,
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
        from asked
        where place = 1
        group by all
    ),

    rate as (
        select
            gpu_hour_rate.accelerator,
            gpu_hour_rate.year,
            gpu_hour_rate.basis,
            gpu_hour_rate.usd_per_gpu_hour,
            gpu_hour_rate.num_quotes,
            gpu_hour_rate.amortised_usd_per_gpu_hour,
            coalesce(argument.watts, gpu_hour_rate.watts_per_gpu)
            / 1000
            * coalesce(argument.pue, gpu_hour_rate.pue)
            * coalesce(argument.usd_per_kwh, gpu_hour_rate.usd_per_kwh)
                as electricity_usd_per_gpu_hour,
            gpu_hour_rate.price_source,
            gpu_hour_rate.price_note
        from gpu_hour_rate
        cross join argument
        where argument.price is null
    ),

    priced as (
        select
            run_group.* exclude (cheapest),
            run_group.cheapest.num_gpus,
            run_group.cheapest.training_seconds,
            run_group.cheapest.best_layout,
            rate.year,
            case when argument.price is null then rate.basis else 'given' end as basis,
            case
                when argument.price is not null then argument.price
                when rate.basis = 'owned'
                    then rate.amortised_usd_per_gpu_hour + rate.electricity_usd_per_gpu_hour
                else rate.usd_per_gpu_hour
            end as usd_per_gpu_hour,
            rate.amortised_usd_per_gpu_hour,
            case when rate.basis = 'owned' then rate.electricity_usd_per_gpu_hour end
                as electricity_usd_per_gpu_hour,
            rate.num_quotes,
            case when argument.price is null then rate.price_source else 'given' end
                as price_source,
            rate.price_note
        from run_group
        cross join argument
        left join rate on run_group.priced_as = rate.accelerator
    )

    select
        * replace (
            case
                when usd_per_gpu_hour is not null then null
                when not is_published_system
                    then 'its system is not the accelerator as published'
                when accelerator is null then 'no accelerator is named: give a price'
                when basis is null then 'no published price of an hour: give one'
                else price_note
            end as price_note
        ),
        lowest_gpu_hours * usd_per_gpu_hour as lowest_cost_usd,
        median_gpu_hours * usd_per_gpu_hour as median_cost_usd,
        highest_gpu_hours * usd_per_gpu_hour as highest_cost_usd
    from priced;
