"""Reports in the form in which the estimators' sources print theirs, to compare line by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]

_AXES = {
    "TENSOR_EXT": "tensor_parallel_external",
    "DATA": "data_parallel",
    "TENSOR_INT": "tensor_parallel",
    "SEQ": "sequence_parallel",
    "EXP": "expert_parallel",
    "PIPE": "pipeline_parallel",
}
"""The source prints them in an order that changes from run to run; this is its README's."""

_METRICS = {
    "FLOP": "flops",
    "Tx": "sent_elements",
    "Rx": "received_elements",
    "net": "network_elements",
}


def dataflow_lines(v: Values) -> list[str]:
    """Return the lines that the source's README shows of a run."""
    sizes = v["efficient_microbatch_sizes"]
    among = f" (microbatch size must be in {sizes} to be efficient)" if sizes else ""
    axes = ", ".join(f"{axis}: {v[name]}" for axis, name in _AXES.items())
    lines = [
        f"N: {v['parameters']:.3e} ({v['effective_parameters']:.3e} effective)",
        f"D: {v['tokens']:.3e}",
        f"b: {v['global_batch_size']}{among}",
        f"P: {v['num_clusters']} = {{{axes}}}",
        "",
        "",
        "FULL TRAINING RUN COST",
        "".join([f"{'Metric':>10}", *(f"{way:>15}" for way in ("Fwd", "Bwd", "Total"))]),
    ]
    for metric, name in _METRICS.items():
        counted = (v[f"{way}_{name}"] for way in ("forward", "backward", "total"))
        lines.append("".join([f"{metric:>10}", *(f"{count:>15.3e}" for count in counted)]))
    if v["training_seconds"] is None:
        return lines
    lines += ["", f"Cluster FLOP/sec:    {v['cluster_flops_per_second']:.3e}"]
    lines += [f"Cluster bytes/sec:   {_rates(v, 'cluster')}", ""]
    lines += [f"Total FLOP/sec:      {v['fleet_flops_per_second']:.3e}"]
    lines += [f"Total bytes/sec:     {_rates(v, 'fleet')}", ""]
    return [*lines, f"Runtime:             {_duration(v['training_seconds'])}"]


def _rates(v: Values, who: str) -> str:
    sent, received, both = (
        v[f"{who}_{what}_bytes_per_second"] for what in ("sent", "received", "network")
    )
    return f"{both:.3e} ({sent:.3e} Tx, {received:.3e} Rx)"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def pipeline_lines(v: Values) -> list[str]:
    """Return the lines that the source's README shows of a run; the present program adds some."""
    is_readme = v["source_version"] == "readme"
    active = "" if is_readme else f" ({v['active_parameters']:.2e} per token)"
    phases = (
        ""
        if is_readme
        else f" (FLOP: {v['steady_compute_seconds']:9.4f} secs,"
        f" net: {v['steady_network_seconds']:9.4f} secs)"
    )
    return [
        f"Model Shape: {v['num_layers']} x ({v['hidden_size']} x {v['internal_size']})"
        f" (top {v['experts_per_token']} of {v['num_experts']} routing)",
        f"Parameters: {v['parameters']:.2e}{active}, Training Tokens: {v['tokens']:.2e}",
        f"{v['num_gpus']} {v['accelerator'] or 'device'}s",
        f"Pipeline steps: {v['pipeline_parallel']} stages x {v['virtual_pipeline']} interleaving;"
        f" boundary interval: {v['layers_per_chunk']}; bubble layers: {v['bubble_layers']}",
        f"FLOP per batch: {v['step_flops']:.2e}",
        "Matmuls per chip per layer: 2 matrices x 1 experts = 2",
        f"Matmul shape: {v['matmul_internal_size']} d_int x {v['matmul_hidden_size']} d_model"
        f" x {v['matmul_tokens']} tokens",
        "",
        "BATCH TIME",
        f"Pipeline bubble time: {v['bubble_seconds']:9.4f} secs",
        f"Pipeline full time:   {v['steady_seconds']:9.4f} secs{phases}",
        f"Gradient reduction:   {v['gradient_reduction_seconds']:9.4f} secs",
        f"Total batch time:     {v['step_seconds']:9.4f} secs",
        "",
        f"Utilization:          {v['utilization']:9.4f}",
        "",
        "TOTAL RUN TIME",
        f"{v['training_seconds'] / 86400:.1f} days",
    ]


SOURCE_LINES: Mapping[str, Callable[[Values], list[str]]] = {
    "dataflow": dataflow_lines,
    "pipeline": pipeline_lines,
}
"""Estimator -> its source's form, where it prints a report."""
