-- Power of an accelerator or named cluster with its share of a server, by basis.
-- Grain: one row per accelerator and power basis
-- Key: accelerator, power_basis
--
-- The default is the server's power at full load times the share of it that training draws on
-- average; NULL where no power of a server was published. The other bases are full load, the
-- accelerator's design power alone, and power measured at the socket. A named cluster has the power
-- of its accelerator.
with machine as (
    select
        accelerator,
        server_watts_per_gpu,
        server_watts_source,
        tdp_watts,
        source
    from accelerator
    union all
    select
        named_cluster.accelerator,
        accelerator.server_watts_per_gpu,
        accelerator.server_watts_source,
        coalesce(named_cluster.power_limit_watts, accelerator.tdp_watts) as tdp_watts,
        accelerator.source
    from named_cluster
    inner join accelerator on named_cluster.based_on = accelerator.accelerator
),

share as (
    select
        parameter_value as average_fraction,
        source
    from cost_parameter
    where parameter = 'server_tdp_fraction_gpu'
)

select
    machine.accelerator,
    'server_average' as power_basis,
    machine.server_watts_per_gpu * share.average_fraction as watts_per_gpu,
    true as is_default,
    machine.server_watts_source || '; x ' || share.average_fraction || ': ' || share.source
        as source,
    case when machine.server_watts_per_gpu is null then 'no published power of its server' end
        as power_note
from machine
cross join share
union all
select
    accelerator,
    'server_full_load' as power_basis,
    server_watts_per_gpu as watts_per_gpu,
    false as is_default,
    server_watts_source as source,
    cast(null as varchar) as power_note
from machine
where server_watts_per_gpu is not null
union all
select
    accelerator,
    'accelerator_alone' as power_basis,
    tdp_watts as watts_per_gpu,
    false as is_default,
    source,
    cast(null as varchar) as power_note
from machine
where tdp_watts is not null
union all
select
    accelerator_spelling.accelerator,
    'measured' as power_basis,
    avg(published_training_runs.watts_per_gpu) as watts_per_gpu,
    false as is_default,
    string_agg(published_training_runs.source, '; ') as source,
    cast(null as varchar) as power_note
from published_training_runs
inner join accelerator_spelling
    on published_training_runs.accelerator = accelerator_spelling.spelling
where
    published_training_runs.run_kind = 'measured segment'
    and published_training_runs.watts_per_gpu is not null
group by accelerator_spelling.accelerator
