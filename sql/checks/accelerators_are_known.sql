-- Published runs of no system, and aliases of what is neither a system nor an accelerator.
select
    'published_megatron_scaling' as reference,
    published_megatron_scaling.accelerator
from published_megatron_scaling
left join accelerator_alias on published_megatron_scaling.accelerator = accelerator_alias.alias
left join system
    on
        coalesce(accelerator_alias.accelerator, published_megatron_scaling.accelerator)
        = system.accelerator
where system.accelerator is null
union
select
    'accelerator_alias' as reference,
    accelerator_alias.accelerator
from accelerator_alias
left join system on accelerator_alias.accelerator = system.accelerator
left join accelerator on accelerator_alias.accelerator = accelerator.accelerator
where system.accelerator is null and accelerator.accelerator is null
