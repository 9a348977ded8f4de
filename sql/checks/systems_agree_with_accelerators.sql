-- Figures of a system that are neither its accelerator's nor marked as assumed.
with compared as (
    select
        system.accelerator,
        string_split(coalesce(system.assumed, ''), ';') as assumed,
        unnest([
            'matrix_flops_per_second',
            'hbm_bytes_per_second',
            'hbm_bytes',
            'nvlink_bytes_per_second',
            'network_bytes_per_second'
        ]) as figure,
        unnest([
            system.matrix_flops_per_second,
            system.hbm_bytes_per_second,
            system.hbm_bytes,
            system.nvlink_bytes_per_second,
            system.network_bytes_per_second * system.nics_per_gpu
        ]) as used,
        unnest([
            accelerator.bf16_flops_per_second,
            accelerator.hbm_bytes_per_second,
            accelerator.hbm_bytes,
            accelerator.nvlink_bytes_per_second,
            accelerator.nic_bytes_per_second
        ]) as published
    from system
    inner join accelerator on system.accelerator = accelerator.accelerator
)

select
    accelerator,
    figure,
    used,
    published
from compared
where used is distinct from published and not list_contains(assumed, figure)
