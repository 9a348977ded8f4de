"""Columns of the dataflow estimator and of the views over its traffic."""

from __future__ import annotations

from estimators.columns.column import Column, count, measure, positive, rate, text
from estimators.columns.forms import DAYS, PLAIN
from estimators.columns.layout import best_of


def _flag(name: str, meaning: str) -> Column:
    return Column(name, "bool", "", meaning)


_WAYS = {"sent": "sent", "received": "received", "network": "sent and received"}

DATAFLOW = (
    _flag("use_glu", "Whether the feed-forward layer is gated: dataflow's spelling"),
    _flag("multi_query_attention", "Whether all heads share one key and value head"),
    _flag("sequential_attention_ffn", "Whether the feed-forward layer waits for attention"),
    _flag("skip_efficiency_check", "Whether layouts that the efficiency rules exclude are allowed"),
    _flag("forward_only", "Whether rates and time count the forward pass only"),
    positive("ffn_ratio", "", "Width of the feed-forward layer over that of the residual stream"),
    positive("attention_width_ratio", "", "Width of all heads over that of the residual stream"),
    rate("cluster_flops_per_second", "FLOP/s", "Rate of one cluster, as reached"),
    count("gpus_per_cluster", "GPUs of one cluster", "GPUs"),
    count(
        "network_bytes_per_element", "Bytes of one element on the network", "bytes", shown_as=PLAIN
    ),
    positive("effective_parameters", "", "Parameters that one token meets: one expert's"),
    count("resolved_ffn_hidden_size", "Width of the feed-forward layer, defaults applied"),
    count("resolved_num_heads", "Attention heads, defaults applied"),
    text(
        "efficient_microbatch_sizes",
        "Microbatch sizes, in sequences of all replicas, that the efficiency rules admit",
    ),
    *(
        measure(f"{way}_{what}_elements", "elements", f"Elements {words}, {whole}, all clusters")
        for way, whole in (
            ("forward", "forward passes of the run"),
            ("backward", "backward passes of the run"),
            ("total", "whole run"),
        )
        for what, words in _WAYS.items()
    ),
    *(
        measure(
            f"{who}_{what}_bytes_per_second",
            "bytes/s",
            f"Bytes {words} by {whom} at its rate",
            is_optional=(who, what) == ("cluster", "network"),
        )
        for who, whom in (("cluster", "one cluster"), ("fleet", "all clusters"))
        for what, words in _WAYS.items()
    ),
    measure("fleet_flops_per_second", "FLOP/s", "Rate of all clusters"),
    *(
        measure(
            f"{what}_bytes_per_flop",
            "bytes/FLOP",
            f"Bytes {words} over the FLOPs",
            is_optional=what == "network",
        )
        for what, words in _WAYS.items()
    ),
    positive("available_bytes_per_second", "bytes/s", "Bandwidth of one cluster, both ways"),
    Column("is_network_bound", "bool", "", "Whether the network takes longer than the FLOPs"),
    measure("slowdown", "", "Time over the time with an infinitely fast network"),
    count(
        "rank_by_traffic",
        "Rank among the layouts of the problem, and same recomputation, by bytes per FLOP",
    ),
    count("rank_by_elements", "The same rank by elements moved in the whole run"),
    *(
        best_of(name, f"{name} of the best layout")
        for name in ("expert_parallel", "sequence_parallel", "tensor_parallel_external")
    ),
    measure("best_network_bytes_per_flop", "bytes/FLOP", "Bytes per FLOP of the best layout"),
    measure(
        "best_training_seconds", "seconds", "Time of the run with the best layout", shown_as=DAYS
    ),
    measure("required_bytes_per_second", "bytes/s", "Bandwidth at which no cluster waits"),
)
