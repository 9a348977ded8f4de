"""Columns of a layout, and of its results: time, memory, rates."""

from __future__ import annotations

from estimators.columns.column import MEGATRON, Column, count, measure, positive, text
from estimators.columns.forms import DAYS, FLOPS_PER_GPU, UTILIZATION


def _degree(name: str, meaning: str, heading: str, short: str, source: str = "") -> Column:
    """Return a degree that some estimators lack, and that is 1 in most layouts."""
    return count(
        name,
        meaning,
        source=source,
        heading=heading,
        short=short,
        neutral=1,
        is_optional=True,
        in_layout=True,
    )


def _in_domain(name: str, meaning: str, heading: str, neutral: int | None = None) -> Column:
    """Return the part of a degree that lies in one NVLink domain."""
    return count(
        f"nvlink_{name}",
        meaning,
        heading=heading,
        neutral=neutral,
        is_optional=True,
        in_layout=True,
    )


LAYOUT = (
    text(
        "strategy",
        "How tensors are split inside a layer",
        *("tensor_1d", "summa_2d", "context_2d"),
        is_optional=True,
        in_layout=True,
    ),
    text(
        "activation_recompute",
        "Activations recomputed in the backward pass: none, those of attention, or all",
        *("none", "selective", "full"),
        heading="recompute",
        short="recompute ",
        neutral="none",
        is_optional=True,
        in_layout=True,
    ),
    text(
        "attention",
        "Attention: one kernel, separate operations (recomputed backward), SUMMA products",
        *("flash", "unfused", "unfused_recompute", "summa"),
        short="attention ",
        is_optional=True,
        in_layout=True,
    ),
    count("data_parallel", "Data-parallel replicas", heading="DP", short="dp", in_layout=True),
    count(
        "tensor_parallel",
        "Tensor-parallel degree (first axis)",
        heading="TP",
        short="tp",
        in_layout=True,
    ),
    _degree("tensor_parallel_2", "Second SUMMA axis; 1 where unused", "TP2", "x"),
    _degree(
        "tensor_parallel_external",
        "Tensor-parallel degree over the width of the residual stream",
        "TP ext",
        "ext",
    ),
    _degree("context_parallel", "Context-parallel degree; 1 where unused", "CP", "cp"),
    _degree(
        "sequence_parallel",
        "Sequence-parallel degree: tokens of a sequence split over it",
        "SP",
        "sp",
    ),
    _degree("expert_parallel", "Expert-parallel degree; 1 where unused", "EP", "ep"),
    _degree(
        "expert_tensor_parallel",
        "Degree over which the width of each expert is split; 1: experts are whole",
        "ETP",
        "etp",
        MEGATRON,
    ),
    count("pipeline_parallel", "Pipeline stages", heading="PP", short="pp", in_layout=True),
    _degree(
        "virtual_pipeline",
        "Virtual pipeline: model chunks that a stage interleaves (1: plain 1F1B)",
        "VP",
        "vp",
        MEGATRON,
    ),
    Column(
        "uses_sequence_parallel",
        "bool",
        "",
        "Whether the tensor-parallel group also splits what lies between its products",
        heading="seq",
        short="seq",
        in_layout=True,
    ),
    Column(
        "zero_stage",
        "int",
        "",
        "ZeRO stage: the state that data parallelism shards",
        heading="ZeRO",
        minimum=0,
        maximum=3,
        short="zero",
        in_layout=True,
    ),
    count(
        "microbatch_size",
        "Sequences of one microbatch of one replica; of all replicas together in table pipeline",
        "sequences",
        heading="micro",
        short="micro",
        is_optional=True,
        in_layout=True,
    ),
    count(
        "num_microbatches",
        "Microbatches of one step of one replica",
        heading="microbatches",
        short="microbatches",
        is_optional=True,
        in_layout=True,
    ),
    Column(
        "summa_panels",
        "int",
        "",
        "Panels of a SUMMA product; 0 where unused",
        minimum=0,
        heading="panels",
        short="panels",
        neutral=0,
        is_optional=True,
        in_layout=True,
    ),
    _in_domain(
        "tensor_parallel", "Members of a tensor-parallel group in one NVLink domain", "TP/domain"
    ),
    _in_domain(
        "tensor_parallel_2",
        "Members of a second-axis group in one NVLink domain",
        "TP2/domain",
        neutral=1,
    ),
    _in_domain(
        "context_parallel",
        "Members of a context-parallel group in one NVLink domain",
        "CP/domain",
        neutral=1,
    ),
    _in_domain(
        "data_parallel", "Members of a data-parallel group in one NVLink domain", "DP/domain"
    ),
    _in_domain("pipeline_parallel", "Stages of one pipeline in one NVLink domain", "PP/domain"),
)

_BY_NAME = {column.name: column for column in LAYOUT}


def best_of(name: str, meaning: str) -> Column:
    """Return the column with the best layout's value of column `name`."""
    of = _BY_NAME[name]
    return Column(
        f"best_{name}", of.kind, "", meaning, minimum=of.minimum, heading=f"best {of.heading}"
    )


RESULTS = (
    positive(
        "step_seconds",
        "seconds",
        "Time of one training step; its parts add up to it",
        better="lower",
    ),
    positive("low_step_seconds", "seconds", "Fast end of the interval of the step, nine in ten"),
    positive("high_step_seconds", "seconds", "Slow end of the interval of the step, nine in ten"),
    measure("compute_seconds", "seconds", "Part of the step: arithmetic and launches"),
    measure("memory_seconds", "seconds", "Part of the step: memory traffic beyond arithmetic"),
    measure(
        "tensor_comm_seconds",
        "seconds",
        "Part of the step: collectives inside layers; in view configuration with "
        "context_comm_seconds and expert_comm_seconds",
    ),
    measure("pipeline_comm_seconds", "seconds", "Part of the step: transfers between stages"),
    measure("bubble_seconds", "seconds", "Part of the step: idle stages of the pipeline"),
    measure("data_comm_seconds", "seconds", "Part of the step: exposed data-parallel traffic"),
    measure(
        "flops_per_gpu",
        "FLOP",
        "Floating-point operations of one GPU in one step",
        shown_as=FLOPS_PER_GPU,
    ),
    measure("weights_bytes", "bytes", "Weights on one GPU"),
    measure("gradients_bytes", "bytes", "Gradients on one GPU"),
    measure("optimizer_bytes", "bytes", "Optimizer state on one GPU"),
    measure("activations_bytes", "bytes", "Activations kept for the backward pass on one GPU"),
    measure("memory_bytes", "bytes", "Memory needed on one GPU", better="lower", is_optional=True),
    Column("fits_memory", "bool", "", "Whether memory_bytes is at most the GPU's hbm_bytes"),
    measure("tokens", "tokens", "Tokens of the whole run"),
    measure("num_steps", "steps", "Steps of the whole run"),
    measure("step_flops", "FLOP", "Floating-point operations of one step, all GPUs"),
    measure("total_flops", "FLOP", "Floating-point operations of the whole run, all GPUs"),
    measure(
        "training_seconds",
        "seconds",
        "Time of the whole run",
        shown_as=DAYS,
        better="lower",
        is_optional=True,
    ),
    measure(
        "utilization",
        "",
        "Share of the peak rate that the run reaches, by its estimator",
        shown_as=UTILIZATION,
        better="higher",
        is_optional=True,
    ),
)
