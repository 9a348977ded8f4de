-- Runs of the cluster estimator: GPUs, steps and time, with their FLOPs.
-- Grain: one row per run
-- Key: cell_id, {cluster_compute}
--
-- As published, accumulation divides the GPUs (C11). num_gpus is the nearest whole number;
-- num_gpus_for_flops has the real one, and GPU-hours and times are of it.
select
    unnest(cluster_question(current_cluster_compute)) as question,

    -- run
    gradient_accumulation,
    target_step_seconds,
    available_gpus,
    goodput,
    usd_per_gpu_hour,
    activation_recompute,
    critical_batch_tokens,
    num_steps,
    6 * active_parameters * dataset_tokens as total_flops,
    6 * active_parameters * global_batch_tokens as step_flops,
    step_flops / (peak_flops_per_second * mfu * target_step_seconds) as num_gpus_unrounded,
    num_gpus_for_flops,
    num_gpus_for_memory,
    try_cast(num_gpus as integer) as num_gpus,
    num_gpus >= num_gpus_for_memory as fits_memory,
    step_seconds,
    training_seconds,
    num_gpus * training_seconds / 3600 as gpu_hours
from current_cluster_compute
