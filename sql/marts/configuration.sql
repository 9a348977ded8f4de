-- Every evaluated configuration, with throughput, model FLOPs, utilization and shares of the step.
-- Grain: one row per configuration
-- Key: cell_id, {layout}
--
-- The logits count as model FLOPs where the vocabulary is known, even if the estimator leaves the
-- output layer out of its time. Keep that in mind when you compare mfu between estimators.
select
    *,
    global_batch_size / step_seconds as sequences_per_second,
    step_tokens / step_seconds as tokens_per_second,
    step_tokens / step_seconds / num_gpus as tokens_per_second_per_gpu,
    model_flops / step_seconds / num_gpus as model_flops_per_second_per_gpu,
    mfu(
        model_flops,
        step_seconds,
        num_gpus,
        coalesce(peak_flops_per_second, matrix_flops_per_second)
    ) as mfu,
    compute_seconds / step_seconds as compute_fraction,
    memory_seconds / step_seconds as memory_fraction,
    tensor_comm_seconds / step_seconds as tensor_comm_fraction,
    pipeline_comm_seconds / step_seconds as pipeline_comm_fraction,
    bubble_seconds / step_seconds as bubble_fraction,
    data_comm_seconds / step_seconds as data_comm_fraction
from configuration_flops
