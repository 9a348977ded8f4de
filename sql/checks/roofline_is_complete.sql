-- Roofline rows that lack a measure.
select *
from roofline
where
    step_seconds is null
    or compute_seconds is null
    or memory_seconds is null
    or tensor_comm_seconds is null
    or pipeline_comm_seconds is null
    or data_comm_seconds is null
    or flops_per_gpu is null
    or weights_bytes is null
    or optimizer_bytes is null
    or activations_bytes is null
