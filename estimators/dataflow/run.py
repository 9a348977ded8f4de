"""From counts of a token and layer to those of the whole run, and to rates.

Source: davidsj/ml_par_sim transformer.py and lib.py @520dcff.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Columns, Values
from estimators.dataflow.counts import DEGREES, counts_of
from estimators.dataflow.rules import fewest, most, replica_batch
from estimators.divisors import divisors


def totals(values: Values, layouts: Columns) -> dict[str, Any]:
    """Return FLOPs and elements of the run, forward and backward, all clusters together.

    Full recomputation repeats the forward pass in the backward pass, traffic of weights included.
    """
    counts = counts_of({**values, **layouts})
    layers = np.asarray(values["num_layers"], dtype=np.float64)
    steps = num_steps(values)
    token_layers = steps * batch_tokens(values) * layers
    weights = steps * layers
    again = np.equal(values["activation_recompute"], "full")
    forward = {
        "flops": token_layers * counts.forward_flops,
        "sent_elements": token_layers * counts.forward_sent + weights * counts.weights_sent,
        "received_elements": token_layers * counts.forward_received
        + weights * counts.weights_moved,
    }
    backward = {
        "flops": token_layers * counts.backward_flops + weights * counts.weights_moved,
        "sent_elements": token_layers * counts.backward_sent + weights * counts.weights_moved,
        "received_elements": token_layers * counts.backward_received
        + weights * counts.weights_moved,
    }
    backward = {name: part + again * forward[name] for name, part in backward.items()}
    found = {f"forward_{name}": part for name, part in forward.items()}
    found |= {f"backward_{name}": part for name, part in backward.items()}
    return found


def derived(values: Values, layouts: Columns, found: dict[str, Any]) -> dict[str, Any]:
    """Return the other results of a run from its totals."""
    parts = {}
    for way in ("forward", "backward"):
        sent, received = found[f"{way}_sent_elements"], found[f"{way}_received_elements"]
        parts[f"{way}_network_elements"] = sent + received
    whole = {**found, **parts}
    for name in ("flops", "sent_elements", "received_elements", "network_elements"):
        parts[f"total_{name}"] = whole[f"forward_{name}"] + whole[f"backward_{name}"]
    return parts | _sizes(values, layouts) | _rates(values, layouts, whole | parts)


def batch_tokens(values: Values) -> Any:
    """Return the tokens of one batch."""
    return np.asarray(values["global_batch_size"], dtype=np.float64) * values["seq_len"]


def num_steps(values: Values) -> Any:
    """Return the steps of the run: batches in the data set, half rounded to even."""
    return np.rint(np.asarray(values["dataset_tokens"]) / batch_tokens(values))


def num_clusters(layouts: Columns) -> Any:
    """Return the product of the degrees."""
    found = np.ones(1, dtype=np.float64)
    for name in DEGREES:
        found = found * layouts[name]
    return found


def _sizes(values: Values, layouts: Columns) -> dict[str, Any]:
    """Return parameters, tokens, steps and clusters of a run, and resolved widths."""
    steps = num_steps(values)
    parameters = values["num_layers"] * counts_of({**values, **layouts}).weights
    return {
        "parameters": parameters,
        "effective_parameters": parameters / values["num_experts"],
        "tokens": steps * batch_tokens(values),
        "num_steps": steps,
        "num_clusters": num_clusters(layouts),
        "resolved_ffn_hidden_size": values["ffn_hidden_size"],
        "resolved_num_heads": values["num_heads"],
    }


def _rates(values: Values, layouts: Columns, whole: dict[str, Any]) -> dict[str, Any]:
    """Return bytes/s, and the time without bubble or communication: a lower bound.

    ``training_seconds = FLOPs / (clusters x rate of one)``; bytes/s are those that move while a
    cluster works at its rate.
    """
    given = values.get("cluster_flops_per_second")
    rate = np.asarray(np.nan if given is None else given, dtype=np.float64)
    clusters = num_clusters(layouts)
    only = np.asarray(values["forward_only"], dtype=bool)
    flops = np.where(only, whole["forward_flops"], whole["total_flops"])
    found = {
        "fleet_flops_per_second": clusters * rate,
        "training_seconds": flops / (clusters * rate),
    }
    for what in ("sent", "received", "network"):
        name = f"{what}_elements"
        moved = np.where(only, whole[f"forward_{name}"], whole[f"total_{name}"])
        each = values["network_bytes_per_element"] * rate * moved / flops
        found[f"cluster_{what}_bytes_per_second"] = each
        found[f"fleet_{what}_bytes_per_second"] = clusters * each
    return found


def efficient_microbatch_sizes(values: Values, layouts: Columns) -> Array:
    """Return, as texts, the microbatch sizes that the efficiency rules admit; None if skipped."""
    known = {**values, **layouts}
    size = len(layouts["data_parallel"])
    columns = [
        np.broadcast_to(np.asarray(column), size).tolist()
        for column in (
            *(replica_batch(known), fewest(known), most(known), known["data_parallel"]),
            known["skip_efficiency_check"],
        )
    ]
    texts: dict[tuple[Any, ...], str | None] = {}
    found = np.empty(size, dtype=object)
    for row, key in enumerate(zip(*columns, strict=True)):
        if key not in texts:
            texts[key] = _listed(*key)
        found[row] = texts[key]
    return found


def _listed(batch: int, least: float, limit: float, replicas: int, is_skipped: bool) -> str | None:
    if is_skipped:
        return None
    sizes = [int(size) for size in divisors(int(batch)) if least <= size <= limit]
    return str([size * int(replicas) for size in sizes])
