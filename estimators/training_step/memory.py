"""Bytes on the GPU that needs most: of the first stage, or of the last with its logits.

Activations are those of arXiv 2205.05198 (equations 1 to 5, figure 9), with widths of the
shape's own. Fused attention keeps no scores, and a model without dropout no masks. Under ZeRO
stage 3 the weights and gradients of the layer at work are gathered, and the prefetched weights of
the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Values
from estimators.decoder import Parameters
from estimators.factored import take
from estimators.training_step import formats
from estimators.training_step.layer import Size
from estimators.training_step.pipelines import Held, over_kinds
from estimators.training_step.replicas import Share, kept

PARTS = (
    *("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
    *("logits_bytes", "gathered_bytes"),
)
"""Parts that depend on the layout; `framework_bytes` is the same in all."""


class Microbatch(NamedTuple):
    """Bytes of one microbatch on one GPU.

    Attributes
    ----------
    whole
        That a layer needs for its backward pass.
    kept
        That it keeps until then; the rest is recomputed.
    entry
        Its input.
    logits
        Of the output layer.
    """

    whole: Any
    kept: Any
    entry: Any
    logits: Any


def microbatch_of(size: Size, values: Values, layout: Values) -> Microbatch:
    """Return the bytes of one microbatch in a layer and in the output layer."""
    recompute = values["activation_recompute"]
    whole = layer_activations(size, values, layout)
    entry = 2.0 * size.rows * size.hidden
    kept = np.where(np.equal(recompute, "full"), entry, whole)
    by_operation = np.equal(recompute, "selective") & values["recomputes_operations"]
    if np.any(by_operation):
        kept = np.where(by_operation, _operation_activations(size, values, layout), kept)
    words = size.tokens * values["vocab_size"] / layout["tensor_parallel"]
    return Microbatch(whole, kept, entry, words * values["stored_logit_bytes"])


def held(
    each: Mapping[str, Microbatch], flight: Held, values: Values, layout: Values
) -> list[dict[str, Any]]:
    """Return the activations and logits of the ranks that may need most memory.

    Parameters
    ----------
    each
        Kind of layer -> the bytes of one microbatch in a layer of it.
    flight
        As of `pipelines.held_at`.
    """
    logits = next(iter(each.values())).logits
    kept_of = {name: one.kept for name, one in each.items()}
    found = []
    for number in range(len(flight.chunks)):
        layers = {name: of_kind[number] for name, of_kind in flight.layers.items()}
        kept = over_kinds(layers, kept_of)
        own_logits = flight.outputs[number] * logits
        again = reduce(
            np.maximum,
            (
                np.where(n > 0, _again(each[name], values, own_logits), 0.0)
                for name, n in layers.items()
            ),
        )
        entry = next(iter(each.values())).entry
        inputs = flight.chunks[number] / layout["virtual_pipeline"] * entry
        found.append({"activations_bytes": kept + again + inputs, "logits_bytes": own_logits})
    return found


def sharded(zero_stage: int, share: Share, values: Values, layout: Values) -> dict[str, Any]:
    """Return the bytes of a pipeline stage's state under a ZeRO stage."""
    # a program with sharded weights in 32 bits keeps a gathered copy until stage 3
    weights = values["stored_weight_bytes"]
    if zero_stage < 3:
        weights = np.maximum(weights, values["gathered_weight_bytes"])
    words = share._replace(dense=share.vocabulary, experts=0.0 * share.experts)
    others = share._replace(dense=share.dense - share.vocabulary)
    own = formats.stored_weight_bytes(values, weights, is_sharded=zero_stage == 3)
    whole = weights * kept(zero_stage, 3, words, layout) + own * kept(zero_stage, 3, others, layout)
    return {
        "weights_bytes": whole,
        "gradients_bytes": values["stored_gradient_bytes"] * kept(zero_stage, 2, share, layout),
        "optimizer_bytes": values["stored_optimizer_bytes"] * kept(zero_stage, 1, share, layout),
    }


def needs_most(
    state: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]], to_share: Array | None
) -> Array:
    """Return the place of the rank that needs most; of several the first.

    Parameters
    ----------
    state, others
        Of each rank, bytes of weights, gradients and optimizer with what is gathered, one element
        a share of the parameters; other bytes, one a split.
    to_share
        Each split's share; None: a split each.
    """
    needed = [
        take(sum(each.values()), to_share) + other["activations_bytes"] + other["logits_bytes"]
        for each, other in zip(state, others, strict=True)
    ]
    if len(needed) == 2:
        return np.asarray(needed[1] > needed[0]).astype(np.int64)
    return np.asarray(np.argmax(np.stack(needed), axis=0))


