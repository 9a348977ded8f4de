"""Layers that predict tokens after the next one: multi-token prediction.

Each has a projection and a layer of the model's last kind. The projection takes the hidden states,
joined with the embeddings of the next tokens, to the width of the stream. Embedding, output layer
and loss run once more for each. All run behind the last layer, on the rank with the output layer
(arXiv 2412.19437 section 2.2; NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer/multi_token_prediction.py, `MultiTokenPredictionLayer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.training_step import network, power
from estimators.training_step.kinds import Kind
from estimators.training_step.network import Group
from estimators.training_step.products import PASSES, Product, seconds_of, stream_seconds
from estimators.training_step.spent import Spent
from estimators.training_step.vocabulary import Vocabulary


def with_further_tokens(
    words: Vocabulary,
    kinds: Sequence[Kind],
    spent: Sequence[Spent],
    size: Any,
    values: Values,
    layout: Values,
) -> Vocabulary:
    """Return the vocabulary with the costs of further tokens on the rank of the output layer.

    Parameters
    ----------
    words
        Of the next token alone.
    kinds, spent
        The kinds of layers of a model, and the seconds of one of each.
    """
    if not np.any(values["num_mtp_layers"]):
        return words
    layer = _last(kinds, [each.seconds for each in spent])
    joules = _last(kinds, [each.joules for each in spent])
    clock = _last(kinds, [each.clock for each in spent])
    seconds, comm, own_joules = projection_of(size, values, layout, clock)
    times = values["num_mtp_layers"]
    return words._replace(
        output=words.output + times * (layer + seconds + words.output + words.embedding),
        output_comm=words.output_comm + times * (comm + words.output_comm + words.embedding_comm),
        joules=words.joules + times * (joules + own_joules + words.joules),
    )


def projection_of(size: Any, values: Values, layout: Values, clock: Any) -> tuple[Any, Any, Any]:
    """Return the seconds of the projection with its norms, of its collectives, and its energy.

    The projection, 2 h by h, is split by its columns. Ranks gather its result, and each takes its
    rows of the sequence; backward likewise. Two norms come before it, and their results are joined.
    """
    wide, narrow = 2.0 * size.hidden, size.hidden / layout["tensor_parallel"]
    ways = (
        Product(size.tokens, narrow, wide),
        Product(size.tokens, wide, narrow, way=PASSES[1]),
        Product(wide, narrow, size.tokens, way=PASSES[2]),
    )
    forward, inputs, weights = seconds_of(ways, values)
    products = forward + inputs + values["accumulating_product_ratio"] * weights
    # norms 4 forward and 6 backward, joined and parted 4 each
    streams = stream_seconds(18.0 * size.rows * wide, values, 8.0)
    group = Group(layout["tensor_parallel"], values["nvlink_size"])
    volume = 2.0 * size.tokens * size.hidden
    once = network.gather_seconds(group, volume, values)
    twice = network.gather_seconds(group, 2 * volume, values)
    # under sequence parallelism: gathered before, and gradients scattered
    split, whole = 2 * twice + 2 * once, once + network.reduce_seconds(group, 2 * volume, values)
    flops = 3 * 2.0 * size.tokens * wide * narrow
    return (
        products / clock + streams,
        np.where(layout["uses_sequence_parallel"], split, whole),
        power.vocabulary_joules(flops, streams, clock, values),
    )


def _last(kinds: Sequence[Kind], figures: Sequence[Any]) -> Any:
    """Return the figure of the model's last kind of layer: the mixture, if it has one."""
    if len(kinds) == 1:
        return figures[0]
    return np.where(np.greater(kinds[-1].share, 0), figures[-1], figures[0])
