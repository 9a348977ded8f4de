-- Every quote of an hour of an accelerator, under its name, commitment by commitment.
-- Grain: one row per quote and commitment
-- Key: quote_number, basis
--
-- NULL where the source's name fits several products: such a quote is never used.
with quote as (
    select
        quote_number,
        hardware,
        vendor,
        price_date,
        'on_demand' as basis,
        on_demand_usd_per_gpu_hour as usd_per_gpu_hour,
        price_url,
        source
    from gpu_hour_price
    union all
    select
        quote_number,
        hardware,
        vendor,
        price_date,
        'one_year' as basis,
        one_year_usd_per_gpu_hour as usd_per_gpu_hour,
        price_url,
        source
    from gpu_hour_price
    union all
    select
        quote_number,
        hardware,
        vendor,
        price_date,
        'three_year' as basis,
        three_year_usd_per_gpu_hour as usd_per_gpu_hour,
        price_url,
        source
    from gpu_hour_price
)

select
    accelerator_spelling.accelerator,
    cast(year(quote.price_date) as integer) as year,
    quote.*
from quote
left join accelerator_spelling on quote.hardware = accelerator_spelling.spelling
where quote.usd_per_gpu_hour is not null