def gathered_bytes(
    zero_stage: int, counts: Mapping[str, Parameters], share: Share, values: Values, layout: Values
) -> Any:
    """Return the bytes of two layers' weights and one's gradients, or of the vocabulary's.

    A program that keeps what it gathered has weights and gradients of its whole stage under a
    pipeline: it scatters gradients after the last microbatch (torchtitan @82f7387f
    parallelisms/parallelize_llama.py `apply_fsdp`; torch/distributed/pipelining/stage.py
    `backward_maybe_with_nosync`). None are gathered below ZeRO stage 3.
    """
    if zero_stage < 3:
        return 0.0
    tensor = layout["tensor_parallel"]
    split = layout["expert_tensor_parallel"] * layout["expert_parallel"]
    layers = [
        count.split / tensor + count.whole + count.experts / split for count in counts.values()
    ]
    layer = reduce(np.maximum, layers)
    weights, gradients = values["gathered_weight_bytes"], values["reduced_gradient_bytes"]
    own = formats.gathered_weight_bytes(values)
    embedding = next(iter(counts.values())).embedding
    unit = np.maximum((2 * own + gradients) * layer, (weights + gradients) * embedding / tensor)
    keeps = np.where(values["keeps_gathered_weights"], layout["pipeline_parallel"] > 1, False)
    whole = (own + gradients) * (share.dense - share.vocabulary + share.experts)
    whole = whole + (weights + gradients) * share.vocabulary
    unit = np.where(keeps, whole, unit)
    return np.where(layout["data_parallel"] * layout["context_parallel"] > 1, unit, 0.0)


def _again(each: Microbatch, values: Values, logits: Any) -> Any:
    """Return the bytes of the one layer that is recomputed at a time, after the logits are freed.

    The input of the first layer is kept too.
    """
    recompute = values["activation_recompute"]
    again = np.equal(recompute, "selective") & values["recomputes_operations"]
    again = np.equal(recompute, "full") | again
    if not np.any(again):
        return 0.0
    return np.where(again, np.maximum(each.whole - logits, 0.0), 0.0)


def _operation_activations(size: Size, values: Values, layout: Values) -> Any:
    """Return the bytes that one layer keeps if it is recomputed by operation.

    Its input, queries, values, the result of attention with its statistic, the first product of
    a gated layer, and its last (that of a layer without a gate is not kept); sums of a
    tensor-parallel group (pytorch/torchtitan @82f7387f torchtitan/parallelisms/parallelize_llama.py
    _save_list, _get_custom_policy).
    """
    sparse, routed = values["sparse_share"], size.experts * size.expert_tokens
    core = size.query + size.value + size.result + 2.0 * size.heads
    first = (1 - sparse) * size.tokens * size.ffn
    first = first + sparse * (size.tokens * size.shared_ffn + routed * size.expert_ffn)
    shared = np.where(size.shared_ffn > 0, size.tokens, 0.0)
    last = ((1 - sparse) * size.tokens + sparse * (shared + routed)) * size.hidden
    last = np.where(values["uses_glu"], last, 0.0)
    sums = np.where(layout["tensor_parallel"] > 1, 3.0, 1.0) * size.rows * size.hidden
    return 2.0 * (size.tokens * core + first + last + sums)


def layer_activations(size: Size, values: Values, layout: Values) -> Any:
    """Return the bytes that one layer keeps of one microbatch for its backward pass."""
    drops = np.where(values["uses_dropout"], 1.0, 0.0)
    between = size.rows * size.hidden
    inside = size.tokens * (size.query + size.key + size.value)
    latents = 2 * size.query_latent + 2 * size.key_latent + size.rotary
    core = _core_activations(size, values, drops)
    # inputs of both norms and of both blocks; masks; queries, keys, values; the core's result
    # a norm that is written out keeps its input in 32 bits as well
    written_out = np.where(values["uses_glu"] & ~values["fuses_elementwise"], 8.0, 0.0)
    attention = (8 + 2 * drops + written_out) * between + core
    attention = attention + 2.0 * (inside + size.tokens * size.result + size.rows * latents)
    sparse, gated = values["sparse_share"], values["uses_glu"]
    # a gated layer keeps both halves and their product; separate kernels the gate as well
    halves = np.where(gated, values["stored_gate_bytes"], 4.0)
    dense = size.tokens * size.ffn
    routed = size.experts * size.expert_tokens
    mixed = size.tokens * size.shared_ffn + routed * size.expert_ffn
    copies = 4.0 * routed * size.hidden / np.maximum(layout["expert_tensor_parallel"], 1)
    return attention + halves * ((1 - sparse) * dense + sparse * mixed) + sparse * copies


def _core_activations(size: Size, values: Values, drops: Any) -> Any:
    """Return the bytes that the core keeps: a statistic a row if fused, else scores and masks."""
    heads = size.heads
    length = values["seq_len"] * 1.0
    is_flash = np.equal(values["attention"], "flash")
    is_selective = np.equal(values["activation_recompute"], "selective")
    scores = heads * size.tokens * length * (2 + 3 * drops)
    return np.where(is_flash, 4.0 * heads * size.tokens, np.where(is_selective, 0.0, scores))
