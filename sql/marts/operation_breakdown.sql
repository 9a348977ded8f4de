-- Time of each operation of a step, and the resource that it waits for.
-- Grain: one row per configuration and operation
-- Key: cell_id, {roofline_operation}
--
-- Seconds and bytes without `forward` or `backward` in their name are of one GPU in one step. The
-- shares of all operations and of the bubble add up to one. In a pass whose traffic takes longer
-- than its arithmetic, an operation waits for memory; while it only communicates, for the network;
-- otherwise for arithmetic. The resource that takes most of its time binds it.
with in_step as (
    select
        *,
        num_passes * (forward_seconds + backward_seconds) as operation_seconds,
        num_passes * (forward_compute_seconds + backward_compute_seconds) as compute_seconds,
        num_passes * (forward_memory_seconds + backward_memory_seconds) as memory_seconds,
        num_passes * (forward_comm_seconds + backward_comm_seconds) as comm_seconds,
        num_passes * (forward_flops + backward_flops) as flops_per_gpu,
        num_passes * (forward_hbm_bytes + backward_hbm_bytes) as hbm_traffic_bytes,
        num_transfers * (forward_comm_bytes + backward_comm_bytes) as comm_bytes,
        num_passes
        * (
            case
                when forward_memory_seconds > 0
                    then forward_compute_seconds + forward_memory_seconds
                else 0
            end
            + case
                when backward_memory_seconds > 0
                    then backward_compute_seconds + backward_memory_seconds
                else 0
            end
        ) as memory_bound_seconds
    from stg_roofline_operation
)

select
    * exclude (memory_bound_seconds),
    operation_seconds / step_seconds as step_fraction,
    case
        when
            comm_seconds > memory_bound_seconds
            and comm_seconds > compute_seconds + memory_seconds - memory_bound_seconds
            then 'network'
        when memory_bound_seconds > compute_seconds + memory_seconds - memory_bound_seconds
            then 'memory'
        when operation_seconds > 0 then 'compute'
    end as binding_resource,
    -- in order, as the last digits of a sum depend on it
    1 - sum(operation_seconds) over (
        configuration_operations
        order by operation_index asc
        rows between unbounded preceding and unbounded following
    ) / step_seconds as bubble_fraction,
    row_number() over (
        configuration_operations
        order by operation_seconds desc, operation_index asc
    ) as operation_rank
from in_step
window
    configuration_operations as (
        partition by
            cell_id,
            data_parallel,
            tensor_parallel,
            tensor_parallel_2,
            context_parallel,
            pipeline_parallel,
            microbatch_size,
            summa_panels,
            nvlink_tensor_parallel,
            nvlink_tensor_parallel_2,
            nvlink_context_parallel,
            nvlink_data_parallel,
            nvlink_pipeline_parallel
    )
