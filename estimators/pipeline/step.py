"""The time of a step: bubble, steady phase, gradient reduction.

``step = bubble + steady + gradients`` with, for p stages, i layers a chunk, L layers, b sequences
a batch and m a microbatch:

``bubble = (p - 1) (i (6 product + reductions) + hops)``,
``steady = L/p x b/m x max(6 product, reductions + hops)``,
``gradients = 2 x parameters / (GPUs / replicas) x bytes of one / network rate``.

Source: davidsj/ml_par_sim simple_transformer.py: the README's version @4a9489e and the current
one @520dcff. Its microbatch counts the sequences of all replicas.

The layouts of a cell come in runs that differ only in the microbatch. Figures that do not depend on
it are computed once a run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.contract import Array, Columns, Mends, Values
from estimators.factored import Gathered, runs, take
from estimators.pipeline.inputs import KEYS

BITS_PER_BYTE = 8

MICROBATCH = "microbatch_size"
RUN_KEYS = tuple(name for name in KEYS if name != MICROBATCH)


@dataclass(frozen=True)
class Case:
    """One problem or many, with the degrees of runs of layouts.

    Index it by name to read `values` or `degrees` as float64.

    Attributes
    ----------
    microbatch
        Size of the microbatch of each row.
    to_run
        Row -> run; None: each row is one.
    """

    values: Values
    degrees: Columns
    microbatch: Array
    to_run: Array | None
    mends: Mends

    def __getitem__(self, name: str) -> Any:
        source = self.degrees if name in self.degrees else self.values
        return np.asarray(source[name], dtype=np.float64)

    def rows(self, figure: Any) -> Any:
        """Return the figures of runs, one for each row."""
        return take(figure, self.to_run)

    @property
    def is_readme(self) -> Any:
        """Whether this is the README's version."""
        return np.equal(self.values["source_version"], "readme")

    def mended(self, mend: str) -> Any:
        """For each row whether `mend` applies: to the source's current version only."""
        return ~np.asarray(self.is_readme) & (mend in self.mends)


def case_of(values: Values, layouts: Columns, mends: Mends) -> Case:
    """Return the case of a cell's layouts, or of a batch's: there each row is a run."""
    microbatch = np.asarray(layouts[MICROBATCH], dtype=np.float64)
    if np.ndim(values["seq_len"]):
        return Case(values, {name: layouts[name] for name in RUN_KEYS}, microbatch, None, mends)
    degrees, to_run = runs(layouts, RUN_KEYS)
    return Case(values, degrees, microbatch, to_run, mends)


def figures(
    values: Values, layouts: Columns, mends: Mends, wanted: Collection[str]
) -> dict[str, Any]:
    """Return results by their columns' names, among them all `wanted` ones; times in seconds."""
    case = case_of(values, layouts, mends)
    found = sizes(case)
    found |= _times(case, found)
    steps, batch = found["num_steps"], found["step_seconds"]
    if "utilization" in wanted:
        peak = found["num_gpus"] * case["flops_8bit_per_second"]
        peak = case.rows(peak * (BITS_PER_BYTE / case["precision_bits"]))
        found["utilization"] = found["step_flops"] / (peak * batch)
    if "training_seconds" in wanted:
        found["training_seconds"] = steps * batch
    found["total_flops"] = 6 * found["active_parameters"] * found["tokens"]
    found["flops_per_expert"] = found["total_flops"] / case["num_experts"]
    return {
        name: Gathered(figure, case.to_run) if name in _OF_RUN else figure
        for name, figure in found.items()
    }


_OF_RUN = frozenset(
    {
        *("num_gpus", "layers_per_chunk", "bubble_layers", "matmul_internal_size"),
        *("matmul_hidden_size", "gradient_reduction_seconds"),
    }
)
"""Results with one element a run."""


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
    routed_tokens = case.microbatch * case["seq_len"] * routed
    return {
        "parameters": experts * per_expert,
        "active_parameters": routed * per_expert,
        "num_steps": steps,
        "tokens": steps * batch_tokens,
        "step_flops": 6 * routed * per_expert * batch_tokens,
        "num_gpus": stages * data * tensor * external * experts,
        # of whole numbers below 2^53 this is `//`, which takes several times as long
        "num_microbatches": np.floor(case["global_batch_size"] / case.microbatch),
        "layers_per_chunk": interval,
        "bubble_layers": (stages - 1) * interval,
        "matmul_tokens": np.floor(routed_tokens / case.rows(data * experts)),
        "matmul_internal_size": case["internal_size"] // tensor,
        "matmul_hidden_size": case["hidden_size"] // external,
        "internal_size": case["internal_size"],
    }


