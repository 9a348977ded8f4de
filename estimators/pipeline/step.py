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

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.factored import Gathered, runs, take
from estimators.structure import Structure, equals, real

if TYPE_CHECKING:
    from collections.abc import Collection

    from estimators.contract import Array, Columns, Mends, Values
    from estimators.values import Flag, Real, Text

BITS_PER_BYTE = 8

OF_RUN = frozenset(
    {
        *("num_gpus", "layers_per_chunk", "bubble_layers", "matmul_internal_size"),
        *("matmul_hidden_size", "gradient_reduction_seconds"),
    }
)
"""Results with one element a run."""


@dataclass(frozen=True)
class Problem(Structure):
    """A mixture-of-experts transformer, its training, and a device."""

    source_version: Text
    num_layers: Real
    hidden_size: Real
    internal_size: Real
    num_experts: Real
    experts_per_token: Real
    dataset_tokens: Real
    global_batch_size: Real
    seq_len: Real
    precision_bits: Real
    flops_8bit_per_second: Real
    memory_bytes_per_second: Real
    network_bytes_per_second: Real
    base_utilization: Real
    mended_errata: Mends

    @property
    def is_readme(self) -> Flag:
        """Whether this is the README's version."""
        return equals(self.source_version, "readme")

    def mended(self, erratum: str) -> Flag:
        """Return where an erratum is mended: in the source's current version only."""
        return np.logical_and(~self.is_readme, erratum in self.mended_errata)

    @property
    def element_bytes(self) -> Real:
        """Bytes of an element."""
        return self.precision_bits / BITS_PER_BYTE

    def send_seconds(self, size: Real, ways: Real) -> Real:
        """Return the seconds to send and to receive `size` elements that `ways` devices share."""
        return 2 * (size / ways) * self.element_bytes / self.network_bytes_per_second


@dataclass(frozen=True)
class Degrees(Structure):
    """The degrees of a layout: all of it but the microbatch."""

    pipeline_parallel: Real
    data_parallel: Real
    tensor_parallel: Real
    tensor_parallel_external: Real
    virtual_pipeline: Real


@dataclass(frozen=True)
class Layouts:
    """Layouts, those that differ only in the microbatch as one run.

    Attributes
    ----------
    degrees
        Those of each run.
    microbatch
        Sequences of a microbatch of each row.
    to_run
        Row -> run; None: each row is one.
    """

    degrees: Degrees
    microbatch: Real
    to_run: Array | None

    def rows(self, figure: Real) -> Real:
        """Return the figures of runs, one for each row."""
        figures: Real = take(figure, self.to_run)
        return figures


def layouts_of(problem: Problem, columns: Columns) -> Layouts:
    """Return the layouts of a cell, or of a batch: there each row is a run."""
    microbatch = real(columns["microbatch_size"])
    if np.ndim(problem.seq_len):
        return Layouts(Degrees.of(columns), microbatch, None)
    degrees, to_run = runs(columns, [field.name for field in fields(Degrees)])
    return Layouts(Degrees.of(degrees), microbatch, to_run)


def figures(problem: Problem, layouts: Layouts, wanted: Collection[str]) -> dict[str, Any]:
    """Return results by their columns' names, among them all `wanted` ones; times in seconds."""
    size = sizes_of(problem, layouts)
    results = size | _times(problem, layouts, size)
    step = results["step_seconds"]
    if "utilization" in wanted:
        peak = size["num_gpus"] * problem.flops_8bit_per_second
        peak = layouts.rows(peak * (BITS_PER_BYTE / problem.precision_bits))
        results["utilization"] = size["step_flops"] / (peak * step)
    if "training_seconds" in wanted:
        results["training_seconds"] = size["num_steps"] * step
    results["total_flops"] = 6 * size["active_parameters"] * size["tokens"]
    results["flops_per_expert"] = results["total_flops"] / problem.num_experts
    return {
        name: Gathered(figure, layouts.to_run) if name in OF_RUN else figure
        for name, figure in results.items()
    }


def sizes_of(problem: Problem, layouts: Layouts) -> dict[str, Real]:
    """Return the counts of each layout."""
    degrees, experts = layouts.degrees, problem.num_experts
    per_expert = 2 * problem.num_layers * problem.hidden_size * problem.internal_size
    batch_tokens = problem.global_batch_size * problem.seq_len
    steps = np.floor_divide(problem.dataset_tokens, batch_tokens)
    stages, replicas = degrees.pipeline_parallel, degrees.data_parallel
    interval = problem.num_layers // (stages * degrees.virtual_pipeline)
    tensor = degrees.tensor_parallel * degrees.tensor_parallel_external
    routed_tokens = layouts.microbatch * problem.seq_len * problem.experts_per_token
    return {
        "parameters": experts * per_expert,
        "active_parameters": problem.experts_per_token * per_expert,
        "num_steps": steps,
        "tokens": steps * batch_tokens,
        "step_flops": 6 * problem.experts_per_token * per_expert * batch_tokens,
        "num_gpus": stages * replicas * tensor * experts,
        # of whole numbers below 2^53 this is `//`, which takes several times as long
        "num_microbatches": np.floor(problem.global_batch_size / layouts.microbatch),
        "layers_per_chunk": interval,
        "bubble_layers": (stages - 1) * interval,
        "matmul_tokens": np.floor(routed_tokens / layouts.rows(replicas * experts)),
        "matmul_internal_size": problem.internal_size // degrees.tensor_parallel,
        "matmul_hidden_size": problem.hidden_size // degrees.tensor_parallel_external,
        "internal_size": problem.internal_size,
    }


