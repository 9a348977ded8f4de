"""Parameters of pipeline ranks, and a step's seconds for them: exchange over replicas, optimizer.

By ZeRO stage (arXiv 1910.02054): 0 all-reduces gradients; 1 reduce-scatters gradients and gathers
weights; 2 reduce-scatters gradients for every microbatch; 3 also gathers weights for every pass of
every microbatch. Arithmetic hides transfers for as long as it lasts, except the first weights and
the gradients that are ready last.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/schedules.py and
distributed/distributed_data_parallel.py (stages 0 to 2); PyTorch FSDP Notes and
torch.distributed.fsdp (stage 3); huggingface/nanotron @0e0a27ea src/nanotron/trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import take
from estimators.structure import equals
from estimators.training_step import formats, network
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.host import optimizer_launch_seconds as launch_seconds
from estimators.training_step.kinds import over_kinds
from estimators.training_step.network import Group

if TYPE_CHECKING:
    from estimators.decoder import Parameters, Shape
    from estimators.training_step.pipelines import Ranks
    from estimators.training_step.problem import Layout, Network, Problem
    from estimators.values import Array, Flag, Real


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

    dense: Real
    experts: Real
    layers: Real
    vocabulary: Real
    embedding: Real


class LayerShare(NamedTuple):
    """Parameters of one layer on one GPU: outside and inside routed experts."""

    dense: Real
    experts: Real


def layer_shares(
    counts: Mapping[str, Parameters], shape: Shape, layout: Layout
) -> dict[str, LayerShare]:
    """Return the parameters of a layer of each kind on one GPU.

    Parameters
    ----------
    counts
        Kind of layer -> the parameters of one.
    """
    tensor = layout.tensor_parallel
    # with fewer key-value heads than ranks, each rank has a whole head: these are the copies
    copied = np.maximum(1 / shape.num_kv_heads - 1 / tensor, 0.0)
    keys = 2 * shape.hidden_size * shape.num_kv_heads * shape.head_size * copied
    split = layout.expert_tensor_parallel * layout.expert_parallel
    return {
        name: LayerShare(count.split / tensor + count.whole + keys, count.experts / split)
        for name, count in counts.items()
    }


def stage_shares(
    ranks: Ranks,
    layers: Mapping[str, LayerShare],
    ends: Parameters,
    shape: Shape,
    layout: Layout,
) -> list[Share]:
    """Return the parameters of the ranks that may have most, or need most memory.

    The first has the embedding, the last the output layer.

    Parameters
    ----------
    ranks
        See `pipelines.ranks_at`.
    layers
        Kind of layer -> the share of one.
    ends
        Parameters of embedding and output layer, before they are split.
    """
    tensor, ties = layout.tensor_parallel, shape.ties_embedding
    shares = []
    for rank, (has_embedding, has_output) in enumerate(
        zip(ranks.embedding, ranks.output, strict=True)
    ):
        counts = {name: of_ranks[rank] for name, of_ranks in ranks.layers.items()}
        outputs = np.where(ties & (has_embedding > 0), 0.0, has_output)
        # layers that predict further tokens look words up, too
        looks_up = np.maximum(has_embedding, np.where(counts.get("mtp", np.zeros(1)) > 0, 1.0, 0.0))
        looks_up = np.where(ties & (outputs > 0), has_embedding, looks_up)
        vocabulary = (looks_up * ends.embedding + outputs * ends.output) / tensor
        held = over_kinds(counts, layers)
        shares.append(
            Share(
                dense=vocabulary + held.dense,
                experts=held.experts,
                layers=reduce(np.add, counts.values()),
                vocabulary=vocabulary,
                embedding=has_embedding * ends.embedding / tensor,
            )
        )
    return shares


def fullest(shares: Sequence[Share]) -> Share:
    """Return the share of the rank that has most parameters; of several the first."""
    most = shares[0]
    for share in shares[1:]:
        more = share.dense + share.experts > most.dense + most.experts
        if np.any(more):
            most = Share(*(np.where(more, a, b) for a, b in zip(share, most, strict=True)))
    return most


class Window(NamedTuple):
    """Arithmetic behind which transfers can hide: seconds of one microbatch.

    Attributes
    ----------
    forward, backward
        Passes through the stage that sets the pace, all chunks.
    layer_forward, layer_backward
        Passes through one of its layers, recomputation included.
    microbatches, stages, chunks
        Of the pipeline's schedule.
    """

    forward: Real
    backward: Real
    layer_forward: Real
    layer_backward: Real
    microbatches: Real
    stages: Real
    chunks: Real


class BucketExchange(NamedTuple):
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

    reduced: Real
    scattered: Real
    gathered: Real
    copied: Real
    embedding: Real
    call: Real


class UnitExchange(NamedTuple):
    """Seconds of the exchanges of ZeRO 3: of one layer, and of the vocabulary.

    `copied` are the seconds in which the host copies the shards of a layer into their place.
    """

    scattered: Real
    gathered: Real
    copied: Real
    vocabulary_scattered: Real
    vocabulary_gathered: Real
    layers: Real


def exchanges_of(
    stages: Iterable[int],
    share: Share,
    problem: Problem,
    layout: Layout,
    to_share: Array | None,
) -> dict[int, BucketExchange | UnitExchange]:
    """Return the exchanges of the parameters of a pipeline rank by ZeRO stage.

    Parameters
    ----------
    share, layout
        One element a share of the parameters.
    to_share
        For each element of the results its share; None: each is one.
    """
    group = network.groups(problem.network, layout)
    # some programs exchange differently under stages 1 and 2 than under stage 0
    differs = np.any(problem.overlap.waits_for_sharded_gradients) or np.any(
        problem.sharding.shard_copy_seconds
    )
    in_buckets: dict[bool, BucketExchange] = {}
    exchanges: dict[int, BucketExchange | UnitExchange] = {}
    for stage in stages:
        is_sharded = bool(stage > 0 and differs)
        if stage == 3:
            exchanges[stage] = take(unit_exchange(share, group, problem), to_share)
            continue
        if is_sharded not in in_buckets:
            exchange = bucket_exchange(share, group, problem, is_sharded=is_sharded)
            in_buckets[is_sharded] = take(exchange, to_share)
        exchanges[stage] = in_buckets[is_sharded]
    return exchanges


def bucket_exchange(
    share: Share, group: Mapping[str, Group], problem: Problem, *, is_sharded: bool
) -> BucketExchange:
    """Return the seconds of the exchanges of ZeRO stage 0, or of 1 and 2, in buckets."""
    sharding = problem.sharding
    has_vocabulary = np.where(share.vocabulary > 0, 1.0, 0.0)
    calls = np.minimum(share.layers + has_vocabulary, sharding.exchange_buckets)
    copied: Real = 0.0
    if is_sharded:
        calls = np.where(problem.overlap.waits_for_sharded_gradients, 1.0, calls)
        replicas = group["data"].size
        slices = np.where(replicas > 1, replicas * (share.layers + has_vocabulary), 0.0)
        copied = sharding.shard_copy_seconds * slices
    gradients, weights = sharding.reduced_gradient_bytes, _gathered(share, problem)
    return BucketExchange(
        _both(network.reduce_seconds, share, group, gradients, problem.network, calls),
        _both(network.gather_seconds, share, group, gradients, problem.network, calls),
        _both(network.gather_seconds, weights, group, 1.0, problem.network, calls),
        copied,
        share.embedding / np.maximum(share.dense + share.experts, 1.0),
        1 / np.maximum(calls, 1.0),
    )


def unit_exchange(share: Share, group: Mapping[str, Group], problem: Problem) -> UnitExchange:
    """Return the seconds of the exchanges of ZeRO stage 3, layer by layer."""
    sharding = problem.sharding
    has_vocabulary = np.where(share.vocabulary > 0, 1.0, 0.0)
    layers = np.maximum(share.layers, 1.0)
    layer = share._replace(
        dense=(share.dense - share.vocabulary) / layers,
        experts=share.experts / layers,
        vocabulary=0.0,
    )
    gradients, weights = sharding.reduced_gradient_bytes, sharding.gathered_weight_bytes
    gather, replicas = network.gather_seconds, group["data"].size
    return UnitExchange(
        _both(gather, layer, group, gradients, problem.network, 1.0),
        _both(gather, _gathered(layer, problem), group, 1.0, problem.network, 1.0),
        sharding.shard_copy_seconds * np.where(replicas > 1, replicas, 0.0),
        gather(group["data"], gradients * share.vocabulary, problem.network, has_vocabulary),
        gather(group["data"], weights * share.vocabulary, problem.network, has_vocabulary),
        share.layers,
    )


def exchange_seconds(
    zero_stage: int, exchange: BucketExchange | UnitExchange, problem: Problem, window: Window
) -> Real:
    """Return the seconds that a step waits for its replicas, but for `end_seconds`.

    A second of hidden transfers costs arithmetic `network.lost_share` seconds, so it saves the
    rest, `gained`. Slowed arithmetic lasts longer and hides more: the saving is at most the seconds
    of the arithmetic alone.

    Parameters
    ----------
    exchange
        That of `exchanges_of` for the stage.
    """
    if isinstance(exchange, UnitExchange):
        return _unit_seconds(exchange, problem, window)
    sharding, allowed = problem.sharding, problem.overlap
    after = exchange.scattered if zero_stage else exchange.reduced
    if zero_stage == 1:
        after = np.where(sharding.reduces_all_gradients, exchange.reduced, after)
    gained = 1 - network.lost_share(problem.network)
    overlap = gained * allowed.gradient_overlap_fraction
    if zero_stage:
        overlap = np.where(allowed.waits_for_sharded_gradients, 0.0, overlap)
    if zero_stage == 2:
        # for each microbatch, during its own backward pass
        last = np.maximum(exchange.call, exchange.embedding)
        saved = np.minimum(overlap * after * (1 - last), window.backward * (1 - exchange.call))
        waits = window.microbatches * (after - saved)
    else:
        waits = after - _behind_backward(
            overlap * after, exchange, allowed.aligns_exchanges, window
        )
    if zero_stage == 0:
        return waits
    hides = allowed.parameter_overlap_fraction
    saved = _behind_forward(gained * exchange.gathered, hides, exchange, window)
    return waits + exchange.gathered + exchange.copied - saved


def _behind_backward(hidden: Real, exchange: BucketExchange, aligns: Flag, window: Window) -> Real:
    """Return the seconds that one exchange of gradients saves behind the last backward passes.

    - One chunk: gradients are exchanged bucket by bucket. The last bucket, with the embedding, has
      nothing to hide behind. The first stage of a pipeline ends last.
    - Several chunks: a chunk's gradients are exchanged after its last backward pass, at the same
      time on all stages. The last chunk's have nothing to hide behind. An earlier chunk's hide
      behind the passes of a group of microbatches through the chunks that follow (schedules.py,
      lines 1440 to 1456; a group has as many microbatches as there are stages).

    Parameters
    ----------
    hidden
        Seconds of the exchange that may hide.
    """
    chunks = window.chunks
    grouped = np.minimum(window.stages, window.microbatches) * (1 - 1 / chunks)
    aligned = (chunks > 1) & aligns
    last = np.where(
        aligned,
        exchange.embedding + (1 - exchange.embedding) / chunks,
        np.maximum(exchange.call, exchange.embedding),
    )
    within = np.where(aligned, 0.0, (1 - exchange.call) / chunks)
    return np.minimum(hidden * (1 - last), window.backward * (grouped + within))


def _behind_forward(gathered: Real, share: Real, exchange: BucketExchange, window: Window) -> Real:
    """Return the seconds that one gathering of weights saves behind the first forward passes.

    The first bucket, with the embedding, has nothing to hide behind. The rest of the first chunk is
    gathered bucket by bucket during the chunk's first pass, each other chunk during the passes of a
    group of microbatches through the chunks before it (schedules.py, lines 1219 to 1221 and 1341 to
    1353).

    Parameters
    ----------
    gathered, share
        Seconds that hiding all of it would save, and the share that a program may hide.
    """
    chunks = window.chunks
    first = np.maximum(exchange.call, exchange.embedding)
    others = (1 - exchange.embedding) * (1 - 1 / chunks) * gathered
    chunk = window.forward / chunks
    saved = np.minimum(share * gathered * (1 - first), others + chunk * (1 - exchange.call))
    grouped = np.minimum(window.stages, window.microbatches) * (chunks - 1) * chunk
    return np.where(chunks > 1, np.minimum(saved, grouped), saved)


def _unit_seconds(exchange: UnitExchange, problem: Problem, window: Window) -> Real:
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
    sharding, allowed = problem.sharding, problem.overlap
    layers, gathered, scattered = exchange.layers, exchange.gathered, exchange.scattered
    keeps = np.where(sharding.keeps_gathered_weights, 1.0, 0.0)
    once = np.where(window.stages > 1, keeps, 0.0)
    gained = 1 - network.lost_share(problem.network)
    ahead = gained * allowed.parameter_overlap_fraction * gathered
    saved = np.minimum(ahead, window.layer_forward)
    backward = gained * allowed.gradient_overlap_fraction * scattered + (1 - once) * ahead
    saved = saved + np.minimum(backward, window.layer_backward)
    again = equals(problem.choices.activation_recompute, "full") & sharding.regathers_for_recompute
    gathers = layers + (1 - once) * (layers - keeps) + np.where(again, layers, 0.0)
    whole = (
        gathers * (gathered + exchange.copied)
        + layers * (scattered + exchange.copied)
        + (2 - keeps) * exchange.vocabulary_gathered
        + exchange.vocabulary_scattered
    )
    times = np.where(once > 0, 1.0, window.microbatches)
    return times * (whole - (layers - 1) * saved)


def _both(
    collective: Callable[[Group, Real, Network, Real], Real],
    share: Share,
    group: Mapping[str, Group],
    size: Real,
    links: Network,
    calls: Real,
) -> Real:
    """Return the seconds of a collective over the dense parameters, and over experts."""
    dense = collective(group["data"], size * share.dense, links, calls)
    if not np.any(share.experts):
        return dense
    experts = collective(group["expert_data"], size * share.experts, links, calls)
    return dense + np.where(share.experts > 0, experts, 0.0)


def _gathered(share: Share, problem: Problem) -> Share:
    """Return the bytes of the weights of a share, as they are gathered."""
    width = formats.gathered_weight_bytes(problem)
    vocabulary = problem.sharding.gathered_weight_bytes
    return share._replace(
        dense=width * (share.dense - share.vocabulary) + vocabulary * share.vocabulary,
        experts=width * share.experts,
    )


def sharded_parameters(zero_stage: int, since: int, share: Share, layout: Layout) -> Real:
    """Return the parameters of which a GPU keeps some state, sharded from ZeRO stage `since` on."""
    if zero_stage < since:
        return share.dense + share.experts
    replicas = layout.data_parallel * layout.context_parallel
    return share.dense / replicas + share.experts / network.expert_replicas(layout)


def optimizer_seconds(zero_stage: int, share: Share, problem: Problem, layout: Layout) -> Real:
    """Return the seconds of the optimizer on one GPU: memory traffic or launches, the longer one.

    The traffic includes the cast of weights to 8 or 4 bits for the next step.
    """
    owned = sharded_parameters(zero_stage, 1, share, layout)
    whole = sharded_parameters(zero_stage, 2, share, layout)
    traffic = problem.sharding
    volume = traffic.optimizer_traffic_bytes * owned + traffic.buffer_traffic_bytes * whole
    if np.any(problem.formats.low_format):
        volume = volume + formats.weight_cast_bytes(problem) * (
            share.dense - share.vocabulary + share.experts
        )
    seconds: Real = np.maximum(
        stream_seconds(volume, problem.system), launch_seconds(share.layers, problem)
    )
    return seconds


def end_seconds(problem: Problem, layout: Layout) -> Real:
    """Return the seconds of transfers at the end of a step, which nothing hides.

    The gradients of a shared embedding are added up on its two stages. Three collectives of a few
    bytes follow: gradients of norms over the tensor-parallel group, the norm of all gradients and
    whether they overflow over all GPUs; all three count as over all GPUs (Megatron-LM @d98e8a64
    megatron/core/distributed/finalize_model_grads.py and optimizer/clip_grads.py).
    """
    shape, stages = problem.shape, layout.pipeline_parallel
    is_split = (stages > 1) & shape.ties_embedding
    volume = problem.sharding.reduced_gradient_bytes * shape.vocab_size * shape.hidden_size
    moved = volume / layout.tensor_parallel / network.card_bandwidth(problem.network)
    tied = np.where(is_split, moved + problem.network.collective_seconds, 0.0)
    gpus = layout.tensor_parallel * layout.context_parallel * stages * layout.data_parallel
    everyone = Group(gpus, problem.network.nvlink_size)
    return tied + 3 * network.reduce_seconds(everyone, 0.0, problem.network)
