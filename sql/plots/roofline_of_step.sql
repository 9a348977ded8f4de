-- Operations of one step: FLOPs a byte of memory traffic, and the rate that each reaches.
-- Grain: one row per configuration and operation
select
    operation_breakdown.cell_id,
    operation_breakdown.estimator,
    operation_breakdown.variant,
    operation_breakdown.model,
    operation_breakdown.accelerator,
    operation_breakdown.nvlink_size,
    operation_breakdown.num_gpus,
    operation_breakdown.global_batch_size,
    operation_breakdown.operation,
    operation_breakdown.flops_per_gpu / operation_breakdown.hbm_traffic_bytes as flops_per_byte,
    in_tflops(
        operation_breakdown.flops_per_gpu
        / (operation_breakdown.compute_seconds + operation_breakdown.memory_seconds)
    ) as tflops,
    operation_breakdown.step_fraction,
    in_tflops(problem.matrix_flops_per_second) as matrix_tflops,
    in_tflops(problem.vector_flops_per_second) as vector_tflops,
    problem.hbm_bytes_per_second / 1e12 as terabytes_per_second
from operation_breakdown
inner join problem on operation_breakdown.problem_id = problem.problem_id
where
    operation_breakdown.flops_per_gpu > 0
    and operation_breakdown.hbm_traffic_bytes > 0
    and operation_breakdown.estimator = $estimator
    and operation_breakdown.variant = $variant
    and operation_breakdown.model = $model
    and operation_breakdown.accelerator = $accelerator
    and operation_breakdown.nvlink_size = $nvlink_size
    and operation_breakdown.num_gpus = $num_gpus
    and operation_breakdown.global_batch_size = $global_batch_size
    and operation_breakdown.cell_id = $cell_id
order by all