def _times(case: Case, size: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of a step by part."""
    rows, stages = case.rows, case["pipeline_parallel"]
    product = _matmul_seconds(case, size)
    per_layer, hop = _network(case)
    experts, interval = case["num_experts"], size["layers_per_chunk"]
    # with one routed expert and no inner tensor parallelism only hops cost time
    is_routed_alone = np.equal(case["experts_per_token"] * case["tensor_parallel"], 1)
    is_routed_alone = is_routed_alone & (experts > 1)
    share = (experts - 1) / experts
    # P2: the bubble counts one side of a hop between stages, where the README's version and the
    # steady phase count both.
    sides = np.where(case.is_readme | case.mended("P2"), 2.0, 1.0)
    each = rows(interval) * (6 * product + per_layer) + sides * hop
    if np.any(is_routed_alone):
        stays = np.where(rows(is_routed_alone), 2 * share * hop, 0.0)
        each = each + rows(interval - 1) * stays
    bubble = rows(stages - 1) * each
    passes = rows(case["num_layers"] / stages) * size["num_microbatches"]
    compute = passes * 6 * product
    # P2: a token changes its expert in (e - 1)/e of the layers, and at the end of each chunk.
    crossings = np.where(is_routed_alone, 1.0, 1 / interval)
    mended = np.where(is_routed_alone, (1 + (interval - 1) * share) / interval, 1 / interval)
    crossings = np.where(case.mended("P2"), mended, crossings)
    network = passes * (per_layer + rows(2 * crossings) * hop)
    steady = _chosen(case.is_readme, compute, np.maximum(compute, network))
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
        "step_seconds": bubble + steady + rows(gradients),
    }


def _matmul_seconds(case: Case, size: dict[str, Any]) -> Any:
    """Return the seconds of one product of x by y weights with t tokens.

    ``max(2 x y t w / (u rate), (x y + y t + x t) w / (u memory rate))`` with w bytes an element, u
    the base utilization and the rate in 8 bits.
    """
    x, y = size["matmul_internal_size"], size["matmul_hidden_size"]
    tokens, rows = size["matmul_tokens"], case.rows
    utilization = np.where(case.is_readme, 1.0, case["base_utilization"])
    elements_bytes = case["precision_bits"] / BITS_PER_BYTE
    rate = utilization * case["flops_8bit_per_second"]
    arithmetic = rows(2 * x * y) * tokens * elements_bytes / rate
    # P1: as published, an element is taken for a byte.
    width = np.where(case.mended("P1"), elements_bytes, 1.0)
    moved = width * (rows(x * y) + rows(y) * tokens + rows(x) * tokens)
    memory = moved / (utilization * case["memory_bytes_per_second"])
    return np.maximum(arithmetic, memory)


def _network(case: Case) -> tuple[Any, Any]:
    """Return the seconds of a layer's reductions in both passes, and of a hop.

    A reduction costs a send and a receive. With one routed expert and no inner tensor parallelism
    the residual stream is not reduced; a token that changes its expert hops.
    """
    sequence_tokens = case.microbatch * case["seq_len"]
    data, tensor = case["data_parallel"], case["tensor_parallel"]
    external, experts = case["tensor_parallel_external"], case["num_experts"]
    routed, rows = case["experts_per_token"], case.rows
    volume = sequence_tokens * case["internal_size"] * routed
    internal = _send_seconds(case, volume, rows(data * tensor * experts))
    ways = np.floor_divide(data * external * experts, routed)
    width = sequence_tokens * case["hidden_size"]
    residual = _send_seconds(case, width, rows(ways))
    hop = _send_seconds(case, width, rows(data * tensor * external * experts))
    reduces = np.where(rows(external > 1), internal, 0.0)
    reduces = reduces + _chosen(rows(routed * tensor > 1), residual, 0.0)
    return 2 * reduces, hop


def _send_seconds(case: Case, size: Any, ways: Any) -> Any:
    """Return the seconds to send and to receive `size` elements that `ways` devices share."""
    element_bytes = case["precision_bits"] / BITS_PER_BYTE
    return 2 * (size / ways) * element_bytes / case["network_bytes_per_second"]


def _chosen(which: Any, one: Any, other: Any) -> Any:
    """Return ``np.where(which, one, other)``, at no cost where all rows choose alike."""
    if np.all(which):
        return one
    return np.where(which, one, other) if np.any(which) else other
