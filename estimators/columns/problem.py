"""Columns of a problem: model, system, device, run."""

from __future__ import annotations

from estimators.columns.column import (
    PAPER,
    Column,
    count,
    efficiency,
    latency,
    positive,
    rate,
    text,
)
from estimators.columns.forms import DATASET_TOKENS, PLAIN, UTILIZATION

MODEL = (
    text("model", "Name of the model", is_optional=True),
    count("num_layers", "Transformer layers"),
    count("hidden_size", "Width of the residual stream"),
    count("ffn_hidden_size", "Width of the feed-forward layer"),
    count("num_heads", "Attention (query) heads"),
    count("num_kv_heads", "Key and value heads"),
    count("seq_len", "Sequence length", "tokens"),
    count("vocab_size", "Vocabulary entries; NULL where the model leaves the vocabulary out"),
    positive("parameters", "", "Parameters of the model"),
    positive("active_parameters", "", "Parameters that one token passes through"),
    count("num_experts", "Experts of a mixture; 1: dense"),
    count("experts_per_token", "Experts that a token is routed to"),
)

SYSTEM = (
    text(
        "accelerator", "Name of the system: an accelerator with its two networks", is_optional=True
    ),
    count(
        "nvlink_size",
        "GPUs in one fast (NVLink) domain",
        "GPUs",
        heading="domain",
        is_optional=True,
    ),
    rate("matrix_flops_per_second", "FLOP/s", "Peak rate of matrix units"),
    rate("vector_flops_per_second", "FLOP/s", "Peak rate of vector units"),
    rate("hbm_bytes_per_second", "bytes/s", "Memory bandwidth of one GPU"),
    rate("hbm_bytes", "bytes", "Memory capacity of one GPU"),
    rate("nvlink_bytes_per_second", "bytes/s", "Fast-domain bandwidth of one GPU, one way"),
    efficiency("nvlink_efficiency", "Share of NVLink bandwidth reached"),
    latency("nvlink_latency_seconds", "Latency of one hop in the fast domain"),
    rate(
        "network_bytes_per_second",
        "bytes/s",
        "Bandwidth of one network card, one way; of a device: both ways",
    ),
    efficiency("network_efficiency", "Share of network bandwidth reached"),
    latency("network_latency_seconds", "Latency of one hop between domains"),
    Column("nics_per_gpu", "float", "", "Network cards per GPU", minimum=1e-6, maximum=1e6),
    efficiency("flops_efficiency", "Share of peak FLOP/s reached", PAPER),
    latency("launch_seconds", "Fixed time of one operation in one direction", PAPER),
    text("assumed", "Columns of this row whose values are assumed, not published"),
)

PROBLEM = (
    count("num_gpus", "GPUs of the run", "GPUs", heading="GPUs", is_optional=True),
    count(
        "global_batch_size",
        "Sequences of one step over the whole run",
        "sequences",
        heading="batch",
        is_optional=True,
    ),
    count(
        "bytes_per_element",
        "Bytes of one weight, activation or gradient element",
        "bytes",
        shown_as=PLAIN,
    ),
    count(
        "num_clusters",
        "Clusters of the run: units with a network between them",
        "clusters",
        heading="clusters",
        is_optional=True,
    ),
    positive("dataset_tokens", "tokens", "Tokens of the data set", shown_as=DATASET_TOKENS),
)

DEVICE = (
    rate("flops_8bit_per_second", "FLOP/s", "Peak rate in 8 bits of a device", shown_as=PLAIN),
    rate("memory_bytes_per_second", "bytes/s", "Memory bandwidth of a device"),
    efficiency(
        "base_utilization", "Share of a device's peak rates reached at best", shown_as=UTILIZATION
    ),
)
