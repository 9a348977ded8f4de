-- Dollars, energy and carbon of a run on each system, by kind of price and by grid of the site.
-- Grain: one row per system and basis of a price, system and basis of its power, or system and grid
--
-- `quantity` is in dollars, kWh or kg. Of each price the last year that is known counts.
with price as (
    select
        coalesce(assumptions, '') as assumptions,
        estimator,
        variant,
        model,
        seq_len,
        accelerator,
        num_gpus,
        dataset_tokens,
        'price' as kind,
        basis as source,
        lowest_cost_usd as quantity,
        training_seconds,
        year
    from training_cost_for($tokens, only_num_gpus := $num_gpus)
    where
        lowest_cost_usd is not null
        and coalesce(system_changes, '') = ''
        and coalesce(assumptions, '') = $assumptions
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and accelerator = $accelerator
    qualify year is null or year = max(year) over (partition by assumptions, accelerator, basis)
),

energy as (
    select
        coalesce(assumptions, '') as assumptions,
        estimator,
        variant,
        model,
        seq_len,
        accelerator,
        num_gpus,
        dataset_tokens,
        unnest(['energy', 'grid']) as kind,
        unnest([power_basis, grid]) as source,
        unnest([lowest_energy_kwh, lowest_kg_co2e]) as quantity,
        training_seconds,
        cast(null as integer) as year
    from training_energy_for($tokens, only_num_gpus := $num_gpus)
    where
        lowest_energy_kwh is not null
        and is_default
        and coalesce(system_changes, '') = ''
        and coalesce(assumptions, '') = $assumptions
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and accelerator = $accelerator
)

select *
from price
union all
-- the power of a run does not depend on its grid
select distinct *
from energy
where quantity is not null
order by all
