"""The data dictionary: every column of the project once, with type, unit, meaning and source.

DDL, column comments, the column reference in docs and the validation of studies and batch
files are all made from it. Units are base units; a name ends with its unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["int", "float", "bool", "str", "date", "time"]

_STORAGE = {
    "int": "INTEGER",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "date": "DATE",
    "time": "TIMESTAMP",
}
NUMPY_TYPES: dict[str, type] = {
    "TINYINT": np.int8,
    "UTINYINT": np.uint8,
    "SMALLINT": np.int16,
    "USMALLINT": np.uint16,
    "INTEGER": np.int32,
    "UINTEGER": np.uint32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "BOOLEAN": np.bool_,
    "VARCHAR": np.object_,
}
"""DuckDB types that a stored column may have, and what they are in memory."""

_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_, "str": np.object_}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    name, kind, unit, meaning, source
        As documented to users; `unit` is empty for pure numbers and texts.
    storage
        DuckDB type, by default that of the kind.
    minimum, maximum
        Smallest and largest value accepted as input (an integer is also bound by `storage`).
    above
        Exclusive lower bound, for quantities that must be positive.
    choices
        The accepted values, where they are few.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    source: str = ""
    storage: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def duckdb_type(self) -> str:
        """DuckDB type of the column in storage."""
        return self.storage or _STORAGE[self.kind]

    @property
    def dtype(self) -> type:
        """Numpy dtype of the column in arithmetic."""
        return _DTYPES[self.kind]

    @property
    def comment(self) -> str:
        """Meaning, unit and source in one line, for COMMENT ON and docs."""
        unit = f" [{self.unit}]" if self.unit else ""
        source = f" Source: {self.source}." if self.source else ""
        return f"{self.meaning}{unit}.{source}"


def _count(name: str, meaning: str, unit: str = "", **more: object) -> Column:
    return Column(name, "int", unit, meaning, minimum=1, **more)  # type: ignore[arg-type]


def _positive(name: str, unit: str, meaning: str, source: str = "") -> Column:
    return Column(name, "float", unit, meaning, source, above=0)


def _rate(name: str, unit: str, meaning: str) -> Column:
    """Return a column of a rate or capacity: bounded, so that no time over- or underflows."""
    return Column(name, "float", unit, meaning, minimum=1, maximum=1e30)


def _latency(name: str, meaning: str, source: str = "") -> Column:
    return Column(name, "float", "seconds", meaning, source, minimum=0, maximum=1e6)


def _efficiency(name: str, meaning: str, source: str = "") -> Column:
    return Column(name, "float", "", meaning, source, minimum=1e-6, maximum=1)


def _measure(name: str, unit: str, meaning: str, source: str = "") -> Column:
    return Column(name, "float", unit, meaning, source, minimum=0)


def _fraction(name: str, meaning: str, source: str = "") -> Column:
    return Column(name, "float", "", meaning, source, minimum=0, maximum=1)


def _text(name: str, meaning: str, *choices: str) -> Column:
    return Column(name, "str", "", meaning, choices=choices)


_PAPER = "arXiv 2410.00273"
_MEGATRON = "arXiv 2104.04473"

_MODEL = (
    _text("model", "Name of the model"),
    _count("num_layers", "Transformer layers"),
    _count("hidden_size", "Width of the residual stream"),
    _count("ffn_hidden_size", "Width of the feed-forward layer"),
    _count("num_heads", "Attention (query) heads"),
    _count("num_kv_heads", "Key and value heads"),
    _count("seq_len", "Sequence length", "tokens"),
    _count("vocab_size", "Vocabulary entries; NULL where the model leaves the vocabulary out"),
    _positive("parameters", "", "Parameters of the model"),
)

_SYSTEM = (
    _text("accelerator", "Name of the system: an accelerator with its two networks"),
    _count("nvlink_size", "GPUs in one fast (NVLink) domain", "GPUs"),
    _rate("matrix_flops_per_second", "FLOP/s", "Peak rate of matrix units"),
    _rate("vector_flops_per_second", "FLOP/s", "Peak rate of vector units"),
    _rate("hbm_bytes_per_second", "bytes/s", "Memory bandwidth of one GPU"),
    _rate("hbm_bytes", "bytes", "Memory capacity of one GPU"),
    _rate("nvlink_bytes_per_second", "bytes/s", "Fast-domain bandwidth of one GPU, one way"),
    _efficiency("nvlink_efficiency", "Share of NVLink bandwidth reached"),
    _latency("nvlink_latency_seconds", "Latency of one hop in the fast domain"),
    _rate("network_bytes_per_second", "bytes/s", "Bandwidth of one network card, one way"),
    _efficiency("network_efficiency", "Share of network bandwidth reached"),
    _latency("network_latency_seconds", "Latency of one hop between domains"),
    Column("nics_per_gpu", "float", "", "Network cards per GPU", minimum=1e-6, maximum=1e6),
    _efficiency("flops_efficiency", "Share of peak FLOP/s reached", _PAPER),
    _latency("launch_seconds", "Fixed cost of one operation and direction", _PAPER),
    _text("assumed", "Columns of this row whose values are assumed, not published"),
)

_PROBLEM = (
    _count("num_gpus", "GPUs of the run", "GPUs"),
    _count("global_batch_size", "Sequences of one step over the whole run", "sequences"),
    _count("bytes_per_element", "Bytes of one weight, activation or gradient element", "bytes"),
)

_LAYOUT = (
    _text(
        "strategy", "How tensors are split inside a layer", "tensor_1d", "summa_2d", "context_2d"
    ),
    _count("data_parallel", "Data-parallel replicas"),
    _count("tensor_parallel", "Tensor-parallel degree (first axis)"),
    _count("tensor_parallel_2", "Second SUMMA axis; 1 where unused"),
    _count("context_parallel", "Context-parallel degree; 1 where unused"),
    _count("pipeline_parallel", "Pipeline stages"),
    _count(
        "virtual_pipeline", "Interleaved model chunks per stage (1: plain 1F1B)", source=_MEGATRON
    ),
    _count("microbatch_size", "Sequences of one microbatch of one replica", "sequences"),
    _count("num_microbatches", "Microbatches of one step of one replica"),
    Column("summa_panels", "int", "", "Panels of a SUMMA product; 0 where unused", minimum=0),
    _count("nvlink_tensor_parallel", "Members of a tensor-parallel group in one NVLink domain"),
    _count("nvlink_tensor_parallel_2", "Members of a second-axis group in one NVLink domain"),
    _count("nvlink_context_parallel", "Members of a context-parallel group in one NVLink domain"),
    _count("nvlink_data_parallel", "Members of a data-parallel group in one NVLink domain"),
    _count("nvlink_pipeline_parallel", "Stages of one pipeline in one NVLink domain"),
    _text("activation_recompute", "Activations recomputed in the backward pass", "none", "full"),
    _text(
        "attention",
        "Attention: one kernel, separate operations (recomputed backward), SUMMA products",
        *("flash", "unfused", "unfused_recompute", "summa"),
    ),
)

_RESULTS = (
    _positive("step_seconds", "seconds", "Time of one training step; its parts add up to it"),
    _measure("compute_seconds", "seconds", "Part of the step: arithmetic and launches"),
    _measure("memory_seconds", "seconds", "Part of the step: memory traffic beyond arithmetic"),
    _measure("tensor_comm_seconds", "seconds", "Part of the step: collectives inside layers"),
    _measure("pipeline_comm_seconds", "seconds", "Part of the step: transfers between stages"),
    _measure("bubble_seconds", "seconds", "Part of the step: idle stages of the pipeline"),
    _measure("data_comm_seconds", "seconds", "Part of the step: exposed data-parallel traffic"),
    _measure("flops_per_gpu", "FLOP", "Floating-point operations of one GPU in one step"),
    _measure("weights_bytes", "bytes", "Weights on one GPU"),
    _measure("gradients_bytes", "bytes", "Gradients on one GPU"),
    _measure("optimizer_bytes", "bytes", "Optimizer state on one GPU"),
    _measure("activations_bytes", "bytes", "Activations kept for the backward pass on one GPU"),
    _measure("memory_bytes", "bytes", "Memory needed on one GPU"),
    Column("fits_memory", "bool", "", "Whether memory_bytes is at most the GPU's hbm_bytes"),
)

_TRANSFER_SECONDS = "; of a transfer between layers: in the step"

_OPERATIONS = (
    _text(
        "operation",
        "Operation of a step: of a layer, between replicas, or between stages",
        *("fc1", "fc1_bias", "activation", "ffn_dropout", "fc2", "fc2_bias"),
        *("ffn_output_dropout", "layer_norm_1", "qkv", "attention", "logits", "softmax"),
        *("attention_dropout", "attend", "projection", "projection_bias"),
        *("attention_output_dropout", "layer_norm_2"),
        *("data_parallel_exchange", "pipeline_transfer"),
    ),
    Column("operation_index", "int", "", "Place of the operation in the step", minimum=0),
    _text(
        "part",
        "Part of the step that the operation belongs to",
        *("feed_forward", "attention", "data", "pipeline"),
    ),
    Column("uses_matrix_units", "bool", "", "Whether matrix units do most of the work"),
    *(
        column
        for way in ("forward", "backward")
        for column in (
            _measure(f"{way}_flops", "FLOP", f"Operations of the {way} pass"),
            _measure(f"{way}_hbm_bytes", "bytes", f"Read and written in the {way} pass"),
            _measure(
                f"{way}_comm_bytes",
                "bytes",
                f"Volume of the collectives of the {way} pass; a group of one moves none of it",
            ),
            _text(f"{way}_collectives", f"What moves bytes in the {way} pass, joined by +"),
            _measure(f"{way}_seconds", "seconds", f"Time of the {way} pass{_TRANSFER_SECONDS}"),
            _measure(
                f"{way}_compute_seconds", "seconds", f"Arithmetic and launch in the {way} pass"
            ),
            _measure(
                f"{way}_memory_seconds",
                "seconds",
                f"Memory traffic beyond arithmetic in the {way} pass",
            ),
            _measure(
                f"{way}_comm_seconds",
                "seconds",
                f"Exposed communication in the {way} pass{_TRANSFER_SECONDS}",
            ),
        )
    ),
    _count("comm_group_size", "GPUs of the group that collectives run over; 1: none", "GPUs"),
    _count("nvlink_comm_group", "GPUs of that group in one NVLink domain", "GPUs"),
    _count("comm_group_size_2", "The same of collectives over the second axis", "GPUs"),
    _count("nvlink_comm_group_2", "GPUs of that group in one NVLink domain", "GPUs"),
    _count("layers_per_stage", "Transformer layers on one GPU"),
    Column(
        "num_passes",
        "int",
        "",
        "Times that the seconds and FLOPs of an operation occur in a step",
        storage="BIGINT",
        minimum=1,
    ),
    Column(
        "num_transfers",
        "int",
        "",
        "Times that the comm_bytes of an operation occur in a step; 0 where none move",
        storage="BIGINT",
        minimum=0,
    ),
    _measure("operation_seconds", "seconds", "Part of the step: the operation, both passes"),
    _measure("comm_seconds", "seconds", "Part of the step: exposed communication"),
    _measure("hbm_traffic_bytes", "bytes", "Read and written by one GPU in one step"),
    _measure("comm_bytes", "bytes", "Volume of collectives of one GPU in one step"),
    _fraction("step_fraction", "Share of the step that is operation_seconds"),
    _count("operation_rank", "Rank among the operations of the step by time, longest first"),
    _text(
        "binding_resource",
        "What most of the operation's time waits for",
        *("compute", "memory", "network"),
    ),
)

_RECORD = (
    Column("problem_id", "int", "", "Content hash of the problem", storage="BIGINT"),
    Column("cell_id", "int", "", "Content hash of the cell", storage="BIGINT"),
    _text("relation", "Fact table that the cell's rows are in"),
    _text("estimator", "Estimator that made the row"),
    Column("estimator_version", "int", "", "Version of the estimator that made the row", minimum=1),
    _text("mends", "Erratum ids whose mended formula was used, comma-separated; empty: none"),
    _text("variant", "published (no mend), corrected (every mend) or the list of mends"),
    _text("kept", "Layout columns held to one value by the study, as JSON; {} is the whole space"),
    Column(
        "num_rows",
        "int",
        "rows",
        "Rows: of a cell, a study, a comparison",
        storage="BIGINT",
        minimum=0,
    ),
    Column(
        "sibling",
        "int",
        "",
        "Place of a cell among its siblings, the cells that answer the same question: the whole "
        "space first",
        storage="BIGINT",
        minimum=1,
    ),
    _count("num_siblings", "Cells that answer the same question", storage="BIGINT"),
    Column("first_sibling", "int", "", "Least cell_id among the siblings", storage="BIGINT"),
    _text("study", "Name of the study"),
    _text("study_file", "File the study was read from"),
    _text("definition", "The study as JSON, ranges expanded"),
    Column("num_cells", "int", "cells", "Cells of the study", storage="BIGINT", minimum=0),
    Column("created_at", "time", "", "When the record was made (UTC)"),
    Column("evaluated_at", "time", "", "When the rows were committed (UTC)"),
)

_REFERENCE = (
    _text("source", "Where the row's figures were published"),
    _text("note", "Remark on the row"),
    _text("alias", "Another spelling of an accelerator's name"),
    _positive(
        "bf16_flops_per_second", "FLOP/s", "Peak dense BF16 rate; FP16 where there is no BF16"
    ),
    _positive("fp8_flops_per_second", "FLOP/s", "Peak dense FP8 rate; NULL where there is none"),
    _positive(
        "measured_max_matmul_flops_per_second", "FLOP/s", "Largest rate measured of BF16 products"
    ),
    _count("gpus_per_node", "GPUs in one fast domain as sold: a server or a rack", "GPUs"),
    _positive("nic_bytes_per_second", "bytes/s", "Network bandwidth of one GPU, one way"),
    _positive("tdp_watts", "watts", "Thermal design power of one accelerator"),
    _positive("server_watts_per_gpu", "watts", "Power of a server at full load, for one GPU"),
    _text("server_watts_source", "Where server_watts_per_gpu comes from"),
    _positive("purchase_usd", "USD", "Price of one accelerator"),
    _text("price_source", "Where purchase_usd comes from"),
    _text("erratum", "Id of the erratum"),
    _text("place", "Where in the source the fault stands"),
    _text("fault", "What is wrong"),
    _text("consequence", "What it changes, and how much"),
    _text("mend", "The mended formula; empty where the fault is recorded only"),
    Column("is_mended", "bool", "", "Whether the erratum can be mended by its id"),
    _count("model_parallel", "Tensor-parallel times pipeline-parallel degree"),
    _positive("peak_flops_per_second", "FLOP/s", "Peak rate the published share refers to"),
    _positive(
        "achieved_flops_per_second_per_gpu",
        "FLOP/s",
        "Published model FLOP/s of one GPU",
        _MEGATRON,
    ),
    _fraction("achieved_fraction_of_peak", "Published share of the peak rate", _MEGATRON),
    _positive(
        "aggregate_flops_per_second", "FLOP/s", "Published model FLOP/s of all GPUs", _MEGATRON
    ),
)

_VIEWS = (
    _count("head_size", "Width of one attention head"),
    Column("uses_glu", "bool", "", "Whether the feed-forward layer is gated"),
    Column("zero_stage", "int", "", "What data parallelism shards: ZeRO stage", minimum=0),
    _count("step_tokens", "Tokens of one step", "tokens"),
    _measure("sequences_per_second", "sequences/s", "Sequences trained on, all GPUs"),
    _measure("tokens_per_second", "tokens/s", "Tokens trained on, all GPUs"),
    _measure("tokens_per_second_per_gpu", "tokens/s", "Tokens trained on by one GPU"),
    _measure("model_flops", "FLOP", "Model FLOPs of a step, without recomputation", _MEGATRON),
    _measure("model_flops_per_second_per_gpu", "FLOP/s", "Model FLOPs of one GPU over time"),
    _measure("mfu", "", "Model FLOP/s of one GPU over its peak matrix rate", "arXiv 2204.02311"),
    *(
        _fraction(f"{part}_fraction", f"Share of the step that is {part}_seconds")
        for part in ("compute", "memory", "tensor_comm", "pipeline_comm", "bubble", "data_comm")
    ),
    _count("rank_by_time", "Rank among the layouts of the problem that fit in memory"),
    _count("rank_in_strategy", "The same rank within one strategy"),
    _count("rank_in_recompute", "The same rank within one choice of activation_recompute"),
    _count("num_layouts", "Layouts evaluated"),
    Column("num_fitting_layouts", "int", "", "Layouts that fit in memory", minimum=0),
    _text("reference", "Reference table that estimates are compared with"),
    _positive("published_flops_per_second_per_gpu", "FLOP/s", "Published, with recomputation"),
    _positive("predicted_flops_per_second_per_gpu", "FLOP/s", "Predicted, counted the same way"),
    _positive("published_step_seconds", "seconds", "Time of a step at the published rate"),
    Column("relative_error", "float", "", "Predicted over published, less one"),
    _measure("absolute_relative_error", "", "Size of relative_error"),
    _measure("mean_absolute_relative_error", "", "Mean size of the relative errors"),
    _measure("max_absolute_relative_error", "", "Largest size of the relative errors"),
    Column("bias", "float", "", "Mean relative error; positive where estimates are too fast"),
    Column("spearman_correlation", "float", "", "Rank correlation of predicted and published"),
    *(
        Column(f"baseline_{name}", "float", "", f"{name} of the baseline, the mean of other rows")
        for name in (
            *("mean_absolute_relative_error", "max_absolute_relative_error", "bias"),
            "spearman_correlation",
        )
    ),
    _measure("speedup_of_best", "", "Time of the published layout over that of the best"),
    _positive("best_step_seconds", "seconds", "Time of the fastest layout that fits"),
    _text("best_strategy", "Strategy of the fastest layout that fits"),
    *(
        _count(f"best_{name}", f"{name} of the fastest layout that fits")
        for name in (
            *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
            *("pipeline_parallel", "virtual_pipeline", "microbatch_size"),
            *("nvlink_data_parallel", "nvlink_tensor_parallel", "nvlink_tensor_parallel_2"),
            *("nvlink_context_parallel", "nvlink_pipeline_parallel"),
        )
    ),
    Column("best_summa_panels", "int", "", "summa_panels of the fastest layout", minimum=0),
    _text("best_attention", "attention of the fastest layout that fits"),
    _text("best_layout", "The fastest layout that fits, in words; degrees of 1 may be left out"),
    _positive("best_memory_bytes", "bytes", "Memory of the fastest layout that fits"),
    _text("best_activation_recompute", "activation_recompute of the fastest layout that fits"),
    _text("published_best_layout", "The fastest layout that fits by the published formulas"),
    _positive("published_best_step_seconds", "seconds", "Published time of that layout"),
    _positive("published_best_memory_bytes", "bytes", "Published memory of that layout"),
    _count("num_published_layouts", "Layouts evaluated by the published formulas"),
    Column("num_published_fitting_layouts", "int", "", "Those of them that fit", minimum=0),
    Column("is_best_changed", "bool", "", "Whether the mends make another layout the fastest"),
    _positive("best_step_ratio", "", "best_step_seconds over published_best_step_seconds"),
    _positive("best_memory_ratio", "", "best_memory_bytes over published_best_memory_bytes"),
    _positive("same_layout_step_ratio", "", "Mended over published time of published_best_layout"),
    _positive("same_layout_memory_ratio", "", "The same ratio of its memory"),
    Column("fits_same_layout", "bool", "", "Whether published_best_layout fits under the mends"),
    Column("family_id", "int", "", "Points that differ in the system only", storage="BIGINT"),
    _text("attribute", "Attribute of the system that is swept"),
    Column("amount", "float", "", "Value of the attribute, in its unit"),
    _text("coupled_attributes", "The attribute with those that change together with it"),
    _text("swept_attributes", "Attributes that the study varies, with + between coupled ones"),
    _text("changed_attributes", "Attributes that are not those of the accelerator's system"),
    Column("elasticity", "float", "", "d ln(best_step_seconds) / d ln(amount)"),
    *(
        Column(f"{name}_elasticity", "float", "", f"d ln(best_step_seconds) / d ln({name})")
        for name in (column.name for column in _SYSTEM if column.kind != "str")
    ),
    Column("num_cells_done", "int", "cells", "Cells of the study that are stored", minimum=0),
    Column("num_rows_done", "int", "rows", "Rows of the study that are stored", minimum=0),
)

GROUPS: dict[str, tuple[Column, ...]] = {
    "Model": _MODEL,
    "System": _SYSTEM,
    "Problem": _PROBLEM,
    "Layout": _LAYOUT,
    "Results": _RESULTS,
    "Operations": _OPERATIONS,
    "Records": _RECORD,
    "Reference tables": _REFERENCE,
    "Views": _VIEWS,
}
"""The columns by what they describe, in order; a new group is a new entry."""

_ALL = tuple(column for group in GROUPS.values() for column in group)

COLUMNS: dict[str, Column] = {column.name: column for column in _ALL}
"""Every column by name."""

if len(COLUMNS) != len(_ALL):  # a name defined twice would silently lose its first meaning
    raise RuntimeError("estimators/columns.py defines a column twice")
