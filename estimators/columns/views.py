"""Columns that views derive."""

from __future__ import annotations

from itertools import product

from estimators.columns.column import (
    MEGATRON,
    Column,
    count,
    fraction,
    identifier,
    measure,
    positive,
    signed,
    text,
)
from estimators.columns.forms import (
    BIAS,
    DAYS,
    ERROR,
    ERROR_BEYOND_ROUNDING,
    ERROR_SIZE,
    ERROR_SIZE_BEYOND_ROUNDING,
    FLOPS_PER_SECOND_PER_GPU,
    IDENTIFIER,
    MFU,
    PLAIN,
    RANK_CORRELATION,
    ROUNDING,
    SPEEDUP,
)
from estimators.columns.layout import best_of
from estimators.columns.problem import SYSTEM

VIEWS = (
    count("head_size", "Width of one attention head"),
    Column("uses_glu", "bool", "", "Whether the feed-forward layer is gated"),
    count("step_tokens", "Tokens of one step", "tokens"),
    measure(
        "sequences_per_second", "sequences/s", "Sequences trained on, all GPUs", better="higher"
    ),
    measure(
        "tokens_per_second",
        "tokens/s",
        "Tokens trained on, all GPUs",
        better="higher",
        is_optional=True,
    ),
    measure(
        "tokens_per_second_per_gpu",
        "tokens/s",
        "Tokens trained on by one GPU",
        shown_as=PLAIN,
        better="higher",
    ),
    measure("model_flops", "FLOP", "Model FLOPs of a step, without recomputation", MEGATRON),
    measure(
        "model_flops_per_second_per_gpu",
        "FLOP/s",
        "Model FLOPs of one GPU over time",
        shown_as=FLOPS_PER_SECOND_PER_GPU,
        better="higher",
    ),
    measure(
        "mfu",
        "",
        "Model FLOP/s of one GPU over its peak matrix rate",
        "arXiv 2204.02311",
        shown_as=MFU,
        better="higher",
        is_optional=True,
    ),
    *(
        fraction(
            f"{part}_fraction",
            f"Share of the step that is {part}_seconds",
            better="higher" if part == "compute" else "",
        )
        for part in ("compute", "memory", "tensor_comm", "pipeline_comm", "bubble", "data_comm")
    ),
    count(
        "rank_by_time", "Rank among the layouts of the problem that fit in memory", heading="rank"
    ),
    count("rank_in_strategy", "The same rank within one strategy"),
    count("rank_in_cell", "The same rank within one cell"),
    Column(
        "is_on_front",
        "bool",
        "",
        "Whether no other layout of the problem beats it in both time and memory",
    ),
    count(
        "rank_in_recompute",
        "The same rank within one choice of activation_recompute",
        heading="rank, same recompute",
    ),
    count("num_layouts", "Layouts evaluated"),
    Column(
        "num_fitting_layouts",
        "int",
        "",
        "Layouts that fit in memory, or whose estimator has no model of it",
        minimum=0,
        heading="that fit",
    ),
    text("reference", "Reference table that estimates are compared with"),
    text("published_row", "Stable key of the row in its reference table"),
    text(
        "published_group",
        "Group of comparable rows of one reference; `all` where there is only one group",
    ),
    text("printed_model", "Name of the model as the source prints it, where `model` has no key"),
    Column(
        "is_own_run", "bool", "", "Whether it is a run that `measure` stored, not a published one"
    ),
    Column(
        "is_own_framework",
        "bool",
        "",
        "Whether the constants are those of the program that was measured",
    ),
    measure("half_last_digit", "", "Half a unit of the published figure's last digit, in its unit"),
    measure(
        "published_rounding",
        "",
        "Half a unit of the published figure's last digit, over it",
        shown_as=ROUNDING,
    ),
    positive(
        "published_flops_per_second_per_gpu",
        "FLOP/s",
        "Published, with recomputation",
        shown_as=FLOPS_PER_SECOND_PER_GPU,
    ),
    positive(
        "predicted_flops_per_second_per_gpu",
        "FLOP/s",
        "Predicted, counted the same way",
        shown_as=FLOPS_PER_SECOND_PER_GPU,
    ),
    positive("published_step_seconds", "seconds", "Time of a step at the published rate"),
    signed("relative_error", "Predicted over published, less one", ERROR),
    measure("absolute_relative_error", "", "Size of relative_error", shown_as=ERROR_SIZE),
    signed("time_relative_error", "Predicted over published time, less one", ERROR),
    signed(
        "error_beyond_rounding",
        "relative_error; 0 where rounding explains it",
        ERROR_BEYOND_ROUNDING,
    ),
    signed(
        "time_error_beyond_rounding",
        "time_relative_error; 0 where rounding explains it",
        ERROR_BEYOND_ROUNDING,
    ),
    count("num_choices", "Evaluated choices that the publication does not state"),
    positive("lowest_step_seconds", "seconds", "Least step_seconds of those choices that fit"),
    positive("highest_step_seconds", "seconds", "Largest step_seconds of those that fit"),
    positive(
        "published_training_seconds", "seconds", "Published time of the whole run", shown_as=DAYS
    ),
    positive(
        "measured_training_seconds",
        "seconds",
        "The run's steps times the published one",
        shown_as=DAYS,
    ),
    text("degree", "Degree that the rows are grouped by: tensor_parallel, pipeline_parallel, ..."),
    count("degree_value", "Value of that degree"),
    text("constant_name", "Column that table step_constant or accelerator has a value for"),
    Column("expected_value", "float", "", "Value of the reference table, in the column's unit"),
    Column("given_value", "float", "", "Value of the problem, in the same unit"),
    Column(
        "changed_constants",
        "str",
        "",
        "Constants and rates that differ from the reference tables, with both values",
        storage="STRUCT(constant_name VARCHAR, expected_value DOUBLE, given_value DOUBLE)[]",
    ),
    text("product", "The product whose constants a problem should have"),
    measure(
        "mean_absolute_relative_error", "", "Mean size of the relative errors", shown_as=ERROR_SIZE
    ),
    measure(
        "max_absolute_relative_error",
        "",
        "Largest size of the relative errors",
        shown_as=ERROR_SIZE,
    ),
    signed("bias", "Mean relative error; positive where estimates are too fast", BIAS),
    measure(
        "mean_absolute_error_beyond_rounding",
        "",
        "Mean size of error_beyond_rounding",
        shown_as=ERROR_SIZE_BEYOND_ROUNDING,
    ),
    measure(
        "time_mean_absolute_relative_error",
        "",
        "Mean size of the relative errors of time",
        shown_as=ERROR_SIZE,
    ),
    measure(
        "time_max_absolute_relative_error",
        "",
        "Largest size of the relative errors of time",
        shown_as=ERROR_SIZE,
    ),
    signed("time_bias", "Mean relative error of time; negative where too fast", BIAS),
    measure(
        "time_mean_absolute_error_beyond_rounding",
        "",
        "Mean size of time_error_beyond_rounding",
        shown_as=ERROR_SIZE_BEYOND_ROUNDING,
    ),
    *(
        measure(
            f"{name}_{of}{size}_absolute_relative_error",
            "",
            f"The same of {meaning}",
            shown_as=ERROR_SIZE,
        )
        for name, meaning in (
            ("line", "a line in ln(hidden_size) through the other rows"),
            ("rescaled", "the predictions times a factor fitted on the other rows"),
        )
        for of, size in (*product(("", "rate_"), ("mean", "max")), ("time_", "mean"))
    ),
    signed("spearman_correlation", "Rank correlation of predicted and published", RANK_CORRELATION),
    measure(
        "baseline_time_mean_absolute_relative_error",
        "",
        "Mean size of the errors of time of the baseline, the mean of other rows",
        shown_as=ERROR_SIZE,
    ),
    *(
        signed(f"baseline_{of}{name}", f"{name} of the baseline, the mean of other rows", form)
        for of in ("", "rate_")
        for name, form in (
            ("mean_absolute_relative_error", ERROR_SIZE),
            ("max_absolute_relative_error", ERROR_SIZE),
            ("bias", BIAS),
            ("spearman_correlation", RANK_CORRELATION),
        )
    ),
    *(
        signed(f"rate_{name}", f"{meaning}; positive where estimates are too fast", form)
        for name, meaning, form in (
            ("error", "Predicted over published rate, less one", ERROR),
            ("mean_absolute_relative_error", "Mean size of the errors of the rate", ERROR_SIZE),
            ("max_absolute_relative_error", "Largest size of the errors of the rate", ERROR_SIZE),
            ("bias", "Mean error of the rate", BIAS),
            (
                "mean_absolute_error_beyond_rounding",
                "Mean size of the errors of the rate beyond rounding",
                ERROR_SIZE_BEYOND_ROUNDING,
            ),
        )
    ),
    signed(
        "rate_spearman_correlation",
        "Rank correlation of predicted and published rates",
        RANK_CORRELATION,
    ),
    text(
        "grouped_by",
        "Columns that the steps of a row share",
        *("group", "reference", "program"),
        *("tensor_parallel", "pipeline_parallel", "microbatch_size"),
    ),
    count("num_timed_groups", "Groups of the reference with a published time and an estimate"),
    measure(
        "speedup_of_best",
        "",
        "Time of the published layout over that of the best",
        shown_as=SPEEDUP,
    ),
    positive("best_step_seconds", "seconds", "Time of the fastest layout that fits"),
    text("best_strategy", "Strategy of the fastest layout that fits"),
    *(
        best_of(name, f"{name} of the fastest layout that fits")
        for name in (
            *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
            *("pipeline_parallel", "virtual_pipeline", "microbatch_size"),
            *("nvlink_data_parallel", "nvlink_tensor_parallel", "nvlink_tensor_parallel_2"),
            *("nvlink_context_parallel", "nvlink_pipeline_parallel"),
        )
    ),
    best_of("summa_panels", "summa_panels of the fastest layout"),
    text("best_attention", "attention of the fastest layout that fits"),
    text(
        "best_layout",
        "The fastest layout that fits, in words; degrees of 1 may be left out",
        is_optional=True,
    ),
    positive("best_memory_bytes", "bytes", "Memory of the fastest layout that fits"),
    text(
        "best_activation_recompute",
        "activation_recompute of the fastest layout that fits",
        heading="best recompute",
    ),
    text("published_best_layout", "The fastest layout that fits by the published formulas"),
    positive("published_best_step_seconds", "seconds", "Published time of that layout"),
    positive("published_best_memory_bytes", "bytes", "Published memory of that layout"),
    count("num_published_layouts", "Layouts evaluated by the published formulas"),
    Column(
        "num_published_fitting_layouts",
        "int",
        "",
        "Layouts that fit by the published formulas",
        minimum=0,
    ),
    Column("is_best_changed", "bool", "", "Whether the mends make another layout the fastest"),
    positive("best_step_ratio", "", "best_step_seconds over published_best_step_seconds"),
    positive("best_memory_ratio", "", "best_memory_bytes over published_best_memory_bytes"),
    positive("same_layout_step_ratio", "", "Mended over published time of published_best_layout"),
    positive("same_layout_memory_ratio", "", "The same ratio of its memory"),
    Column("fits_same_layout", "bool", "", "Whether published_best_layout fits under the mends"),
    identifier("family_id", "Id of points that differ only in the system"),
    text("attribute", "Attribute of the system that is swept"),
    Column("amount", "float", "", "Value of the attribute, in its unit"),
    text("coupled_attributes", "The attribute with those that change together with it"),
    text("swept_attributes", "Attributes that the study varies, with + between coupled ones"),
    text("changed_attributes", "Attributes that differ from the accelerator's system"),
    Column("elasticity", "float", "", "d ln(best_step_seconds) / d ln(amount)"),
    *(
        Column(f"{name}_elasticity", "float", "", f"d ln(best_step_seconds) / d ln({name})")
        for name in (column.name for column in SYSTEM if column.kind != "str")
    ),
    Column("num_cells_done", "int", "cells", "Cells of the study that are stored", minimum=0),
    Column("num_rows_done", "int", "rows", "Rows of the study that are stored", minimum=0),
    Column(
        "superseded_rows",
        "int",
        "rows",
        "Those of them that a newer version of their estimator replaced: no view shows them",
        minimum=0,
    ),
    count("num_changed_constants", "Constants and rates that differ from the reference tables"),
    count("num_changed_step_constants", "Constants that differ from table step_constant"),
    text(
        "sibling_record",
        "Cells that decide which rows views show of a cell: ids, times of evaluation",
    ),
    *(
        identifier(f"{name}_id", f"Problems that {meaning}")
        for name, meaning in (
            ("scaling", "differ in nothing but the number of GPUs"),
            ("capacity", "differ in the number of GPUs and the NVLink domain only"),
            ("workload", "ask for the same work on the same number of GPUs, on any system"),
        )
    ),
    Column("is_whole_space", "bool", "", "Whether a cell of it has all layouts of its space"),
    text(
        "searched",
        "Choices that were searched in full, or their fixed values; equal for equal searches",
    ),
    positive("gpu_seconds_per_token", "seconds", "GPU-seconds that a token takes", shown_as=PLAIN),
    positive("usd_per_token", "USD", "Cost of a token at usd_per_gpu_hour", shown_as=PLAIN),
    count("base_num_gpus", "Smallest number of GPUs at which a layout fits"),
    positive("speedup", "", "Best time at base_num_gpus over the best time here"),
    positive("scaling_efficiency", "", "speedup over the ratio of the numbers of GPUs"),
    positive(
        "marginal_gpu_seconds_per_token",
        "seconds",
        "GPUs added to half the number, over the tokens a second that they add",
        shown_as=PLAIN,
    ),
    positive(
        "marginal_usd_per_token", "USD", "Cost of marginal_gpu_seconds_per_token", shown_as=PLAIN
    ),
    fraction("binding_fraction", "Share of the step of binding_resource"),
    text("runner_up_resource", "Part with the second largest share of the step"),
    fraction("runner_up_fraction", "Share of the step of runner_up_resource"),
    positive("tensor_1d_ratio", "", "Best time of strategy tensor_1d over the best of all"),
    Column("is_2d_faster", "bool", "", "Whether a two-dimensional strategy beats tensor_1d"),
    Column("is_searched_alike", "bool", "", "Whether all were searched in full, by equal choices"),
    *(
        column
        for name in ("tensor_1d", "summa_2d", "context_2d")
        for column in (
            positive(f"{name}_step_seconds", "seconds", f"Best time of strategy {name}"),
            text(f"{name}_layout", f"The fastest layout of strategy {name}"),
            positive(f"{name}_memory_bytes", "bytes", "Its memory on one GPU"),
            count(f"{name}_num_layouts", f"Layouts of strategy {name} evaluated"),
            Column(f"is_{name}_whole_space", "bool", "", f"Whether {name} was searched in full"),
        )
    ),
    positive("ratio_to_fastest", "", "best_step_seconds over that of the fastest system"),
    positive("ratio_to_base", "", "best_step_seconds over that of the system asked for"),
    count("smallest_num_gpus", "Smallest number of GPUs, of those evaluated, that holds the model"),
    count("lowest_num_gpus", "Smallest number of GPUs that was evaluated"),
    count("highest_num_gpus", "Largest number of GPUs that was evaluated"),
    fraction("memory_use_fraction", "Memory of the layout over that of a GPU"),
    text("fit_note", "Why there is no smallest number, or whether fewer GPUs may be enough"),
    count("num_near_layouts", "Layouts that are nearly as fast as the best"),
    count("num_near_splits", "Different degrees among them"),
    text("near_strategies", "Strategies among them"),
    text("near_activation_recomputes", "Choices of activation_recompute among them"),
    positive("ratio_to_best", "", "Time over that of the best layout of the problem"),
    Column("headroom_bytes", "float", "bytes", "hbm_bytes that memory_bytes leaves free"),
    positive("lowest_memory_bytes", "bytes", "Least memory on one GPU among them"),
    positive("highest_memory_bytes", "bytes", "Most memory on one GPU among them"),
    *(
        count(f"{end}_{name}", f"{word} {name} among them")
        for name in (
            *("data_parallel", "tensor_parallel", "tensor_parallel_2", "tensor_parallel_external"),
            *("context_parallel", "sequence_parallel", "expert_parallel"),
            *("expert_tensor_parallel", "pipeline_parallel"),
            *("virtual_pipeline", "microbatch_size"),
        )
        for end, word in (("lowest", "Smallest"), ("highest", "Largest"))
    ),
    identifier("other_problem_id", "problem_id of the second problem"),
    *(
        text(f"other_{name}", f"{name} of the second problem")
        for name in (
            *("estimator", "variant", "model", "accelerator", "assumptions", "best_layout"),
        )
    ),
    *(
        count(f"other_{name}", f"{name} of the second problem")
        for name in ("num_layouts", "nvlink_size", "num_gpus", "global_batch_size")
    ),
    count(
        "other_estimator_version",
        "estimator_version of the second problem",
        shown_as=IDENTIFIER,
    ),
    *(
        positive(f"other_{name}", unit, f"{name} of the second problem")
        for name, unit in (
            ("step_seconds", "seconds"),
            ("memory_bytes", "bytes"),
            ("best_step_seconds", "seconds"),
            ("best_memory_bytes", "bytes"),
            ("tokens_per_second", "tokens/s"),
        )
    ),
    Column("other_fits_memory", "bool", "", "fits_memory of the second problem"),
    positive("product_seconds", "seconds", "Time of a product that was timed alone"),
    measure("peak_share", "", "Rate over the peak in its number format"),
    measure(
        "roof_share",
        "",
        "Rate over the roof: the peak, or the rate that memory bandwidth admits if that is less",
    ),
    positive("step_ratio", "", "Time of the second problem over that of the first"),
    positive("memory_ratio", "", "Memory of the second problem over that of the first"),
)
