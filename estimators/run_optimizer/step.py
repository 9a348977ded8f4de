"""Model, batch and time of a step at given degrees, whole or real.

Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41. A run of C FLOPs has sqrt(C / 120)
parameters and 20 tokens a parameter (6 FLOPs a parameter and token; arXiv 2203.15556). Layers and
batch grow with the sixth root of C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Columns, Values

REFERENCE_FLOPS = 1e25
REFERENCE_LAYERS = 120.0
REFERENCE_BATCH_TOKENS = 2048.0**2
TOKENS_PER_PARAMETER = 20.0
"""The source's laws: batch and layers of a run of `REFERENCE_FLOPS`."""

DEGREES = (
    "pipeline_parallel",
    "data_parallel",
    "tensor_parallel",
    "tensor_parallel_external",
)
RESOURCES = ("compute", "memory", "network")
PHASES = ("boundary", "sustained_dp", "sustained_no_dp", "bubble")


def model_of(values: Values) -> dict[str, Any]:
    """Return the compute-optimal model of a run: parameters, tokens, batch, layers, width."""
    flops = np.asarray(values["training_flops"], dtype=np.float64)
    parameters = np.sqrt(flops / (6 * TOKENS_PER_PARAMETER))
    growth = (flops / REFERENCE_FLOPS) ** (1 / 6)
    layers = REFERENCE_LAYERS * growth
    return {
        "parameters": parameters,
        "tokens": TOKENS_PER_PARAMETER * parameters,
        "batch_tokens": REFERENCE_BATCH_TOKENS * growth,
        "num_layers": layers,
        "hidden_size": np.sqrt(parameters / (2 * values["internal_ratio"] * layers)),
    }


def reduced_words(values: Values, size: Any, ranks: Any) -> Any:
    """Return the words that a device moves in an all-reduce over `ranks` devices.

    ``3 (p - 1) size / p``, or ``2 (p - 1) size / p`` if the network adds up (`reduces_in_network`).
    """
    factor = np.where(np.asarray(values["reduces_in_network"], dtype=bool), 2.0, 3.0)
    return factor * (ranks - 1) * size / ranks


def layer_seconds(
    values: Values, degrees: Columns, model: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return seconds by resource: of a layer for a batch in one microbatch, and of its gradients.

    Each of m microbatches takes an m-th of the arithmetic and of the communication, and the whole
    memory traffic, which is that of the weights.
    """
    data, hidden = degrees["data_parallel"], degrees["tensor_parallel"]
    external = degrees["tensor_parallel_external"]
    ratio, width = values["internal_ratio"], values["bytes_per_element"]
    size = ratio * model["hidden_size"] ** 2 / (hidden * external)
    tokens = model["batch_tokens"] / data
    compute = values["base_utilization"] * np.asarray(values["flops_8bit_per_second"])
    memory = values["base_utilization"] * np.asarray(values["memory_bytes_per_second"])
    network = np.asarray(values["network_bytes_per_second"])
    activations = reduced_words(
        values, ratio * model["hidden_size"] * tokens / hidden, external
    ) + reduced_words(values, model["hidden_size"] * tokens / external, hidden)
    gradients = reduced_words(values, size, data)
    batch = {
        "compute": 6 * size * tokens * width / compute,
        "memory": 4 * size * width / memory,
        "network": activations * width / network,
    }
    sync = {
        "compute": np.zeros(1),
        "memory": gradients * width / memory,
        "network": gradients * width / network,
    }
    return batch, sync


def largest(parts: dict[str, Any]) -> Any:
    """Return the time of the resource that takes longest."""
    return np.maximum(np.maximum(parts["compute"], parts["memory"]), parts["network"])


def step_of(
    values: Values, layouts: Columns, model: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the time of a step and its parts by phase and resource, in seconds.

    A phase takes as long as its slowest resource; the phases follow one another. With a layer's
    seconds s of a microbatch and g of its gradients, K layers both ways on a stage (2 L / p), m
    microbatches and p stages: boundary ``s + g``; sustained_dp ``(K - 1) (m s + g)``;
    sustained_no_dp ``(m - 1) s``; bubble ``2 (p - 1) s``.
    """
    model = model or model_of(values)
    degrees = {n: np.asarray(layouts[n], dtype=np.float64) for n in DEGREES}
    microbatches = np.asarray(layouts["num_microbatches"], dtype=np.float64)
    batch, sync = layer_seconds(values, degrees, model)
    step = {
        "compute": batch["compute"] / microbatches,
        "memory": batch["memory"],
        "network": batch["network"] / microbatches,
    }
    stages = degrees["pipeline_parallel"]
    others = 2 * model["num_layers"] / stages - 1
    phases = {
        "boundary": {n: step[n] + sync[n] for n in RESOURCES},
        "sustained_dp": {n: others * (microbatches * step[n] + sync[n]) for n in RESOURCES},
        "sustained_no_dp": {n: (microbatches - 1) * step[n] for n in RESOURCES},
        "bubble": {n: 2 * (stages - 1) * step[n] for n in RESOURCES},
    }
    found = {f"{p}_{n}_seconds": phases[p][n] for p in PHASES for n in RESOURCES}
    found["step_seconds"] = sum(largest(phases[phase]) for phase in PHASES)
    return found


def figures(values: Values, layouts: Columns) -> dict[str, Any]:
    """Return every result by its column's name."""
    model = model_of(values)
    found = model | step_of(values, layouts, model)
    devices = np.ones(1)
    for name in DEGREES:
        devices = devices * layouts[name]
    found["num_gpus"] = devices
    found["training_seconds"] = model["tokens"] / model["batch_tokens"] * found["step_seconds"]
    peak = np.asarray(values["flops_8bit_per_second"]) / values["bytes_per_element"]
    found["utilization"] = values["training_flops"] / (found["training_seconds"] * devices * peak)
    return found
