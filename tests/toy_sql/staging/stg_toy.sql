-- Toy estimates under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id, {toy}
select
    -- record
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    mends,
    variant,
    kept,

    -- problem
    model,
    num_layers,
    hidden_size,
    seq_len,
    accelerator,
    matrix_flops_per_second,
    hbm_bytes,
    network_bytes_per_second,
    num_gpus,
    global_batch_size,

    -- layout
    data_parallel,
    tensor_parallel,
    activation_recompute,

    -- results
    step_seconds,
    compute_seconds,
    data_comm_seconds,
    weights_bytes,
    weights_bytes as gradients_bytes,
    6 * weights_bytes as optimizer_bytes,
    8 * weights_bytes as memory_bytes,
    8 * weights_bytes <= hbm_bytes as fits_memory
from current_toy
