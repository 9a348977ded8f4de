"""Seconds and energy of embedding, output layer and loss for one microbatch.

The vocabulary is split over the tensor-parallel group. The last stage has output layer and loss,
the first one the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import network, power
from estimators.training_step.formats import output_cast_bytes
from estimators.training_step.network import Group
from estimators.training_step.products import PASSES, Product, seconds_of, stream_seconds, timed
from estimators.training_step.unvectorized import LOSS_BYTES, lost_seconds


class Vocabulary(NamedTuple):
    """Seconds of both passes: embedding, output layer with loss, and their collectives.

    `joules` is the energy above idle of a GPU of the first stage and one of the last, together.
    """

    embedding: Any
    embedding_comm: Any
    output: Any
    output_comm: Any
    joules: Any


class Words(NamedTuple):
    """Seconds of both passes at full clock.

    Attributes
    ----------
    embedding, embedding_comm, output_comm
        See `Vocabulary`.
    products, loss, norm
        Seconds of the output layer's products, of the loss, and of the last norm.
    flops
        FLOPs of these products.
    known
        1 where the size of the vocabulary is known, else 0.
    """

    embedding: Any
    embedding_comm: Any
    products: Any
    loss: Any
    norm: Any
    output_comm: Any
    flops: Any
    known: Any


def vocabulary_of(words: Words, values: Values, clock: Any = 1.0) -> Vocabulary:
    """Return the seconds and the energy of both passes.

    Parameters
    ----------
    clock
        Clock of the layers (`power.clocks_of`): products slow down with it.
    """
    streams = words.loss + words.norm + words.embedding
    return Vocabulary(
        words.known * words.embedding,
        words.embedding_comm,
        words.known * (1 / clock * words.products + words.loss + words.norm),
        words.output_comm,
        words.known * power.vocabulary_joules(words.flops, streams, clock, values),
    )


def words_of(size: Any, values: Values, layout: Values) -> Words:
    """Return the seconds of both passes at full clock.

    With T tokens, width h, and V/t words on a rank: three products of T x V/t x h; loss passes of
    `loss_traffic_bytes` a logit; a last norm of 10 bytes an element; 14 bytes an element of
    embeddings, and `embedding_gradient_bytes` a weight for their gradient.

    Parameters
    ----------
    size
        One GPU's part of a layer, from `layer.size_of`.
    """
    tensor = layout["tensor_parallel"]
    group = Group(tensor, values["nvlink_size"])
    columns = np.maximum(values["vocab_size"], 1) / tensor
    ways = (
        Product(size.tokens, columns, size.hidden),
        Product(size.tokens, size.hidden, columns, way=PASSES[1]),
        Product(size.hidden, columns, size.tokens, way=PASSES[2]),
    )
    forward, inputs, weights = _of_output(ways, values)
    # the gradient of the weights is added to a buffer, as that of a layer's
    weights = values["accumulating_product_ratio"] * weights
    logits = size.tokens * columns
    casts = output_cast_bytes(size.tokens, size.hidden, logits, values)
    loss = stream_seconds(values["loss_traffic_bytes"] * logits + casts, values, 12.0)
    if np.any(values["unvectorized_loss"]):
        loss = loss + lost_seconds(values["unvectorized_loss"] * logits, LOSS_BYTES, values)
    # last norm: 4 bytes forward, 6 backward; a row looked up 4, its gradient added in 32 bits 10
    norm = stream_seconds(10.0 * size.rows * size.hidden, values, 2.0)
    rows = 14.0 * size.tokens * size.hidden
    # the gradient of the embedding has a row for every word
    whole = values["embedding_gradient_bytes"] * columns * size.hidden
    embedding = stream_seconds(rows + whole, values, 4.0)
    volume = 2.0 * size.tokens * size.hidden
    splits = layout["uses_sequence_parallel"]
    once = np.where(
        splits,
        network.gather_seconds(group, volume, values),
        network.reduce_seconds(group, volume, values),
    )
    # maximum, sum and target of the loss are reduced over the group in 32 bits
    small = 3 * network.reduce_seconds(group, 4.0 * size.tokens, values)
    flops = 3 * 2.0 * size.tokens * columns * size.hidden
    known = np.where(values["vocab_size"] > 0, 1.0, 0.0)
    twice = np.where(splits, 2.0, 1.0)
    return Words(
        embedding,
        known * twice * once,
        forward + inputs + weights,
        loss,
        norm,
        known * (once * twice + small),
        flops,
        known,
    )


def _of_output(ways: Sequence[Product], values: Values) -> Sequence[Any]:
    """Return the seconds of the output layer's products, in 16 bits if it is not quantized."""
    found = seconds_of(ways, values, low=False)
    is_low = np.asarray(values["quantizes_output_layer"], dtype=bool)
    if not (np.any(is_low) and np.any(values["low_format"])):
        return found
    low = timed(ways, values, low=True)
    return [np.where(is_low, one, other) for one, other in zip(low, found, strict=True)]
