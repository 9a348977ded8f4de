-- Best layout of each point of a hardware sweep, and the gain from more of each attribute.
-- Grain: one row per study, problem, estimator, estimator_version and variant
-- Key: study, problem_id, estimator, estimator_version, variant
--
-- Points of a study that differ only in attributes of the system are compared; a problem without
-- such a partner is left out. `swept_attributes` vary among the points, with a + between coupled
-- ones; `changed_attributes` differ from table `system`. The elasticity of the best time is -1
-- where twice the rate halves the time, 0 where it changes nothing, and NULL where no neighbour on
-- a line differs in that attribute alone (see hardware_slope). Where no layout fits in memory,
-- there is no best layout.
with slopes as (
    select
        study,
        problem_id,
        estimator,
        estimator_version,
        variant,
        any_value(num_layouts) as num_layouts,
        any_value(num_fitting_layouts) as num_fitting_layouts,
        any_value(best) as best,
        string_agg(distinct coupled_attributes, ', ' order by coupled_attributes)
            as swept_attributes,
        max(elasticity) filter (where attribute = 'nvlink_size')
            as nvlink_size_elasticity,
        max(elasticity) filter (where attribute = 'matrix_flops_per_second')
            as matrix_flops_per_second_elasticity,
        max(elasticity) filter (where attribute = 'vector_flops_per_second')
            as vector_flops_per_second_elasticity,
        max(elasticity) filter (where attribute = 'hbm_bytes_per_second')
            as hbm_bytes_per_second_elasticity,
        max(elasticity) filter (where attribute = 'hbm_bytes')
            as hbm_bytes_elasticity,
        max(elasticity) filter (where attribute = 'nvlink_bytes_per_second')
            as nvlink_bytes_per_second_elasticity,
        max(elasticity) filter (where attribute = 'nvlink_efficiency')
            as nvlink_efficiency_elasticity,
        max(elasticity) filter (where attribute = 'nvlink_latency_seconds')
            as nvlink_latency_seconds_elasticity,
        max(elasticity) filter (where attribute = 'network_bytes_per_second')
            as network_bytes_per_second_elasticity,
        max(elasticity) filter (where attribute = 'network_efficiency')
            as network_efficiency_elasticity,
        max(elasticity) filter (where attribute = 'network_latency_seconds')
            as network_latency_seconds_elasticity,
        max(elasticity) filter (where attribute = 'nics_per_gpu')
            as nics_per_gpu_elasticity,
        max(elasticity) filter (where attribute = 'flops_efficiency')
            as flops_efficiency_elasticity,
        max(elasticity) filter (where attribute = 'launch_seconds')
            as launch_seconds_elasticity
    from hardware_slope
    group by study, problem_id, estimator, estimator_version, variant
),

changes as (
    select
        problem.problem_id,
        concat_ws(
            ', ',
            if_changed(
                'matrix_flops_per_second',
                problem.matrix_flops_per_second,
                system.matrix_flops_per_second
            ),
            if_changed(
                'vector_flops_per_second',
                problem.vector_flops_per_second,
                system.vector_flops_per_second
            ),
            if_changed(
                'hbm_bytes_per_second', problem.hbm_bytes_per_second, system.hbm_bytes_per_second
            ),
            case when problem.hbm_bytes <> system.hbm_bytes then 'hbm_bytes' end,
            if_changed(
                'nvlink_bytes_per_second',
                problem.nvlink_bytes_per_second,
                system.nvlink_bytes_per_second
            ),
            if_changed('nvlink_efficiency', problem.nvlink_efficiency, system.nvlink_efficiency),
            if_changed(
                'nvlink_latency_seconds',
                problem.nvlink_latency_seconds,
                system.nvlink_latency_seconds
            ),
            if_changed(
                'network_bytes_per_second',
                problem.network_bytes_per_second,
                system.network_bytes_per_second
            ),
            if_changed('network_efficiency', problem.network_efficiency, system.network_efficiency),
            if_changed(
                'network_latency_seconds',
                problem.network_latency_seconds,
                system.network_latency_seconds
            ),
            case when problem.nics_per_gpu <> system.nics_per_gpu then 'nics_per_gpu' end,
            if_changed('flops_efficiency', problem.flops_efficiency, system.flops_efficiency),
            case when problem.launch_seconds <> system.launch_seconds then 'launch_seconds' end
        ) as changed_attributes
    from problem
    inner join system on problem.accelerator = system.accelerator
)

select
    slopes.study,
    slopes.problem_id,
    slopes.estimator,
    slopes.estimator_version,
    slopes.variant,

    problem.model,
    problem.accelerator,
    problem.num_gpus,
    problem.global_batch_size,
    slopes.swept_attributes,
    changes.changed_attributes,
    problem.nvlink_size,
    problem.matrix_flops_per_second,
    problem.vector_flops_per_second,
    problem.hbm_bytes_per_second,
    problem.hbm_bytes,
    problem.nvlink_bytes_per_second,
    problem.nvlink_efficiency,
    problem.nvlink_latency_seconds,
    problem.network_bytes_per_second,
    problem.network_efficiency,
    problem.network_latency_seconds,
    problem.nics_per_gpu,
    problem.flops_efficiency,
    problem.launch_seconds,

    slopes.num_layouts,
    slopes.num_fitting_layouts,
    slopes.best.step_seconds as best_step_seconds,
    slopes.best.memory_bytes as best_memory_bytes,
    slopes.best.strategy as best_strategy,
    slopes.best.attention as best_attention,
    slopes.best.activation_recompute as best_activation_recompute,
    slopes.best.data_parallel as best_data_parallel,
    slopes.best.tensor_parallel as best_tensor_parallel,
    slopes.best.tensor_parallel_2 as best_tensor_parallel_2,
    slopes.best.context_parallel as best_context_parallel,
    slopes.best.pipeline_parallel as best_pipeline_parallel,
    slopes.best.virtual_pipeline as best_virtual_pipeline,
    slopes.best.microbatch_size as best_microbatch_size,
    slopes.best.summa_panels as best_summa_panels,
    slopes.best.nvlink_data_parallel as best_nvlink_data_parallel,
    slopes.best.nvlink_tensor_parallel as best_nvlink_tensor_parallel,
    slopes.best.nvlink_tensor_parallel_2 as best_nvlink_tensor_parallel_2,
    slopes.best.nvlink_context_parallel as best_nvlink_context_parallel,
    slopes.best.nvlink_pipeline_parallel as best_nvlink_pipeline_parallel,

    columns('_elasticity$')
from slopes
inner join problem on slopes.problem_id = problem.problem_id
left join changes on slopes.problem_id = changes.problem_id
