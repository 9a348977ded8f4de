-- Dollars of whole runs over asked_tokens tokens, at every price of an hour, or at given_price.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, year and basis of a price
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, year, basis
--
-- training_run_group_for has the runs. only_id keeps those of one cell or problem, only_num_gpus
-- those on that number of GPUs, only_seq_len those of that sequence length. each_num_gpus := false
-- merges the rows of all numbers of GPUs. quote_vendors names the vendors whose prices one was
-- picked from: bases of other vendors do not compare. Where no price was published the cost is
-- NULL, and price_note says why. The electricity of an owned accelerator follows given_watts,
-- given_pue and given_usd_per_kwh, or else the power of the run's own steps, where its estimator
-- has it, and published values.
-- View cost_per_trillion_tokens is this for 1e12.
-- Example: select model, accelerator, num_gpus, lowest_cost_usd from training_cost_for(1e12,
-- given_price := 2.5) order by lowest_cost_usd limit 5
create or replace macro training_cost_for(
    asked_tokens,
    assumed_goodput := null,
    given_price := null,
    given_pue := null,
    given_usd_per_kwh := null,
    given_watts := null,
    only_id := null,
    only_num_gpus := null,
    only_seq_len := null,
    each_num_gpus := true
) as table
    with argument as (
        select
            argument_within('given_price', given_price, 1e-30, 1e30, 'must be a number above 0')
                as price,
            argument_within('given_pue', given_pue, 1, 10, 'must be from 1 to 10')
                as pue,
            argument_within('given_usd_per_kwh', given_usd_per_kwh, 0, 1e30, 'must be at least 0')
                as usd_per_kwh,
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

    rate as (
        select
            gpu_hour_rate.accelerator,
            gpu_hour_rate.year,
            gpu_hour_rate.basis,
            gpu_hour_rate.usd_per_gpu_hour,
            gpu_hour_rate.num_quotes,
            gpu_hour_rate.quote_vendors,
            gpu_hour_rate.amortised_usd_per_gpu_hour,
            gpu_hour_rate.watts_per_gpu,
            coalesce(argument.pue, gpu_hour_rate.pue)
            * coalesce(argument.usd_per_kwh, gpu_hour_rate.usd_per_kwh) as usd_per_kwh,
            gpu_hour_rate.price_source,
            gpu_hour_rate.price_note
        from gpu_hour_rate
        cross join argument
        where argument.price is null
    ),

    priced as (
        select
            run_group.* exclude (slot_watts),
            case
                when rate.basis = 'owned'
                    then
                        coalesce(argument.watts, run_group.slot_watts, rate.watts_per_gpu)
                        / 1000
                        * rate.usd_per_kwh
            end as electricity_usd_per_gpu_hour,
            rate.year,
            case when argument.price is null then rate.basis else 'given' end as basis,
            case
                when argument.price is not null then argument.price
                when rate.basis = 'owned'
                    then rate.amortised_usd_per_gpu_hour + electricity_usd_per_gpu_hour
                else rate.usd_per_gpu_hour
            end as usd_per_gpu_hour,
            rate.amortised_usd_per_gpu_hour,
            rate.num_quotes,
            rate.quote_vendors,
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
