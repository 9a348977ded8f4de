-- The best layout of one system on each number of GPUs: degrees, memory and parts of the step.
-- Grain: one row per assumptions, estimator, variant, model, batch, system and number of GPUs
with point as (
    select
        assumptions,
        estimator,
        variant,
        model,
        global_batch_size,
        accelerator,
        nvlink_size,
        num_gpus,
        hbm_bytes,
        min(struct_pack(best := best, layout := best_layout)) as fastest
    from best_of_search
    where
        true
        and assumptions = $assumptions
        and estimator = $estimator
        and variant = $variant
        and strategy = $strategy
        and model = $model
        and global_batch_size = $global_batch_size
        and accelerator = $accelerator
        and nvlink_size = $nvlink_size
    group by all
)

select
    * exclude (fastest),
    fastest['layout'] as best_layout,
    fastest['best']['step_seconds'] as step_seconds,
    fastest['best']['memory_bytes'] as memory_bytes,
    fastest['best']['data_parallel'] as data_parallel,
    fastest['best']['tensor_parallel'] * coalesce(fastest['best']['tensor_parallel_2'], 1)
    * coalesce(fastest['best']['context_parallel'], 1) as tensor_parallel,
    fastest['best']['pipeline_parallel'] as pipeline_parallel,
    fastest['best']['expert_parallel'] as expert_parallel,
    global_batch_size // (fastest['best']['data_parallel'] * fastest['best']['microbatch_size'])
        as num_microbatches,
    fastest['best']['compute_seconds'] as compute_seconds,
    fastest['best']['memory_seconds'] as memory_seconds,
    fastest['best']['tensor_comm_seconds'] as tensor_comm_seconds,
    fastest['best']['pipeline_comm_seconds'] as pipeline_comm_seconds,
    fastest['best']['data_comm_seconds'] as data_comm_seconds,
    fastest['best']['bubble_seconds'] as bubble_seconds
from point
order by all
