"""Columns of the pipeline estimator, some of them shared with run_optimizer."""

from __future__ import annotations

from estimators.columns.column import Column, count, measure, positive, text

PIPELINE = (
    text(
        "source_version",
        "Which version of the source's program: that of its README, or the current one",
        *("readme", "current"),
    ),
    Column(
        "precision_bits", "float", "bits", "Bits of one element", above=0, minimum=1, maximum=64
    ),
    positive("internal_ratio", "", "Internal width over the width of the residual stream"),
    count(
        "internal_size",
        "Internal width of a layer: feed-forward and attention heads together",
        storage="BIGINT",
    ),
    Column("is_in_readme", "bool", "", "Whether the source's README version has the device"),
    Column(
        "readme_network_bytes_per_second",
        "float",
        "bytes/s",
        "Network bandwidth of the device in the source's README version, both ways",
        above=0,
    ),
    count("layers_per_chunk", "Layers between two boundaries of the pipeline"),
    Column("bubble_layers", "int", "layers", "Layers that the bubble takes", minimum=0),
    count("matmul_tokens", "Tokens of one product on one device", "tokens", storage="BIGINT"),
    count("matmul_internal_size", "Internal columns of one product on one device"),
    count("matmul_hidden_size", "Residual columns of one product on one device"),
    measure("matmul_seconds", "seconds", "Time of one product on one device"),
    measure("steady_seconds", "seconds", "Part of the step: every stage at work"),
    measure("steady_compute_seconds", "seconds", "Arithmetic and memory of the steady phase"),
    measure("steady_network_seconds", "seconds", "Communication of the steady phase"),
    measure("gradient_reduction_seconds", "seconds", "All-reduce of the gradients of a step"),
    measure("flops_per_expert", "FLOP", "Operations of the whole run over the experts"),
)
