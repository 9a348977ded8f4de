"""Seconds of a step for its replicas: exchange of gradients and weights, and the optimizer.

By ZeRO stage (arXiv 1910.02054): 0 all-reduces gradients; 1 reduce-scatters gradients and gathers
weights; 2 reduce-scatters gradients for every microbatch; 3 also gathers weights for every pass of
every microbatch. Arithmetic hides transfers for as long as it lasts, except the first weights and
the gradients that are ready last.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py and
distributed/distributed_data_parallel.py (stages 0 to 2); PyTorch FSDP Notes and
torch.distributed.fsdp (stage 3); huggingface/nanotron @0e0a27ea src/nanotron/trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import formats, network
from estimators.training_step.host import optimizer_launch_seconds as launch_seconds
from estimators.training_step.network import Group
from estimators.training_step.products import stream_seconds


class Share(NamedTuple):
    """Parameters of a pipeline stage on one GPU, before ZeRO shards them.

    Attributes
    ----------
    dense, experts
        Parameters that every replica has, and routed experts.
    layers
        Layers of the stage, which ZeRO 3 exchanges one by one.
    vocabulary
        The part of `dense` outside layers: ZeRO 3 exchanges it in one more call.
    embedding
        The part of `vocabulary` that a step needs first, and whose gradients it has last.
    """

    dense: Any
    experts: Any
    layers: Any
    vocabulary: Any
    embedding: Any


class Window(NamedTuple):
    """Arithmetic behind which transfers can hide: seconds of one microbatch.

    Attributes
    ----------
    forward, backward
        Passes through the stage, all chunks.
    layer_forward, layer_backward
        Passes through one of its layers, recomputation included.
    microbatches, stages, chunks
        Of the pipeline's schedule.
    """

    forward: Any
    backward: Any
    layer_forward: Any
    layer_backward: Any
    microbatches: Any
    stages: Any
    chunks: Any


class Exchange(NamedTuple):
    """Seconds of one exchange of a stage's parameters.

    Attributes
    ----------
    reduced, scattered, gathered
        Gradients all-reduced, gradients reduce-scattered, weights gathered; all parameters.
    copied
        Copies by the host of gathered shards into their place.
    embedding
        Share of the parameters that are the embedding: first weights, last gradients.
    call
        Share of the parameters in an average bucket.
    """

    reduced: Any
    scattered: Any
    gathered: Any
    copied: Any
    embedding: Any
    call: Any


class Units(NamedTuple):
    """Seconds of the exchanges of ZeRO 3: of one layer, and of the vocabulary.

    `copied` are the seconds in which the host copies the shards of a layer into their place.
    """

    scattered: Any
    gathered: Any
    copied: Any
    vocabulary_scattered: Any
    vocabulary_gathered: Any
    layers: Any


def sharding_differs(values: Values) -> bool:
    """Return whether a program exchanges differently under ZeRO 1 and 2 than under stage 0."""
    return bool(
        np.any(values["waits_for_sharded_gradients"]) or np.any(values["shard_copy_seconds"])
    )


def exchanges(
    share: Share, group: Mapping[str, Group], values: Values, *, is_sharded: bool
) -> Exchange:
    """Return the seconds of the exchanges of ZeRO stage 0, or of 1 and 2, in buckets."""
    has_vocabulary = np.where(share.vocabulary > 0, 1.0, 0.0)
    calls = np.minimum(share.layers + has_vocabulary, values["exchange_buckets"])
    copied: Any = 0.0
    if is_sharded:
        calls = np.where(values["waits_for_sharded_gradients"], 1.0, calls)
        replicas = group["data"].size
        slices = np.where(replicas > 1, replicas * (share.layers + has_vocabulary), 0.0)
        copied = values["shard_copy_seconds"] * slices
    gradients, weights = values["reduced_gradient_bytes"], _gathered(share, values)
    return Exchange(
        _both(network.reduce_seconds, share, group, gradients, values, calls),
        _both(network.gather_seconds, share, group, gradients, values, calls),
        _both(network.gather_seconds, weights, group, 1.0, values, calls),
        copied,
        share.embedding / np.maximum(share.dense + share.experts, 1.0),
        1 / np.maximum(calls, 1.0),
    )


def units(share: Share, group: Mapping[str, Group], values: Values) -> Units:
    """Return the seconds of the exchanges of ZeRO stage 3, layer by layer."""
    has_vocabulary = np.where(share.vocabulary > 0, 1.0, 0.0)
    layers = np.maximum(share.layers, 1.0)
    layer = share._replace(
        dense=(share.dense - share.vocabulary) / layers,
        experts=share.experts / layers,
        vocabulary=0.0,
    )
    gradients, weights = values["reduced_gradient_bytes"], values["gathered_weight_bytes"]
    gather, replicas = network.gather_seconds, group["data"].size
    return Units(
        _both(gather, layer, group, gradients, values, 1.0),
        _both(gather, _gathered(layer, values), group, 1.0, values, 1.0),
        values["shard_copy_seconds"] * np.where(replicas > 1, replicas, 0.0),
        gather(group["data"], gradients * share.vocabulary, values, has_vocabulary),
        gather(group["data"], weights * share.vocabulary, values, has_vocabulary),
        share.layers,
    )


def exchange_seconds(zero_stage: int, exchange: Exchange, values: Values, window: Window) -> Any:
    """Return the seconds that a step waits for its replicas under ZeRO stage 0, 1 or 2.

    A second of hidden transfers costs arithmetic `network.lost_share` seconds, so it saves the
    rest, `gained`. Slowed arithmetic lasts longer and hides more: the saving is at most the seconds
    of the arithmetic alone.

    Parameters
    ----------
    exchange
        Result of `exchanges` for the stage.
    """
    after = exchange.scattered if zero_stage else exchange.reduced
    if zero_stage == 1:
        after = np.where(values["reduces_all_gradients"], exchange.reduced, after)
    gained = 1 - network.lost_share(values)
    overlap = gained * values["gradient_overlap_fraction"]
    if zero_stage:
        overlap = np.where(values["waits_for_sharded_gradients"], 0.0, overlap)
    if zero_stage == 2:
        # for each microbatch, during its own backward pass
        last = np.maximum(exchange.call, exchange.embedding)
        saved = np.minimum(overlap * after * (1 - last), window.backward * (1 - exchange.call))
        waits = window.microbatches * (after - saved)
    else:
        waits = after - _behind_backward(overlap, after, exchange, values, window)
    if zero_stage == 0:
        return waits
    saved = _behind_forward(gained, exchange, values, window)
    return waits + exchange.gathered + exchange.copied - saved


def _behind_backward(
    overlap: Any, after: Any, exchange: Exchange, values: Values, window: Window
) -> Any:
    """Return the seconds that one exchange of gradients saves behind the last backward passes.

    - One chunk: gradients are exchanged bucket by bucket. The last bucket, with the embedding, has
      nothing to hide behind. The first stage of a pipeline ends last.
    - Several chunks: a chunk's gradients are exchanged after its last backward pass, at the same
      time on all stages. The last chunk's have nothing to hide behind. An earlier chunk's hide
      behind the passes of a group of microbatches through the chunks that follow (schedules.py,
      lines 1440 to 1456; a group has as many microbatches as there are stages).
    """
    chunks = window.chunks
    grouped = np.minimum(window.stages, window.microbatches) * (1 - 1 / chunks)
    aligned = (chunks > 1) & values["aligns_exchanges"]
    last = np.where(
        aligned,
        exchange.embedding + (1 - exchange.embedding) / chunks,
        np.maximum(exchange.call, exchange.embedding),
    )
    within = np.where(aligned, 0.0, (1 - exchange.call) / chunks)
    return np.minimum(overlap * after * (1 - last), window.backward * (grouped + within))


def _behind_forward(gained: Any, exchange: Exchange, values: Values, window: Window) -> Any:
    """Return the seconds that one gathering of weights saves behind the first forward passes.

    The first bucket, with the embedding, has nothing to hide behind. The rest of the first chunk is
    gathered bucket by bucket during the chunk's first pass, each other chunk during the passes of a
    group of microbatches through the chunks before it (schedules.py, lines 1219 to 1221 and 1341 to
    1353).
    """
    chunks, gathered = window.chunks, gained * exchange.gathered
    first = np.maximum(exchange.call, exchange.embedding)
    others = (1 - exchange.embedding) * (1 - 1 / chunks) * gathered
    one = window.forward / chunks
    saved = np.minimum(
        values["parameter_overlap_fraction"] * gathered * (1 - first),
        others + one * (1 - exchange.call),
    )
    grouped = np.minimum(window.stages, window.microbatches) * (chunks - 1) * one
    return np.where(chunks > 1, np.minimum(saved, grouped), saved)


def unit_seconds(each: Units, values: Values, window: Window) -> Any:
    """Return the seconds that a step waits for its replicas under ZeRO stage 3.

    A layer's weights are gathered during the layer before it. Its gradients are scattered during
    the next layer of the backward pass, at the same time and over the same links as the weights of
    the layer after that are gathered. The first gathering and the last scattering have nothing to
    hide behind.

    A program with `keeps_gathered_weights` does not gather the vocabulary and the last layer again;
    under a pipeline it gathers and scatters once a step
    (torchtitan @82f7387f parallelisms/parallelize_llama.py, `apply_fsdp`). A program may release
    a layer after it was recomputed, and gather it a third time (DeepSpeed @112ebff6e
    deepspeed/runtime/zero/stage3.py, `release_sub_module`).
    """
    layers, gathered, scattered = each.layers, each.gathered, each.scattered
    keeps = np.where(values["keeps_gathered_weights"], 1.0, 0.0)
    once = np.where(window.stages > 1, keeps, 0.0)
    gained = 1 - network.lost_share(values)
    ahead = gained * values["parameter_overlap_fraction"] * gathered
    saved = np.minimum(ahead, window.layer_forward)
    backward = gained * values["gradient_overlap_fraction"] * scattered + (1 - once) * ahead
    saved = saved + np.minimum(backward, window.layer_backward)
    again = np.equal(values["activation_recompute"], "full") & values["regathers_for_recompute"]
    gathers = layers + (1 - once) * (layers - keeps) + np.where(again, layers, 0.0)
    whole = (
        gathers * (gathered + each.copied)
        + layers * (scattered + each.copied)
        + (2 - keeps) * each.vocabulary_gathered
        + each.vocabulary_scattered
    )
    times = np.where(once > 0, 1.0, window.microbatches)
    return times * (whole - (layers - 1) * saved)


def _both(
    collective: Callable[..., Any],
    share: Share,
    group: Mapping[str, Group],
    size: Any,
    values: Values,
    calls: Any,
) -> Any:
    """Return the seconds of a collective over the dense parameters, and over experts."""
    dense = collective(group["data"], size * share.dense, values, calls)
    if not np.any(share.experts):
        return dense
    experts = collective(group["expert_data"], size * share.experts, values, calls)
    return dense + np.where(share.experts > 0, experts, 0.0)


def _gathered(share: Share, values: Values) -> Share:
    """Return the bytes of the weights of a share, as they are gathered."""
    width, words = formats.gathered_weight_bytes(values), values["gathered_weight_bytes"]
    return share._replace(
        dense=width * (share.dense - share.vocabulary) + words * share.vocabulary,
        experts=width * share.experts,
    )


def kept(zero_stage: int, from_stage: int, share: Share, layout: Values) -> Any:
    """Return the parameters of which one GPU keeps some state, sharded from `from_stage` on."""
    if zero_stage < from_stage:
        return share.dense + share.experts
    replicas = layout["data_parallel"] * layout["context_parallel"]
    return share.dense / replicas + share.experts / network.expert_replicas(layout)


def optimizer_seconds(zero_stage: int, share: Share, values: Values, layout: Values) -> Any:
    """Return the seconds of the optimizer on one GPU: memory traffic or launches, the longer one.

    The traffic includes the cast of weights to 8 or 4 bits for the next step.
    """
    owned, whole = (kept(zero_stage, stage, share, layout) for stage in (1, 2))
    volume = values["optimizer_traffic_bytes"] * owned + values["buffer_traffic_bytes"] * whole
    if np.any(values["low_format"]):
        volume = volume + formats.weight_cast_bytes(values) * (
            share.dense - share.vocabulary + share.experts
        )
    return np.maximum(stream_seconds(volume, values), launch_seconds(share.layers, values))


def end_seconds(values: Values, layout: Values) -> Any:
    """Return the seconds of transfers at the end of a step, which nothing hides.

    The gradients of a shared embedding are added up on its two stages. Three collectives of a few
    bytes follow: gradients of norms over the tensor-parallel group, the norm of all gradients and
    whether they overflow over all GPUs; all three count as over all GPUs (Megatron-LM @d98e8a64
    megatron/core/distributed/finalize_model_grads.py and optimizer/clip_grads.py).
    """
    stages = layout["pipeline_parallel"]
    is_split = (stages > 1) & np.asarray(values["ties_embedding"], dtype=bool)
    volume = values["reduced_gradient_bytes"] * values["vocab_size"] * values["hidden_size"]
    moved = volume / layout["tensor_parallel"] / network.card_bandwidth(values)
    tied = np.where(is_split, moved + values["collective_seconds"], 0.0)
    gpus = layout["tensor_parallel"] * layout["context_parallel"] * stages * layout["data_parallel"]
    return tied + 3 * network.reduce_seconds(Group(gpus, values["nvlink_size"]), 0.0, values)
