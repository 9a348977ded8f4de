"""Columns of how a run is laid out, and of what that costs."""

from __future__ import annotations

from estimators.columns.column import MEGATRON, Column, count, measure, positive, text

LAYOUT = (
    text("strategy", "How tensors are split inside a layer", "tensor_1d", "summa_2d", "context_2d"),
    count("data_parallel", "Data-parallel replicas"),
    count("tensor_parallel", "Tensor-parallel degree (first axis)"),
    count("tensor_parallel_2", "Second SUMMA axis; 1 where unused"),
    count("context_parallel", "Context-parallel degree; 1 where unused"),
    count("pipeline_parallel", "Pipeline stages"),
    count("expert_parallel", "Expert-parallel degree; 1 where unused"),
    count("sequence_parallel", "Sequence-parallel degree: tokens of a sequence split over it"),
    count(
        "tensor_parallel_external",
        "Tensor-parallel degree over the width of the residual stream",
    ),
    count(
        "virtual_pipeline", "Interleaved model chunks per stage (1: plain 1F1B)", source=MEGATRON
    ),
    count(
        "microbatch_size",
        "Sequences of one microbatch of one replica; of all replicas together in table pipeline",
        "sequences",
    ),
    count("num_microbatches", "Microbatches of one step of one replica"),
    Column("summa_panels", "int", "", "Panels of a SUMMA product; 0 where unused", minimum=0),
    count("nvlink_tensor_parallel", "Members of a tensor-parallel group in one NVLink domain"),
    count("nvlink_tensor_parallel_2", "Members of a second-axis group in one NVLink domain"),
    count("nvlink_context_parallel", "Members of a context-parallel group in one NVLink domain"),
    count("nvlink_data_parallel", "Members of a data-parallel group in one NVLink domain"),
    count("nvlink_pipeline_parallel", "Stages of one pipeline in one NVLink domain"),
    text(
        "activation_recompute",
        "Activations recomputed in the backward pass: none, those of attention, or all",
        *("none", "selective", "full"),
    ),
    text(
        "attention",
        "Attention: one kernel, separate operations (recomputed backward), SUMMA products",
        *("flash", "unfused", "unfused_recompute", "summa"),
    ),
)

RESULTS = (
    positive("step_seconds", "seconds", "Time of one training step; its parts add up to it"),
    measure("compute_seconds", "seconds", "Part of the step: arithmetic and launches"),
    measure("memory_seconds", "seconds", "Part of the step: memory traffic beyond arithmetic"),
    measure("tensor_comm_seconds", "seconds", "Part of the step: collectives inside layers"),
    measure("pipeline_comm_seconds", "seconds", "Part of the step: transfers between stages"),
    measure("bubble_seconds", "seconds", "Part of the step: idle stages of the pipeline"),
    measure("data_comm_seconds", "seconds", "Part of the step: exposed data-parallel traffic"),
    measure("flops_per_gpu", "FLOP", "Floating-point operations of one GPU in one step"),
    measure("weights_bytes", "bytes", "Weights on one GPU"),
    measure("gradients_bytes", "bytes", "Gradients on one GPU"),
    measure("optimizer_bytes", "bytes", "Optimizer state on one GPU"),
    measure("activations_bytes", "bytes", "Activations kept for the backward pass on one GPU"),
    measure("memory_bytes", "bytes", "Memory needed on one GPU"),
    Column("fits_memory", "bool", "", "Whether memory_bytes is at most the GPU's hbm_bytes"),
    measure("tokens", "tokens", "Tokens of the whole run"),
    measure("num_steps", "steps", "Steps of the whole run"),
    measure("step_flops", "FLOP", "Floating-point operations of one step, all GPUs"),
    measure("total_flops", "FLOP", "Floating-point operations of the whole run, all GPUs"),
    measure("training_seconds", "seconds", "Time of the whole run"),
    measure("utilization", "", "Share of the peak rate that the run reaches, by its estimator"),
)
