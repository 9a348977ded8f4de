-- Price of an hour of a GPU under each name of an accelerator, and its power, on the usual basis.
-- Grain: one row per name of an accelerator
-- Key: accelerator
-- Kept: reference
--
-- The price is the rent on demand of the last year that has one, or else the cost of owning. The
-- power is that of the default basis of gpu_power with a hyperscaler's overhead. NULL where nothing
-- was published. The price is the middle one of num_quotes vendors: a price of one vendor does not
-- compare with that of several.
with last_rate as (
    select
        accelerator,
        max_by(
            struct_pack(
                basis := basis,
                year := year,
                usd_per_gpu_hour := usd_per_gpu_hour,
                num_quotes := num_quotes
            ),
            struct_pack(is_rent := basis = 'on_demand', year := year)
        ) as rate
    from gpu_hour_rate
    where usd_per_gpu_hour is not null and basis in ('on_demand', 'owned')
    group by accelerator
)

select
    accelerator_spelling.spelling as accelerator,
    accelerator_spelling.accelerator as priced_as,
    last_rate.rate.basis,
    last_rate.rate.year,
    last_rate.rate.usd_per_gpu_hour,
    last_rate.rate.num_quotes,
    gpu_power.watts_per_gpu,
    facility_pue.pue
from accelerator_spelling
left join last_rate on accelerator_spelling.accelerator = last_rate.accelerator
left join gpu_power
    on accelerator_spelling.accelerator = gpu_power.accelerator and gpu_power.is_default
left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
