-- Layouts of one linear layer, with the arithmetic in its pass.
-- Grain: one row per layout of a layer
-- Key: cell_id, {linear_layer}
select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    is_default_variant,
    accelerator,
    flops_8bit_per_second,
    memory_bytes_per_second,
    network_bytes_per_second,
    base_utilization,
    input_size,
    output_size,
    bytes_per_element,
    tokens,
    num_gpus,
    data_parallel,
    tensor_parallel_input,
    tensor_parallel_output,
    forward_backward_seconds,
    gradient_reduction_seconds,
    6 * (input_size / tensor_parallel_input) * (output_size / tensor_parallel_output)
    * (tokens / data_parallel) * bytes_per_element
    / (base_utilization * flops_8bit_per_second) as compute_seconds
from current_linear_layer
