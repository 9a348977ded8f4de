"""One step of a pipeline of stages, put together from layers, vocabulary and replicas.

The slowest stage works on every microbatch; filling and draining the pipeline takes the others
once, divided by the interleaved chunks of a stage (arXiv 2104.04473 section 2.2):
``step = microbatches * slowest + (all stages - slowest) / chunks + transfers + replicas``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Values
from estimators.decoder import Parameters
from estimators.factored import take
from estimators.training_step import network
from estimators.training_step.host import saved_seconds
from estimators.training_step.layer import Layer, Size
from estimators.training_step.network import Group
from estimators.training_step.pipelines import Ranks, over_kinds, stage_layers
from estimators.training_step.products import stream_seconds
from estimators.training_step.replicas import Share, Window
from estimators.training_step.vocabulary import Vocabulary

TIMES = (
    *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
    *("recompute_seconds", "host_seconds", "accumulation_seconds", "optimizer_seconds"),
    *("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds"),
    *("pipeline_comm_seconds", "data_comm_seconds", "bubble_seconds"),
)
"""Parts of a step: they add up to it."""


def stage_shares(
    ranks: Ranks, counts: Mapping[str, Parameters], values: Values, layout: Values
) -> list[Share]:
    """Return the parameters of the ranks that may have most, or need most memory.

    The first has the embedding, the last the output layer.

    Parameters
    ----------
    ranks
        As of `pipelines.ranks_at`.
    counts
        Kind of layer -> the parameters of one.
    """
    tensor = layout["tensor_parallel"]
    ties = np.asarray(values["ties_embedding"], dtype=bool)
    # heads of keys and values that are copied, as there are fewer than ranks
    copied = np.maximum(1 / values["num_kv_heads"] - 1 / tensor, 0.0)
    keys = 2 * values["hidden_size"] * values["num_kv_heads"] * values["head_size"] * copied
    split = layout["expert_tensor_parallel"] * layout["expert_parallel"]
    any_count = next(iter(counts.values()))
    own_of = {name: each.split / tensor + each.whole + keys for name, each in counts.items()}
    experts_of = {name: each.experts / split for name, each in counts.items()}
    shares = []
    for number in range(len(ranks.embedding)):
        has_words, has_output = ranks.embedding[number], ranks.output[number]
        own = np.where(ties & (has_words > 0), 0.0, has_output)
        words = (has_words * any_count.embedding + own * any_count.output) / tensor
        layers = {name: of_kind[number] for name, of_kind in ranks.layers.items()}
        shares.append(
            Share(
                dense=words + over_kinds(layers, own_of),
                experts=over_kinds(layers, experts_of),
                layers=sum(layers.values()),
                vocabulary=words,
                embedding=has_words * any_count.embedding / tensor,
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


class Spent(NamedTuple):
    """Seconds of one layer and microbatch.

    Attributes
    ----------
    parts
        By part of the step.
    seconds, forward
        Of both passes, and of the forward pass.
    waits, launched
        That the GPU waits for the host if each pass is alone; that the host launches.
    clock, joules
        As of `layer.Layer`.
    sent_bytes
        That a GPU sends to the next stage.
    gathering
        Seconds to put them together there, where its GPUs need all of them.
    """

    parts: dict[str, Any]
    seconds: Any
    forward: Any
    waits: Any
    launched: Any
    clock: Any
    joules: Any
    sent_bytes: Any
    gathering: Any

    def take(self, index: Array | None) -> Spent:
        """Return one element a place of `index`; None: as it is."""
        parts = {name: take(part, index) for name, part in self.parts.items()}
        return Spent(parts, *(take(each, index) for each in self[1:]))


def spent_on(layer: Layer, size: Size, values: Values, layout: Values) -> Spent:
    """Return the seconds of a layer as a step needs them."""
    tensor, volume = layout["tensor_parallel"], 2.0 * size.tokens * size.hidden
    group = Group(tensor, values["nvlink_size"])
    whole = network.gather_seconds(group, volume, values)
    waits = layer.forward["host"] + layer.backward["host"]
    return Spent(
        of_layers(layer),
        layer.seconds,
        layer.forward_seconds,
        waits,
        layer.host.seconds,
        layer.clock,
        layer.joules,
        volume / tensor,
        np.where(layout["uses_sequence_parallel"], 0.0, whole),
    )


def passes(
    layer: Spent, words: Vocabulary, share: Share, values: Values, layout: Values
) -> tuple[dict[str, Array], Window]:
    """Return the seconds of a step by part, without those of the replicas, and their window.

    Parameters
    ----------
    layer, words
        One microbatch's, one element a row of `layout`.
    """
    microbatches = values["global_batch_size"] / (
        layout["data_parallel"] * layout["microbatch_size"]
    )
    most, last = stage_layers(values, layout)
    several = layout["pipeline_parallel"] > 1
    added = stream_seconds(
        values["accumulation_traffic_bytes"] * (share.dense + share.experts), values
    )
    ends = np.where(several, 0.0, words.embedding + words.embedding_comm)
    full = most * layer.seconds + added + words.embedding + words.embedding_comm
    final = last * layer.seconds + added + words.output + words.output_comm + ends
    work = final - last * layer.waits
    saved = saved_seconds(layer.launched, layer.waits, work, last, values)
    saved = np.where(several, 0.0, saved)
    final = final - saved
    bubble, is_final = _bubble(full, final, layer, values, layout, microbatches)

    times = microbatches * np.where(is_final, last, most)
    parts = {name: times * part for name, part in layer.parts.items()}
    has_output = microbatches * is_final
    has_embedding = np.where(several & is_final, 0.0, microbatches)
    parts["vocabulary_seconds"] = has_output * words.output + has_embedding * words.embedding
    parts["tensor_comm_seconds"] = (
        parts["tensor_comm_seconds"]
        + has_output * words.output_comm
        + has_embedding * words.embedding_comm
    )
    parts["host_seconds"] = np.maximum(parts["host_seconds"] - microbatches * saved, 0.0)
    parts["accumulation_seconds"] = microbatches * added
    parts["bubble_seconds"] = bubble
    parts["pipeline_comm_seconds"] = _transfers(layer, values, layout, microbatches)
    # the stage with most parameters is the first; a third of the time outside layers is forward
    first = np.where(several, full, final)
    forward = most * layer.forward + (first - most * layer.seconds) / 3
    return parts, Window(
        forward,
        first - forward,
        layer.forward,
        layer.seconds - layer.forward,
        microbatches,
        layout["pipeline_parallel"],
        layout["virtual_pipeline"],
    )


def layer_joules(layer: Spent, words: Vocabulary, values: Values, layout: Values) -> Any:
    """Return the energy above idle of a step's layers and vocabulary, of the average GPU.

    Parameters
    ----------
    layer, words
        One microbatch's, one element a row of `layout`.
    """
    microbatches = values["global_batch_size"] / (
        layout["data_parallel"] * layout["microbatch_size"]
    )
    of_all = values["num_layers"] * layer.joules + words.joules
    return microbatches * of_all / layout["pipeline_parallel"]


def _bubble(
    full: Any, final: Any, layer: Spent, values: Values, layout: Values, microbatches: Any
) -> tuple[Any, Any]:
    """Return the bubble of a step, and whether the last stage sets the pace.

    Even stages: the time of all others once, divided by the chunks. Uneven stages have the odd
    layers first; the last of the fuller stages waits for the stages behind it, which are faster.
    Both agree with a simulation of the schedule; a stage between cannot be the slowest. Balanced
    stages: the time of all others once.

    Parameters
    ----------
    full, final
        Seconds of one microbatch in a stage with most layers, and in the last.
    """
    stages, chunks = layout["pipeline_parallel"], layout["virtual_pipeline"]
    odd = np.remainder(values["num_layers"], stages)
    behind = stages - odd
    lesser = full - layer.seconds
    even = (stages - 1) * full / chunks
    paced_by_final = np.where(odd > 0, odd * full + (behind - 1) * lesser, even)

    after = (behind - 1) * lesser + final
    forward = layer.forward / layer.seconds * full
    backward = full - forward
    waits = np.where(
        microbatches > behind,
        np.maximum(after - behind * forward, 0.0) + np.maximum(after - behind * backward, 0.0),
        np.maximum(after - (microbatches - 1) * np.minimum(forward, backward), 0.0),
    )
    paced_by_full = (odd - 1) * full + waits
    is_final = (odd == 0) | (
        microbatches * final + paced_by_final >= microbatches * full + paced_by_full
    )
    bubble = np.where(is_final, paced_by_final, paced_by_full)
    balances = values["balances_stages"]
    if not np.any(balances):
        return bubble, is_final
    most, last = stage_layers(values, layout)
    between = (values["num_layers"] - most - last) * layer.seconds
    others = np.maximum(between, 0.0) + np.minimum(full, final)
    others = np.where(stages > 1, others, 0.0)
    is_final = np.where(balances, (final >= full) | (stages == 1), is_final)
    return np.where(balances, others, bubble), is_final


def of_layers(layer: Layer) -> dict[str, Any]:
    """Return the seconds of one layer and microbatch by part of the step."""
    forward, backward, again = layer.forward, layer.backward, layer.recompute
    both = {name: forward[name] + backward[name] for name in forward}
    comm = {
        f"{name}_seconds": both[name] + again[name]
        for name in ("tensor_comm", "context_comm", "expert_comm")
    }
    # transfers at the same time as products take multiprocessors from them
    return {
        "gemm_seconds": both["gemm"] + both["hidden"],
        "attention_seconds": both["attention"],
        "elementwise_seconds": both["elementwise"],
        "recompute_seconds": again["gemm"]
        + again["attention"]
        + again["elementwise"]
        + again["hidden"],
        "host_seconds": both["host"],
        **comm,
    }


def _transfers(layer: Spent, values: Values, layout: Values, microbatches: Any) -> Any:
    """Return the seconds of a step for activations and their gradients between stages.

    Every rank of a tensor-parallel group sends its share of the tokens; where the next stage
    needs them whole it gathers them in its node (arXiv 2104.04473 section 4.1). A program may send
    more than one message, and let the host wait (`pipeline_hop_seconds`).
    """
    group = network.pipeline_of(values, layout)
    once = network.neighbour_seconds(group, layer.sent_bytes, values) + layer.gathering
    once = once + values["pipeline_hop_seconds"]
    stages, chunks = layout["pipeline_parallel"], layout["virtual_pipeline"]
    # a stage with several chunks waits only while the pipeline fills and drains
    overlap = np.where(chunks > 1, values["pipeline_overlap_fraction"], 0.0)
    steady = chunks * microbatches * (1 - overlap)
    ends = stages - 1 + overlap * stages * (chunks - 1)
    return np.where(stages > 1, 2 * once * (steady + ends), 0.0)