def _times(problem: Problem, layouts: Layouts, size: dict[str, Real]) -> dict[str, Real]:
    """Return the seconds of a step by part."""
    rows, stages = layouts.rows, layouts.degrees.pipeline_parallel
    product = _matmul_seconds(problem, layouts, size)
    per_layer, hop = _network(problem, layouts)
    experts, interval = problem.num_experts, size["layers_per_chunk"]
    # with one routed expert and no inner tensor parallelism only hops cost time
    is_routed_alone = np.equal(problem.experts_per_token * layouts.degrees.tensor_parallel, 1)
    is_routed_alone = is_routed_alone & (experts > 1)
    share = (experts - 1) / experts
    # P2: the bubble counts one side of a hop between stages, where the README's version and the
    # steady phase count both.
    sides = np.where(problem.is_readme | problem.mended("P2"), 2.0, 1.0)
    chunk = rows(interval) * (6 * product + per_layer) + sides * hop
    if np.any(is_routed_alone):
        stays = rows(np.where(is_routed_alone, 2 * share, 0.0)) * hop
        chunk = chunk + rows(interval - 1) * stays
    bubble = rows(stages - 1) * chunk
    passes = rows(problem.num_layers / stages) * size["num_microbatches"]
    compute = passes * 6 * product
    # P2: a token changes its expert in (e - 1)/e of the layers, and at the end of each chunk.
    crossings = np.where(is_routed_alone, 1.0, 1 / interval)
    mended = np.where(is_routed_alone, (1 + (interval - 1) * share) / interval, 1 / interval)
    crossings = np.where(problem.mended("P2"), mended, crossings)
    network = passes * (per_layer + rows(2 * crossings) * hop)
    steady = _chosen(problem.is_readme, compute, np.maximum(compute, network))
    replicas = layouts.degrees.data_parallel
    reduction = problem.send_seconds(size["parameters"], size["num_gpus"] // replicas)
    gradients = np.where(replicas > 1, reduction, 0.0)
    return {
        "matmul_seconds": product,
        "bubble_seconds": bubble,
        "steady_compute_seconds": compute,
        "steady_network_seconds": network,
        "steady_seconds": steady,
        "gradient_reduction_seconds": gradients,
        "step_seconds": bubble + steady + rows(gradients),
    }


def _matmul_seconds(problem: Problem, layouts: Layouts, size: dict[str, Real]) -> Real:
    """Return the seconds of one product of x by y weights with t tokens.

    ``max(2 x y t w / (u rate), (x y + y t + x t) w / (u memory rate))`` with w bytes an element, u
    the base utilization and the rate in 8 bits.
    """
    x, y, tokens = size["matmul_internal_size"], size["matmul_hidden_size"], size["matmul_tokens"]
    rows, width = layouts.rows, problem.element_bytes
    utilization = np.where(problem.is_readme, 1.0, problem.base_utilization)
    rate = utilization * problem.flops_8bit_per_second
    arithmetic = rows(2 * x * y) * tokens * width / rate
    # P1: as published, an element is taken for a byte.
    moved = rows(x * y) + rows(y) * tokens + rows(x) * tokens
    moved = np.where(problem.mended("P1"), width, 1.0) * moved
    memory = moved / (utilization * problem.memory_bytes_per_second)
    return np.maximum(arithmetic, memory)


def _network(problem: Problem, layouts: Layouts) -> tuple[Real, Real]:
    """Return the seconds of a layer's reductions in both passes, and of a hop.

    A reduction costs a send and a receive. With one routed expert and no inner tensor parallelism
    the residual stream is not reduced; a token that changes its expert hops.
    """
    tokens = layouts.microbatch * problem.seq_len
    replicas, tensor = layouts.degrees.data_parallel, layouts.degrees.tensor_parallel
    external, experts = layouts.degrees.tensor_parallel_external, problem.num_experts
    routed, rows = problem.experts_per_token, layouts.rows
    volume = tokens * problem.internal_size * routed
    internal = problem.send_seconds(volume, rows(replicas * tensor * experts))
    width = tokens * problem.hidden_size
    ways = np.floor_divide(replicas * external * experts, routed)
    residual = problem.send_seconds(width, rows(ways))
    hop = problem.send_seconds(width, rows(replicas * tensor * external * experts))
    reduces = np.where(rows(external) > 1, internal, 0.0)
    reduces = reduces + _chosen(np.greater(rows(routed * tensor), 1), residual, 0.0)
    return 2 * reduces, hop


def _chosen(which: Flag, one: Real, other: Real) -> Real:
    """Return ``np.where(which, one, other)``, at no cost where all rows choose alike."""
    if np.all(which):
        return one
    return np.where(which, one, other) if np.any(which) else other


def report(v: Values) -> list[str]:
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
