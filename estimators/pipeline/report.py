"""The report of a run in the form in which the source's program prints it."""

from __future__ import annotations

from estimators.contract import Values


def run_lines(v: Values) -> list[str]:
    """Return the lines that the source prints for a run; its current program adds to them."""
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
