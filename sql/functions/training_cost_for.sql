-- Dollars of whole runs over asked_tokens tokens, at every price of an hour, or at given_price.
-- Grain: one row per estimator, variant, model, accelerator, tokens, year and basis of the price
--
-- Runs that differ in anything else are counted: the cheapest (fewest GPU-hours), the one in the
-- middle and the dearest; only_id keeps those of one cell or problem, only_num_gpus those on so
-- many GPUs. Where no price was published the cost is NULL and price_note says so. An owned
-- accelerator draws its electricity at given_pue and given_usd_per_kwh where they are given.
create or replace macro training_cost_for(
    asked_tokens,
    assumed_goodput := null,
    given_price := null,
    given_pue := null,
    given_usd_per_kwh := null,
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

    priced as (
        select
            run_group.* exclude (cheapest),
            run_group.cheapest.num_gpus,
            run_group.cheapest.training_seconds,
            run_group.cheapest.best_layout,
            gpu_hour_rate.year,
            case when given_price is null then gpu_hour_rate.basis else 'given' end as basis,
            case
                when given_price is not null then cast(given_price as double)
                when
                    gpu_hour_rate.basis = 'owned'
                    and (given_pue is not null or given_usd_per_kwh is not null)
                    then
                        gpu_hour_rate.amortised_usd_per_gpu_hour
                        + gpu_hour_rate.watts_per_gpu / 1000
                        * coalesce(cast(given_pue as double), gpu_hour_rate.pue)
                        * coalesce(cast(given_usd_per_kwh as double), gpu_hour_rate.usd_per_kwh)
                else gpu_hour_rate.usd_per_gpu_hour
            end as usd_per_gpu_hour,
            gpu_hour_rate.num_quotes,
            case when given_price is null then gpu_hour_rate.price_source else 'given' end
                as price_source,
            case
                when given_price is not null then null
                when
                    gpu_hour_rate.accelerator is null
                    then 'no published price of an hour: give one'
                else gpu_hour_rate.price_note
            end as price_note
        from run_group
        left join gpu_hour_rate
            on run_group.priced_as = gpu_hour_rate.accelerator and given_price is null
    )

    select
        *,
        lowest_gpu_hours * usd_per_gpu_hour as lowest_cost_usd,
        median_gpu_hours * usd_per_gpu_hour as median_cost_usd,
        highest_gpu_hours * usd_per_gpu_hour as highest_cost_usd
    from priced;
