-- Whether the system of a problem is its accelerator as published.
-- Grain: one row per problem
-- Key: problem_id
--
-- A rate or size is as published if table `system`, `device` or `accelerator` has it under that
-- name. Efficiencies and latencies are compared where an estimator takes all of them from table
-- `system`. The rate of a cluster may be any up to that of its accelerators. Where no table has the
-- name, or there is none, the answer is NULL, and every attribute counts as a change.
with attribute as (
    select
        problem.problem_id,
        coalesce(system.accelerator, device.accelerator, accelerator.accelerator) is not null
            as is_known,
        unnest([
            'matrix_flops_per_second',
            'vector_flops_per_second',
            'peak_flops_per_second',
            'fp8_flops_per_second',
            'fp4_flops_per_second',
            'flops_8bit_per_second',
            'cluster_flops_per_second',
            'hbm_bytes_per_second',
            'memory_bytes_per_second',
            'hbm_bytes',
            'nvlink_bytes_per_second',
            'network_bytes_per_second',
            'nics_per_gpu',
            'nvlink_efficiency',
            'nvlink_latency_seconds',
            'network_efficiency',
            'network_latency_seconds',
            'flops_efficiency',
            'launch_seconds'
        ]) as attribute_name,
        unnest([
            problem.matrix_flops_per_second,
            problem.vector_flops_per_second,
            problem.peak_flops_per_second,
            problem.fp8_flops_per_second,
            problem.fp4_flops_per_second,
            problem.flops_8bit_per_second,
            -- a rate up to that of the cluster's GPUs may be the achieved one
            case
                when
                    problem.cluster_flops_per_second
                    <= (1 + 1e-9) * problem.gpus_per_cluster * system.matrix_flops_per_second
                    then null
                else problem.cluster_flops_per_second
            end,
            problem.hbm_bytes_per_second,
            problem.memory_bytes_per_second,
            problem.hbm_bytes,
            problem.nvlink_bytes_per_second,
            problem.network_bytes_per_second,
            problem.nics_per_gpu,
            problem.nvlink_efficiency,
            problem.nvlink_latency_seconds,
            problem.network_efficiency,
            problem.network_latency_seconds,
            problem.flops_efficiency,
            problem.launch_seconds
        ]) as used,
        unnest([
            [system.matrix_flops_per_second, accelerator.bf16_flops_per_second],
            [system.vector_flops_per_second],
            [
                system.matrix_flops_per_second,
                accelerator.bf16_flops_per_second,
                accelerator.fp8_flops_per_second
            ],
            [accelerator.fp8_flops_per_second],
            [accelerator.fp4_flops_per_second],
            case
                when device.accelerator is not null then [device.flops_8bit_per_second]
                else [accelerator.fp8_flops_per_second, 2 * accelerator.bf16_flops_per_second]
            end,
            [problem.gpus_per_cluster * system.matrix_flops_per_second],
            [system.hbm_bytes_per_second, accelerator.hbm_bytes_per_second],
            [coalesce(device.memory_bytes_per_second, accelerator.hbm_bytes_per_second)],
            [system.hbm_bytes, accelerator.hbm_bytes, accelerator.device_bytes],
            [system.nvlink_bytes_per_second, accelerator.nvlink_bytes_per_second],
            case
                when problem.source_version = 'readme' then [device.readme_network_bytes_per_second]
                when problem.flops_8bit_per_second is not null
                    then [device.network_bytes_per_second]
                else [system.network_bytes_per_second, accelerator.nic_bytes_per_second]
            end,
            [
                system.nics_per_gpu,
                case when accelerator.nic_bytes_per_second is not null then 1 end
            ],
            [case when problem.flops_efficiency is not null then system.nvlink_efficiency end],
            [case when problem.flops_efficiency is not null then system.nvlink_latency_seconds end],
            [case when problem.flops_efficiency is not null then system.network_efficiency end],
            [
                case
                    when problem.flops_efficiency is not null then system.network_latency_seconds
                end
            ],
            [system.flops_efficiency],
            [case when problem.flops_efficiency is not null then system.launch_seconds end]
        ]) as published,
        unnest(range(19)) as place
    from problem
    left join accelerator_alias on problem.accelerator = accelerator_alias.alias
    left join system
        on coalesce(accelerator_alias.accelerator, problem.accelerator) = system.accelerator
    left join device
        on
            problem.accelerator = device.accelerator
            and problem.flops_8bit_per_second is not null
    left join accelerator_spelling on problem.accelerator = accelerator_spelling.spelling
    left join accelerator on accelerator_spelling.accelerator = accelerator.accelerator
),

difference as (
    select
        *,
        used is not null
        and (
            not is_known
            or (
                len(list_filter(published, lambda figure: figure is not null)) > 0
                and not list_contains(published, used)
            )
        ) as is_different
    from attribute
)

select
    problem_id,
    case when any_value(is_known) then not bool_or(is_different) end as is_published_system,
    string_agg(
        case when is_different then attribute_name || ' ' || printf('%.17g', used) end,
        ', ' order by place
    ) as system_changes
from difference
group by problem_id
