-- Rows of training_step that lack a time or a part of the memory.
select *
from training_step
where
    step_seconds is null
    or gemm_seconds is null
    or attention_seconds is null
    or elementwise_seconds is null
    or vocabulary_seconds is null
    or recompute_seconds is null
    or host_seconds is null
    or accumulation_seconds is null
    or optimizer_seconds is null
    or tensor_comm_seconds is null
    or context_comm_seconds is null
    or expert_comm_seconds is null
    or pipeline_comm_seconds is null
    or data_comm_seconds is null
    or weights_bytes is null
    or gradients_bytes is null
    or optimizer_bytes is null
    or activations_bytes is null
    or logits_bytes is null
    or gathered_bytes is null
