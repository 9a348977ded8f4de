"""Columns of single operations of a step."""

from __future__ import annotations

from estimators.columns.column import Column, count, fraction, measure, text

_TRANSFER_SECONDS = "; of a transfer between layers: in the step"

OPERATIONS = (
    text(
        "operation",
        "Operation of a step: of a layer, between replicas, or between stages",
        *("fc1", "fc1_bias", "activation", "ffn_dropout", "fc2", "fc2_bias"),
        *("ffn_output_dropout", "layer_norm_1", "qkv", "attention", "logits", "softmax"),
        *("attention_dropout", "attend", "projection", "projection_bias"),
        *("attention_output_dropout", "layer_norm_2"),
        *("data_parallel_exchange", "pipeline_transfer"),
    ),
    Column("operation_index", "int", "", "Place of the operation in the step", minimum=0),
    text(
        "part",
        "Part of the step that the operation belongs to",
        *("feed_forward", "attention", "data", "pipeline"),
    ),
    Column("uses_matrix_units", "bool", "", "Whether matrix units do most of the work"),
    *(
        column
        for way in ("forward", "backward")
        for column in (
            measure(f"{way}_flops", "FLOP", f"Operations of the {way} pass"),
            measure(f"{way}_hbm_bytes", "bytes", f"Read and written in the {way} pass"),
            measure(
                f"{way}_comm_bytes",
                "bytes",
                f"Volume of the collectives of the {way} pass; a group of one moves none of it",
            ),
            text(
                f"{way}_collectives",
                f"Collectives of the {way} pass, joined by +",
                heading=way,
            ),
            measure(f"{way}_seconds", "seconds", f"Time of the {way} pass{_TRANSFER_SECONDS}"),
            measure(
                f"{way}_compute_seconds", "seconds", f"Arithmetic and launch in the {way} pass"
            ),
            measure(
                f"{way}_memory_seconds",
                "seconds",
                f"Memory traffic beyond arithmetic in the {way} pass",
            ),
            measure(
                f"{way}_comm_seconds",
                "seconds",
                f"Exposed communication in the {way} pass{_TRANSFER_SECONDS}",
            ),
        )
    ),
    count(
        "comm_group_size",
        "GPUs of the group that collectives run over; 1: none",
        "GPUs",
        heading="group",
    ),
    count(
        "nvlink_comm_group", "GPUs of that group in one NVLink domain", "GPUs", heading="in domain"
    ),
    count(
        "comm_group_size_2",
        "The same of collectives over the second axis",
        "GPUs",
        heading="group 2",
    ),
    count(
        "nvlink_comm_group_2",
        "GPUs of that group in one NVLink domain",
        "GPUs",
        heading="in domain 2",
    ),
    count("layers_per_stage", "Transformer layers on one GPU"),
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
    measure("operation_seconds", "seconds", "Part of the step: the operation, both passes"),
    measure("comm_seconds", "seconds", "Part of the step: exposed communication"),
    measure("hbm_traffic_bytes", "bytes", "Read and written by one GPU in one step"),
    measure("comm_bytes", "bytes", "Volume of collectives of one GPU in one step"),
    fraction("step_fraction", "Share of the step that is operation_seconds"),
    count("operation_rank", "Rank among the operations of the step by time, longest first"),
    text(
        "binding_resource",
        "Resource that most of the operation's time waits for",
        *("compute", "memory", "network"),
        heading="waits for",
    ),
)
