-- Price of an hour of an accelerator or named cluster in a year, rented or owned, with its source.
-- Grain: one row per accelerator, year and basis
-- Key: accelerator, year, basis
--
-- Rent: the last quote of each vendor in the year counts (the cheapest of a day). Sorted by price,
-- the middle one is taken, or the cheaper of the two middle ones. Owned: the purchase price with
-- server and share of the network, spread evenly over the life of a server bought that year (8,766
-- hours a year), plus the average electricity at that year's industrial price in the United States
-- with a hyperscaler's overhead. Rows begin in the year of the purchase price. If no rent was ever
-- published, one row without a year says so. A named cluster has the price of its own quote alone.
with quote as (
    select *
    from gpu_hour_quote
    where accelerator is not null
    union all
    select gpu_hour_quote.* replace (named_cluster.accelerator as accelerator)
    from gpu_hour_quote
    inner join named_cluster on gpu_hour_quote.quote_number = named_cluster.quote_number
),

last_quote as (
    select
        *,
        row_number() over (
            partition by accelerator, year, basis, vendor
            order by price_date desc, usd_per_gpu_hour asc
        ) as place
    from quote
),

rent as (
    select
        *,
        count(*) over quotes as num_quotes,
        array_to_string(list_sort(list(vendor) over quotes), ', ') as quote_vendors,
        min(usd_per_gpu_hour) over quotes as lowest_usd_per_gpu_hour,
        max(usd_per_gpu_hour) over quotes as highest_usd_per_gpu_hour,
        row_number() over (
            partition by accelerator, year, basis
            order by usd_per_gpu_hour asc, price_date desc, vendor asc
        ) as place_by_price
    from last_quote
    where place = 1
    window quotes as (partition by accelerator, year, basis)
),

purchase as (
    select
        accelerator.accelerator,
        electricity_price.year,
        accelerator.purchase_usd
        * case
            when accelerator.purchase_includes = 'server' then 1 else overhead.parameter_value
        end
        / (1 - interconnect.parameter_value) as cluster_usd_per_gpu,
        life.parameter_value * 8766 as life_hours,
        gpu_power.watts_per_gpu,
        facility_pue.pue,
        electricity_price.usd_per_kwh,
        gpu_power.watts_per_gpu / 1000 * facility_pue.pue * electricity_price.usd_per_kwh
            as electricity_usd_per_gpu_hour,
        accelerator.price_source
    from accelerator
    inner join electricity_price
        on
            electricity_price.year >= year(accelerator.purchase_date)
            and electricity_price.region = 'US industrial'
    left join gpu_power
        on accelerator.accelerator = gpu_power.accelerator and gpu_power.is_default
    left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
    left join cost_parameter as overhead
        on overhead.parameter = case split_part(accelerator.accelerator, ' ', 1)
            when 'A100' then 'server_cost_overhead_A100'
            when 'V100' then 'server_cost_overhead_V100'
            when 'P100' then 'server_cost_overhead_P100'
            else 'server_cost_overhead_other'
        end
    left join cost_parameter as interconnect
        on interconnect.parameter = 'cluster_interconnect_cost_fraction'
    left join cost_parameter as life
        on life.parameter = case
            when electricity_price.year <= 2020 then 'server_lifetime_le2020'
            when electricity_price.year <= 2022 then 'server_lifetime_2021_2022'
            else 'server_lifetime_ge2023'
        end
    where accelerator.purchase_usd is not null
)

select
    accelerator,
    year,
    basis,
    usd_per_gpu_hour,
    num_quotes,
    quote_vendors,
    lowest_usd_per_gpu_hour,
    highest_usd_per_gpu_hour,
    cast(null as double) as amortised_usd_per_gpu_hour,
    cast(null as double) as electricity_usd_per_gpu_hour,
    cast(null as double) as watts_per_gpu,
    cast(null as double) as pue,
    cast(null as double) as usd_per_kwh,
    concat_ws(', ', vendor, price_date, price_url, source) as price_source,
    cast(null as varchar) as price_note
from rent
where place_by_price = (num_quotes + 1) // 2
union all
select
    accelerator,
    year,
    'owned' as basis,
    cluster_usd_per_gpu / life_hours + electricity_usd_per_gpu_hour as usd_per_gpu_hour,
    cast(null as bigint) as num_quotes,
    cast(null as varchar) as quote_vendors,
    cast(null as double) as lowest_usd_per_gpu_hour,
    cast(null as double) as highest_usd_per_gpu_hour,
    cluster_usd_per_gpu / life_hours as amortised_usd_per_gpu_hour,
    electricity_usd_per_gpu_hour,
    watts_per_gpu,
    pue,
    usd_per_kwh,
    price_source,
    case
        when electricity_usd_per_gpu_hour is null
            then 'no published power of its server: electricity is not known'
    end as price_note
from purchase
union all
select
    machine.accelerator,
    cast(null as integer) as year,
    'on_demand' as basis,
    cast(null as double) as usd_per_gpu_hour,
    cast(null as bigint) as num_quotes,
    cast(null as varchar) as quote_vendors,
    cast(null as double) as lowest_usd_per_gpu_hour,
    cast(null as double) as highest_usd_per_gpu_hour,
    cast(null as double) as amortised_usd_per_gpu_hour,
    cast(null as double) as electricity_usd_per_gpu_hour,
    cast(null as double) as watts_per_gpu,
    cast(null as double) as pue,
    cast(null as double) as usd_per_kwh,
    cast(null as varchar) as price_source,
    'no price of a rented hour was published: give one' as price_note
from (
    select accelerator
    from accelerator
    union all
    select accelerator
    from named_cluster
) as machine
anti join rent on machine.accelerator = rent.accelerator and rent.basis = 'on_demand'
