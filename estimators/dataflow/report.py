"""The report of a run in the form in which the source's program prints it."""

from __future__ import annotations

from estimators.contract import Values

_AXES = {
    "TENSOR_EXT": "tensor_parallel_external",
    "DATA": "data_parallel",
    "TENSOR_INT": "tensor_parallel",
    "SEQ": "sequence_parallel",
    "EXP": "expert_parallel",
    "PIPE": "pipeline_parallel",
}
"""Order of the source's README; its program prints them in an order that varies."""

_METRICS = {
    "FLOP": "flops",
    "Tx": "sent_elements",
    "Rx": "received_elements",
    "net": "network_elements",
}


def run_lines(v: Values) -> list[str]:
    """Return the lines that the README of the source shows for a run."""
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
