-- Accelerators named in a reference table that are neither a system nor an alias of one.
with named as (
    select
        'published_megatron_scaling' as reference,
        accelerator
    from published_megatron_scaling
    union
    select
        'accelerator_alias' as reference,
        accelerator
    from accelerator_alias
)

select
    named.reference,
    named.accelerator
from named
left join accelerator_alias on named.accelerator = accelerator_alias.alias
left join system on coalesce(accelerator_alias.accelerator, named.accelerator) = system.accelerator
where system.accelerator is null
