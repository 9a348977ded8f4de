-- Published runs on an unknown accelerator, and aliases of an unknown one.
--
-- The runs of table 1 need an accelerator of table system, under which they are swept.
with named as (
    select
        reference,
        accelerator
    from printed_step
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
left join system
    on coalesce(accelerator_alias.accelerator, named.accelerator) = system.accelerator
left join accelerator
    on coalesce(accelerator_alias.accelerator, named.accelerator) = accelerator.accelerator
left join named_cluster
    on coalesce(accelerator_alias.accelerator, named.accelerator) = named_cluster.accelerator
where
    coalesce(system.accelerator, named_cluster.accelerator) is null
    and (accelerator.accelerator is null or named.reference = 'published_megatron_scaling')
