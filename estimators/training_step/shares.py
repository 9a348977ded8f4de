"""Parameters of pipeline ranks on one GPU, before ZeRO; seconds to add their gradients up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Values
from estimators.decoder import Parameters
from estimators.factored import take
from estimators.training_step.pipelines import Ranks, over_kinds
from estimators.training_step.products import stream_seconds
from estimators.training_step.replicas import Share


def layer_shares(
    counts: Mapping[str, Parameters], values: Values, layout: Values
) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a layer of each kind on one GPU: outside and inside routed experts.

    Parameters
    ----------
    counts
        Kind of layer -> the parameters of one.
    """
    tensor = layout["tensor_parallel"]
    # with fewer key-value heads than ranks, each rank has a whole head: these are the copies
    copied = np.maximum(1 / values["num_kv_heads"] - 1 / tensor, 0.0)
    keys = 2 * values["hidden_size"] * values["num_kv_heads"] * values["head_size"] * copied
    split = layout["expert_tensor_parallel"] * layout["expert_parallel"]
    return {
        name: (each.split / tensor + each.whole + keys, each.experts / split)
        for name, each in counts.items()
    }


def stage_shares(
    ranks: Ranks, counts: Mapping[str, Parameters], values: Values, layout: Values
) -> list[Share]:
    """Return the parameters of the ranks that may have most, or need most memory.

    The first has the embedding, the last the output layer.

    Parameters
    ----------
    ranks
        See `pipelines.ranks_at`.
    counts
        Kind of layer -> the parameters of one.
    """
    tensor = layout["tensor_parallel"]
    ties = np.asarray(values["ties_embedding"], dtype=bool)
    each = layer_shares(counts, values, layout)
    any_count = next(iter(counts.values()))
    own_of = {name: dense for name, (dense, _) in each.items()}
    experts_of = {name: experts for name, (_, experts) in each.items()}
    shares = []
    for number in range(len(ranks.embedding)):
        has_words, has_output = ranks.embedding[number], ranks.output[number]
        layers = {name: of_kind[number] for name, of_kind in ranks.layers.items()}
        own = np.where(ties & (has_words > 0), 0.0, has_output)
        # layers that predict further tokens look words up, too
        looks_up = np.maximum(has_words, 1.0 * (layers.get("mtp", 0.0) > 0))
        looks_up = np.where(ties & (own > 0), has_words, looks_up)
        words = (looks_up * any_count.embedding + own * any_count.output) / tensor
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


class Added(NamedTuple):
    """Seconds of a microbatch to add the gradients of parameters to their buffers.

    Attributes
    ----------
    layers
        Kind of layer -> seconds of one layer.
    vocabulary
        Seconds of the embedding, or of the output layer.
    share
        Seconds of the rank with most parameters.
    """

    layers: dict[str, Any]
    vocabulary: Any
    share: Any

    def take(self, index: Array | None) -> Added:
        """Return one element a place of `index`; None: as it is."""
        layers = {name: take(each, index) for name, each in self.layers.items()}
        return Added(layers, take(self.vocabulary, index), take(self.share, index))


def added_of(
    counts: Mapping[str, Parameters], share: Share, values: Values, layout: Values
) -> Added:
    """Return the seconds to add gradients up; `share` is that with most parameters."""
    each = layer_shares(counts, values, layout)
    words = next(iter(counts.values())).embedding / layout["tensor_parallel"]

    def seconds(parameters: Any) -> Any:
        return stream_seconds(values["accumulation_traffic_bytes"] * parameters, values)

    return Added(
        {name: seconds(dense + experts) for name, (dense, experts) in each.items()},
        seconds(words),
        seconds(share.dense + share.experts),
    )
