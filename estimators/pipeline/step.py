"""The time of a step: bubble, steady phase, gradient reduction.

Source: davidsj/ml_par_sim simple_transformer.py: the README's version @4a9489e and the current
one @520dcff. Symbols: m sequences of a microbatch over all replicas, l sequence length, k of e
experts a token, d and D the residual and internal width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.contract import Columns, Mends, Values

BITS_PER_BYTE = 8


@dataclass(frozen=True)
class Case:
    """One problem or many, with the degrees of its layouts as float64 arrays.

    `values` and `layouts` are read through `[]`; `mended(id)` says for each row whether a mend
    applies: to the current version only.
    """

    values: Values
    layouts: Columns
    mends: Mends

    def __getitem__(self, name: str) -> Any:
        source = self.layouts if name in self.layouts else self.values
        return np.asarray(source[name], dtype=np.float64)

    @property
    def is_readme(self) -> Any:
        """Whether the README's version is meant."""
        return np.equal(self.values["source_version"], "readme")

    def mended(self, mend: str) -> Any:
        """Whether `mend` changes the formulas."""
        return ~np.asarray(self.is_readme) & (mend in self.mends)


def figures(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return every result by its column's name; times in seconds."""
    case = Case(values, layouts, mends)
    found = sizes(case)
    found |= _times(case, found)
    steps, batch = found["num_steps"], found["step_seconds"]
    peak = found["num_gpus"] * case["flops_8bit_per_second"]
    peak = peak * (BITS_PER_BYTE / case["precision_bits"])
    found["utilization"] = found["step_flops"] / (peak * batch)
    found["training_seconds"] = steps * batch
    found["total_flops"] = 6 * found["active_parameters"] * found["tokens"]
    found["flops_per_expert"] = found["total_flops"] / case["num_experts"]
    return found


def sizes(case: Case) -> dict[str, Any]:
    """Return the counts: parameters, tokens, steps, shapes of products."""
    experts, routed = case["num_experts"], case["experts_per_token"]
    per_expert = 2 * case["num_layers"] * case["hidden_size"] * case["internal_size"]
    batch_tokens = case["global_batch_size"] * case["seq_len"]
    steps = np.floor_divide(case["dataset_tokens"], batch_tokens)
    stages, chunks = case["pipeline_parallel"], case["virtual_pipeline"]
    interval = case["num_layers"] // (stages * chunks)
    tensor, external = case["tensor_parallel"], case["tensor_parallel_external"]
    data = case["data_parallel"]
    routed_tokens = case["microbatch_size"] * case["seq_len"] * routed
    return {
        "parameters": experts * per_expert,
        "active_parameters": routed * per_expert,
        "num_steps": steps,
        "tokens": steps * batch_tokens,
        "step_flops": 6 * routed * per_expert * batch_tokens,
        "num_gpus": stages * data * tensor * external * experts,
        "num_microbatches": case["global_batch_size"] // case["microbatch_size"],
        "layers_per_chunk": interval,
        "bubble_layers": (stages - 1) * interval,
        "matmul_tokens": routed_tokens // (data * experts),
        "matmul_internal_size": case["internal_size"] // tensor,
        "matmul_hidden_size": case["hidden_size"] // external,
        "internal_size": case["internal_size"],
    }


def _times(case: Case, size: dict[str, Any]) -> dict[str, Any]:
    product = _matmul_seconds(case, size)
    per_layer, hop, is_routed_alone = _network(case)
    experts, interval = case["num_experts"], size["layers_per_chunk"]
    share = (experts - 1) / experts
    stays = np.where(is_routed_alone, 2 * share * hop, 0.0)
    # P2: the bubble counts one side of a hop between stages, where the README's version and the
    # steady phase count both.
    sides = np.where(case.is_readme | case.mended("P2"), 2.0, 1.0)
    bubble = (case["pipeline_parallel"] - 1) * (
        interval * (6 * product + per_layer) + sides * hop + (interval - 1) * stays
    )
    passes = case["num_layers"] / case["pipeline_parallel"] * size["num_microbatches"]
    compute = passes * 6 * product
    # P2: an expert is left behind in a share of the layers, but for those that end a chunk.
    crossings = np.where(is_routed_alone, 1.0, 1 / interval)
    mended = np.where(is_routed_alone, (1 + (interval - 1) * share) / interval, 1 / interval)
    crossings = np.where(case.mended("P2"), mended, crossings)
    network = passes * (per_layer + 2 * crossings * hop)
    steady = np.where(case.is_readme, compute, np.maximum(compute, network))
    data = case["data_parallel"]
    ways = size["num_gpus"] // data
    gradients = np.where(data > 1, _send_seconds(case, size["parameters"], ways), 0.0)
    return {
        "matmul_seconds": product,
        "bubble_seconds": bubble,
        "steady_compute_seconds": compute,
        "steady_network_seconds": network,
        "steady_seconds": steady,
        "gradient_reduction_seconds": gradients,
        "step_seconds": bubble + steady + gradients,
    }


def _matmul_seconds(case: Case, size: dict[str, Any]) -> Any:
    """Return the time of one product: arithmetic or memory, whichever takes longer."""
    x, y, t = (size[f"matmul_{name}"] for name in ("internal_size", "hidden_size", "tokens"))
    utilization = np.where(case.is_readme, 1.0, case["base_utilization"])
    elements_bytes = case["precision_bits"] / BITS_PER_BYTE
    arithmetic = 2 * x * y * t * elements_bytes / (utilization * case["flops_8bit_per_second"])
    # P1: as published, an element is taken for a byte.
    width = np.where(case.mended("P1"), elements_bytes, 1.0)
    moved = width * (x * y + y * t + x * t)
    memory = moved / (utilization * case["memory_bytes_per_second"])
    return np.maximum(arithmetic, memory)


def _network(case: Case) -> tuple[Any, Any, Any]:
    """Return seconds of a layer's reductions both passes, of a hop, and whether hops cost alone.

    A reduction over the fabric costs a send and a receive. With one routed expert and no inner
    tensor parallelism nothing reduces, and a token that changes expert hops.
    """
    sequence_tokens = case["microbatch_size"] * case["seq_len"]
    data, tensor = case["data_parallel"], case["tensor_parallel"]
    external, experts = case["tensor_parallel_external"], case["num_experts"]
    routed = case["experts_per_token"]
    internal = np.where(
        external > 1,
        _send_seconds(
            case, sequence_tokens * case["internal_size"] * routed, data * tensor * experts
        ),
        0.0,
    )
    ways = np.floor_divide(data * external * experts, routed)
    width = sequence_tokens * case["hidden_size"]
    residual = np.where(routed * tensor > 1, _send_seconds(case, width, ways), 0.0)
    hop = _send_seconds(case, width, data * tensor * external * experts)
    return 2 * (internal + residual), hop, np.equal(routed * tensor, 1) & (experts > 1)


def _send_seconds(case: Case, size: Any, ways: Any) -> Any:
    """Return the time to send and receive `size` elements that `ways` devices share."""
    element_bytes = case["precision_bits"] / BITS_PER_BYTE
    return 2 * (size / ways) * element_bytes / case["network_bytes_per_second"]
