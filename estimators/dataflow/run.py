"""The closed form: FLOPs and elements of a token and layer, and of the whole run.

Source: davidsj/ml_par_sim transformer.py and lib.py @520dcff, whose counting the formulas sum up.
Symbols: S sequence length, E experts, d residual width, f feed-forward width, h width of a head, a
heads, A = a h; degrees: delta data, pi pipeline, eps expert, sigma sequence, ti inner tensor (heads
and feed-forward), te outer tensor (residual width).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.dataflow.rules import fewest, most, replica_batch
from estimators.divisors import divisors
from estimators.structure import Structure, equals

if TYPE_CHECKING:
    from estimators.contract import Array, Columns, Values
    from estimators.values import Flag, Real, Text

RESOURCES = ("flops", "sent_elements", "received_elements")
"""Counted forward and backward."""


@dataclass(frozen=True)
class Problem(Structure):
    """A transformer, its training, and the rate of a cluster."""

    num_experts: Real
    seq_len: Real
    num_layers: Real
    hidden_size: Real
    ffn_hidden_size: Real
    num_heads: Real
    head_size: Real
    use_glu: Flag
    multi_query_attention: Flag
    sequential_attention_ffn: Flag
    global_batch_size: Real
    dataset_tokens: Real
    activation_recompute: Text
    forward_only: Flag
    network_bytes_per_element: Real
    cluster_flops_per_second: Real

    @property
    def attention_width(self) -> Real:
        """A: the width of all heads."""
        return self.num_heads * self.head_size

    @property
    def gates(self) -> Real:
        """Matrices into the feed-forward layer."""
        return np.where(self.use_glu, 2.0, 1.0)

    @property
    def batch_tokens(self) -> Real:
        """Tokens of one batch."""
        return self.global_batch_size * self.seq_len

    @property
    def num_steps(self) -> Real:
        """Steps of the run: batches in the data set, half rounded to even."""
        return np.rint(self.dataset_tokens / self.batch_tokens)


@dataclass(frozen=True)
class Degrees(Structure):
    """The degrees of parallelism."""

    data_parallel: Real
    pipeline_parallel: Real
    expert_parallel: Real
    sequence_parallel: Real
    tensor_parallel: Real
    tensor_parallel_external: Real

    @property
    def num_clusters(self) -> Real:
        """Product of the degrees."""
        outside = self.data_parallel * self.pipeline_parallel * self.groups
        return outside * self.tensor_parallel * self.tensor_parallel_external

    @property
    def groups(self) -> Real:
        """Ranks that share the tokens of a layer: eps sigma."""
        return self.expert_parallel * self.sequence_parallel

    def hops(self, num_layers: Real) -> Real:
        """Return beta, the share of layers after which a token leaves its rank.

        ``1 - (1 - (pi - 1) / layers) / eps``.
        """
        stays = 1 - (self.pipeline_parallel - 1) / num_layers
        return 1 - stays / self.expert_parallel


class Counts(NamedTuple):
    """Work of one token and layer, forward and backward, and of the weights of a layer.

    Attributes
    ----------
    forward_flops, backward_flops
        Per token and layer, all clusters.
    forward_sent, backward_sent, received
        Elements per token and layer, all clusters; both passes receive as many.
    weights
        Parameters of a layer, all experts.
    weights_moved
        Elements of a layer that a batch reduces backward (one FLOP each), and receives forward.
    weights_sent
        Elements of a layer that a batch sends forward, counted once for any number of receivers.
    """

    forward_flops: Real
    backward_flops: Real
    forward_sent: Real
    backward_sent: Real
    received: Real
    weights: Real
    weights_moved: Real
    weights_sent: Real


def counts_of(problem: Problem, degrees: Degrees) -> Counts:
    """Return the counts of a layer."""
    return Counts(
        *_flops(problem, degrees), *_traffic(problem, degrees), *_weights(problem, degrees)
    )


def _spread_keys(problem: Problem, degrees: Degrees) -> Real:
    """Return the width of the keys on all ranks of ti; shared keys are on each."""
    shared = problem.head_size * degrees.tensor_parallel
    return np.where(problem.multi_query_attention, shared, problem.attention_width)


def _reduced_back(problem: Problem, degrees: Degrees) -> Real:
    """Return phi: how often the residual stream is summed over ti, and leaves its rank."""
    inner = degrees.tensor_parallel - 1
    sums = np.where(problem.sequential_attention_ffn, inner, 0.0)
    return inner + degrees.hops(problem.num_layers) + sums


def _flops(problem: Problem, degrees: Degrees) -> tuple[Real, Real]:
    """Return the FLOPs of a token and layer, forward and backward, on all clusters.

    Forward: products of queries, keys, values and the feed-forward input, 2 d - 1 an element;
    scores, softmax, attended values; both projections back to the residual stream, summed over ti.
    Backward: two products for each forward one, and sums over te, eps sigma and ti.
    """
    attention, g, spread = problem.attention_width, problem.gates, _spread_keys(problem, degrees)
    d, f, heads = problem.hidden_size, problem.ffn_hidden_size, problem.num_heads
    length, te = problem.seq_len, degrees.tensor_parallel_external
    forward = (
        (attention + 2 * spread + g * f) * (2 * d - 1)
        + length * (2 * attention - heads)
        + (heads + attention) * (2 * length - 1)
        + d * (2 * attention - heads)
        + d * f
        + (g - 1) * f * te
        + d * (heads + f - np.where(problem.sequential_attention_ffn, 2.0, 1.0))
    )
    products = (
        d * (2 * attention + 2 * spread + (g + 1) * f)
        + length * (2 * attention + heads)
        + (g - 1) * f * te
    )
    gathered = 2 * attention + heads + g * f
    backward = (
        4 * products
        + gathered * (te - 1)
        + 2 * spread * (degrees.groups - 1)
        + d * _reduced_back(problem, degrees)
    )
    return forward, backward


def _traffic(problem: Problem, degrees: Degrees) -> tuple[Real, Real, Real]:
    """Return elements of a token and layer: sent forward, sent backward, received each way."""
    attention, g, spread = problem.attention_width, problem.gates, _spread_keys(problem, degrees)
    d, f, heads = problem.hidden_size, problem.ffn_hidden_size, problem.num_heads
    te, ti, groups = degrees.tensor_parallel_external, degrees.tensor_parallel, degrees.groups
    serial = problem.sequential_attention_ffn
    kept = np.where(problem.multi_query_attention, problem.head_size, attention)
    reduced = 2 * attention + 2 * spread + heads + g * f
    gathered = 2 * attention + heads + g * f
    sums = np.where(serial, 2.0, 1.0)
    sent = (
        reduced * (te - 1)
        + gathered * (te > 1)
        + 2 * kept * (groups > 1)
        + sums * d * (ti - 1)
        + d * np.maximum(ti > 1, degrees.hops(problem.num_layers))
        + np.where(serial, d * (ti > 1), 0.0)
    )
    back = d * _reduced_back(problem, degrees)
    keys = 2 * spread * (groups - 1)
    received = (reduced + gathered) * (te - 1) + keys + sums * d * (ti - 1) + back
    returned = reduced * (te > 1) + gathered * (te - 1) + keys + sums * d * (ti > 1) + back
    return sent, returned, received


def _weights(problem: Problem, degrees: Degrees) -> tuple[Real, Real, Real]:
    """Return parameters of a layer, elements that reductions move, elements sent once."""
    attention, d, experts = problem.attention_width, problem.hidden_size, problem.num_experts
    shared = problem.multi_query_attention
    ffn = (1 + problem.gates) * problem.ffn_hidden_size
    matrices = experts * d * (2 * attention + ffn + np.where(shared, 0.0, 2 * attention))
    keys = np.where(shared, 2 * experts * d * problem.head_size, 0.0)
    copies = degrees.data_parallel * degrees.sequence_parallel
    key_copies = copies * degrees.tensor_parallel
    moved = matrices * (copies - 1) + keys * (key_copies - 1)
    sent = matrices * (copies > 1) + keys * (key_copies > 1)
    return matrices + keys, moved, sent


def totals(problem: Problem, counts: Counts) -> dict[str, Real]:
    """Return FLOPs and elements of the run, forward and backward, all clusters together.

    Full recomputation repeats the forward pass in the backward pass, traffic of weights included.
    """
    token_layers = problem.num_steps * problem.batch_tokens * problem.num_layers
    weights = problem.num_steps * problem.num_layers
    reduced = weights * counts.weights_moved
    forward = (
        token_layers * counts.forward_flops,
        token_layers * counts.forward_sent + weights * counts.weights_sent,
        token_layers * counts.received + reduced,
    )
    backward = (
        token_layers * counts.backward_flops + reduced,
        token_layers * counts.backward_sent + reduced,
        token_layers * counts.received + reduced,
    )
    repeats = np.where(equals(problem.activation_recompute, "full"), 1.0, 0.0)
    results = {f"forward_{name}": count for name, count in zip(RESOURCES, forward, strict=True)}
    for name, count in zip(RESOURCES, backward, strict=True):
        results[f"backward_{name}"] = count + repeats * results[f"forward_{name}"]
    return results


def derived(
    problem: Problem, degrees: Degrees, counts: Counts, results: dict[str, Real]
) -> dict[str, Real]:
    """Return the other results of a run from its totals."""
    network = {
        f"{way}_network_elements": results[f"{way}_sent_elements"]
        + results[f"{way}_received_elements"]
        for way in ("forward", "backward")
    }
    results = results | network
    total = {
        f"total_{name}": results[f"forward_{name}"] + results[f"backward_{name}"]
        for name in (*RESOURCES, "network_elements")
    }
    parameters = problem.num_layers * counts.weights
    return {
        **network,
        **total,
        "parameters": parameters,
        "effective_parameters": parameters / problem.num_experts,
        "tokens": problem.num_steps * problem.batch_tokens,
        "num_steps": problem.num_steps,
        "num_clusters": degrees.num_clusters,
        "resolved_ffn_hidden_size": problem.ffn_hidden_size,
        "resolved_num_heads": problem.num_heads,
        **_rates(problem, degrees.num_clusters, results | total),
    }


def _rates(problem: Problem, clusters: Real, counts: dict[str, Real]) -> dict[str, Real]:
    """Return bytes/s, and the time without bubble or communication: a lower bound.

    ``training_seconds = FLOPs / (clusters x rate of one)``; bytes/s are those that move while a
    cluster works at its rate.
    """

    def run(name: str) -> Real:
        return np.where(problem.forward_only, counts[f"forward_{name}"], counts[f"total_{name}"])

    rate, flops = problem.cluster_flops_per_second, run("flops")
    results = {
        "fleet_flops_per_second": clusters * rate,
        "training_seconds": flops / (clusters * rate),
    }
    for name in ("sent", "received", "network"):
        moved = problem.network_bytes_per_element * rate * run(f"{name}_elements") / flops
        results[f"cluster_{name}_bytes_per_second"] = moved
        results[f"fleet_{name}_bytes_per_second"] = clusters * moved
    return results


def efficient_microbatch_sizes(values: Values, layouts: Columns) -> Array:
    """Return, as texts, the microbatch sizes that the efficiency rules admit; None if skipped."""
    known = {**values, **layouts}
    columns = [
        np.broadcast_to(np.asarray(column), len(layouts["data_parallel"])).tolist()
        for column in (
            *(replica_batch(known), fewest(known), most(known), known["data_parallel"]),
            known["skip_efficiency_check"],
        )
    ]
    texts = np.empty(len(layouts["data_parallel"]), dtype=object)
    by_limits = {limits: _sizes(*limits) for limits in set(zip(*columns, strict=True))}
    texts[:] = [by_limits[limits] for limits in zip(*columns, strict=True)]
    return texts


def _sizes(batch: int, least: float, limit: float, replicas: int, is_skipped: bool) -> str | None:
    if is_skipped:
        return None
    sizes = [int(size) for size in divisors(int(batch)) if least <= size <= limit]
    return str([size * int(replicas) for size in sizes])


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


def report(v: Values) -> list[str]:
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
    lines += [f"Cluster bytes/sec:   {_rate_words(v, 'cluster')}", ""]
    lines += [f"Total FLOP/sec:      {v['fleet_flops_per_second']:.3e}"]
    lines += [f"Total bytes/sec:     {_rate_words(v, 'fleet')}", ""]
    return [*lines, f"Runtime:             {_duration(v['training_seconds'])}"]


def _rate_words(v: Values, who: str) -> str:
    sent, received, both = (
        v[f"{who}_{what}_bytes_per_second"] for what in ("sent", "received", "network")
    )
    return f"{both:.3e} ({sent:.3e} Tx, {received:.3e} Rx)"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"
