"""Columns that views derive."""

from __future__ import annotations

from estimators.columns.column import MEGATRON, Column, count, fraction, measure, positive, text
from estimators.columns.problem import SYSTEM

VIEWS = (
    count("head_size", "Width of one attention head"),
    Column("uses_glu", "bool", "", "Whether the feed-forward layer is gated"),
    Column(
        "zero_stage", "int", "", "What data parallelism shards: ZeRO stage", minimum=0, maximum=3
    ),
    count("step_tokens", "Tokens of one step", "tokens"),
    measure("sequences_per_second", "sequences/s", "Sequences trained on, all GPUs"),
    measure("tokens_per_second", "tokens/s", "Tokens trained on, all GPUs"),
    measure("tokens_per_second_per_gpu", "tokens/s", "Tokens trained on by one GPU"),
    measure("model_flops", "FLOP", "Model FLOPs of a step, without recomputation", MEGATRON),
    measure("model_flops_per_second_per_gpu", "FLOP/s", "Model FLOPs of one GPU over time"),
    measure("mfu", "", "Model FLOP/s of one GPU over its peak matrix rate", "arXiv 2204.02311"),
    *(
        fraction(f"{part}_fraction", f"Share of the step that is {part}_seconds")
        for part in ("compute", "memory", "tensor_comm", "pipeline_comm", "bubble", "data_comm")
    ),
    count("rank_by_time", "Rank among the layouts of the problem that fit in memory"),
    count("rank_in_strategy", "The same rank within one strategy"),
    count("rank_in_recompute", "The same rank within one choice of activation_recompute"),
    count("num_layouts", "Layouts evaluated"),
    Column(
        "num_fitting_layouts",
        "int",
        "",
        "Layouts that fit in memory, or whose estimator has no model of it",
        minimum=0,
    ),
    text("reference", "Reference table that estimates are compared with"),
    positive("published_flops_per_second_per_gpu", "FLOP/s", "Published, with recomputation"),
    positive("predicted_flops_per_second_per_gpu", "FLOP/s", "Predicted, counted the same way"),
    positive("published_step_seconds", "seconds", "Time of a step at the published rate"),
    Column("relative_error", "float", "", "Predicted over published, less one"),
    measure("absolute_relative_error", "", "Size of relative_error"),
    measure("mean_absolute_relative_error", "", "Mean size of the relative errors"),
    measure("max_absolute_relative_error", "", "Largest size of the relative errors"),
    Column("bias", "float", "", "Mean relative error; positive where estimates are too fast"),
    Column("spearman_correlation", "float", "", "Rank correlation of predicted and published"),
    *(
        Column(f"baseline_{name}", "float", "", f"{name} of the baseline, the mean of other rows")
        for name in (
            *("mean_absolute_relative_error", "max_absolute_relative_error", "bias"),
            "spearman_correlation",
        )
    ),
    measure("speedup_of_best", "", "Time of the published layout over that of the best"),
    positive("best_step_seconds", "seconds", "Time of the fastest layout that fits"),
    text("best_strategy", "Strategy of the fastest layout that fits"),
    *(
        count(f"best_{name}", f"{name} of the fastest layout that fits")
        for name in (
            *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
            *("pipeline_parallel", "virtual_pipeline", "microbatch_size"),
            *("nvlink_data_parallel", "nvlink_tensor_parallel", "nvlink_tensor_parallel_2"),
            *("nvlink_context_parallel", "nvlink_pipeline_parallel"),
        )
    ),
    Column("best_summa_panels", "int", "", "summa_panels of the fastest layout", minimum=0),
    text("best_attention", "attention of the fastest layout that fits"),
    text("best_layout", "The fastest layout that fits, in words; degrees of 1 may be left out"),
    positive("best_memory_bytes", "bytes", "Memory of the fastest layout that fits"),
    text("best_activation_recompute", "activation_recompute of the fastest layout that fits"),
    text("published_best_layout", "The fastest layout that fits by the published formulas"),
    positive("published_best_step_seconds", "seconds", "Published time of that layout"),
    positive("published_best_memory_bytes", "bytes", "Published memory of that layout"),
    count("num_published_layouts", "Layouts evaluated by the published formulas"),
    Column("num_published_fitting_layouts", "int", "", "Those of them that fit", minimum=0),
    Column("is_best_changed", "bool", "", "Whether the mends make another layout the fastest"),
    positive("best_step_ratio", "", "best_step_seconds over published_best_step_seconds"),
    positive("best_memory_ratio", "", "best_memory_bytes over published_best_memory_bytes"),
    positive("same_layout_step_ratio", "", "Mended over published time of published_best_layout"),
    positive("same_layout_memory_ratio", "", "The same ratio of its memory"),
    Column("fits_same_layout", "bool", "", "Whether published_best_layout fits under the mends"),
    Column("family_id", "int", "", "Points that differ in the system only", storage="BIGINT"),
    text("attribute", "Attribute of the system that is swept"),
    Column("amount", "float", "", "Value of the attribute, in its unit"),
    text("coupled_attributes", "The attribute with those that change together with it"),
    text("swept_attributes", "Attributes that the study varies, with + between coupled ones"),
    text("changed_attributes", "Attributes that are not those of the accelerator's system"),
    Column("elasticity", "float", "", "d ln(best_step_seconds) / d ln(amount)"),
    *(
        Column(f"{name}_elasticity", "float", "", f"d ln(best_step_seconds) / d ln({name})")
        for name in (column.name for column in SYSTEM if column.kind != "str")
    ),
    Column("num_cells_done", "int", "cells", "Cells of the study that are stored", minimum=0),
    Column("num_rows_done", "int", "rows", "Rows of the study that are stored", minimum=0),
)
