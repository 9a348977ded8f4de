"""Seconds and energy of embedding, output layer and loss for one microbatch.

The vocabulary is split over the tensor-parallel group. The last stage has output layer and loss,
the first one the embedding.

Multi-token prediction adds layers that predict tokens after the next one. Each has a projection and
a layer of the model's last kind. The projection takes the hidden states, joined with the embeddings
of the next tokens, to the width of the stream. Embedding, output layer and loss run once more for
each. All run behind the last layer, on the rank with the output layer (arXiv 2412.19437 section
2.2; NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/multi_token_prediction.py,
`MultiTokenPredictionLayer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.training_step import network, power
from estimators.training_step.formats import output_cast_bytes
from estimators.training_step.gemm import (
    IN_16_BITS,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Gemm,
    seconds_of,
    stream_seconds,
    timed,
)
from estimators.training_step.network import Group
from estimators.training_step.streams import LOSS_BYTES, lost_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Real


class Vocabulary(NamedTuple):
    """Seconds of both passes: embedding, output layer with loss, and their collectives.

    `joules` is the energy above idle of a GPU of the first stage and one of the last, together.
    """

    embedding: Real
    embedding_comm: Real
    output: Real
    output_comm: Real
    joules: Real


class VocabularyWork(NamedTuple):
    """Seconds of both passes at full clock.

    Attributes
    ----------
    embedding, embedding_comm, output_comm
        See `Vocabulary`.
    matmuls, streams
        Seconds of the output layer's matmuls; of the loss and of the last norm.
    matmul_joules
        Energy of these matmuls, at `clock_at_limit`.
    moved, embedding_moved
        Bytes that loss and norm, and the embedding, read and write.
    known
        1 where the size of the vocabulary is known, else 0.
    """

    embedding: Real
    embedding_comm: Real
    matmuls: Real
    streams: Real
    output_comm: Real
    matmul_joules: Real
    moved: Real
    embedding_moved: Real
    known: Real


def vocabulary_of(work: VocabularyWork, problem: Problem) -> Vocabulary:
    """Return the seconds and the energy of both passes."""
    output = _at_limit(
        *(work.matmuls, work.streams, work.output_comm, work.matmul_joules, work.moved), problem
    )
    embedding = problem.power.memory_joules_per_byte * work.embedding_moved
    return Vocabulary(
        work.known * work.embedding,
        work.embedding_comm,
        work.known * output.seconds,
        work.output_comm,
        work.known * (output.joules + embedding),
    )


class _Limited(NamedTuple):
    """Seconds and joules above idle of matmuls and streams, under the power limit."""

    seconds: Real
    joules: Real


def _at_limit(
    matmuls: Real, streams: Real, comm: Real, joules: Real, moved: Real, problem: Problem
) -> _Limited:
    """Return the matmuls and streams at the clock at which their mean power is the limit.

    Parameters
    ----------
    comm
        Seconds of collectives that the GPU waits for.
    joules, moved
        Energy of the matmuls at `clock_at_limit`, and bytes of the streams.
    """
    limits = problem.power
    others = limits.memory_joules_per_byte * moved + limits.transfer_watts * comm
    load = power.Load(matmuls, streams + comm, joules, others)
    balance = power.balance_of(None, load, lambda _: (None, load), limits, problem.run.num_gpus)
    return _Limited(
        matmuls / balance.clock + streams, balance.joules - limits.transfer_watts * comm
    )


def vocabulary_work(size: Size, problem: Problem, layout: Layout) -> VocabularyWork:
    """Return the seconds of both passes at full clock.

    With T tokens, width h, and V/t entries of the vocabulary on a rank: three matmuls of
    T x V/t x h; loss passes of `loss_traffic_bytes` a logit; a last norm of 10 bytes an element;
    14 bytes an element of embeddings, and `embedding_gradient_bytes` a weight for their gradient.
    """
    system, program = problem.system, problem.program
    group = Group(layout.tensor_parallel, problem.network.nvlink_size)
    columns = np.maximum(problem.shape.vocab_size, 1) / layout.tensor_parallel
    logits, volume = size.tokens * columns, 2.0 * size.tokens * size.hidden
    casts = output_cast_bytes(size.tokens, size.hidden, logits, problem)
    of_loss = program.loss_traffic_bytes * logits + casts
    loss = stream_seconds(of_loss, system, 12.0)
    if np.any(program.unvectorized_loss):
        loss = loss + lost_seconds(program.unvectorized_loss * logits, LOSS_BYTES, system)
    # last norm: 4 bytes forward, 6 backward; a row looked up 4, its gradient added in 32 bits 10
    of_norm = 10.0 * size.rows * size.hidden
    norm = stream_seconds(of_norm, system, 2.0)
    # the gradient of the embedding has a row for every entry of the vocabulary
    whole = program.embedding_gradient_bytes * columns * size.hidden
    looked_up = 14.0 * size.tokens * size.hidden + whole
    splits = layout.uses_sequence_parallel
    collective = np.where(
        splits,
        network.gather_seconds(group, volume, problem.network),
        network.reduce_seconds(group, volume, problem.network),
    )
    # maximum, sum and target of the loss are reduced over the group in 32 bits
    small = 3 * network.reduce_seconds(group, 4.0 * size.tokens, problem.network)
    known = np.where(problem.shape.vocab_size > 0, 1.0, 0.0)
    twice = np.where(splits, 2.0, 1.0)
    formats, flops = problem.formats, 3 * 2.0 * size.tokens * columns * size.hidden
    number_format = np.where(formats.quantizes_output_layer, formats.low_format, IN_16_BITS)
    return VocabularyWork(
        stream_seconds(looked_up, system, 4.0),
        known * twice * collective,
        _matmul_seconds(size, columns, problem),
        loss + norm,
        known * (collective * twice + small),
        power.gemm_joules(flops, problem, number_format),
        of_loss + of_norm,
        looked_up,
        known,
    )


def _matmul_seconds(size: Size, columns: Real, problem: Problem) -> Real:
    """Return the seconds of the output layer's matmuls, in 16 bits if it is not quantized."""
    gemms = _passes(size.tokens, columns, size.hidden)
    seconds = timed(gemms, problem, IN_16_BITS)
    low_format, is_low = problem.formats.low_format, problem.formats.quantizes_output_layer
    if np.any(is_low) and np.any(low_format):
        low = timed(gemms, problem, low_format)
        seconds = [np.where(is_low, *both) for both in zip(low, seconds, strict=True)]
    return _added_up(seconds, problem)


def _passes(rows: Real, columns: Real, depth: Real) -> tuple[Gemm, Gemm, Gemm]:
    """Return the GEMMs of a matmul in the three passes."""
    return (
        Gemm(rows, columns, depth),
        Gemm(rows, depth, columns, in_pass=INPUT_GRADIENT),
        Gemm(depth, columns, rows, in_pass=WEIGHT_GRADIENT),
    )


def _added_up(seconds: Sequence[Real], problem: Problem) -> Real:
    """Return the seconds of three passes; the weights' gradient is added to a buffer."""
    forward, inputs, weights = seconds
    return forward + inputs + problem.kernels.accumulating_product_ratio * weights


# ---- further tokens ----


class FurtherLayer(NamedTuple):
    """Seconds and joules of a layer that predicts a further token."""

    seconds: Real
    joules: Real


def with_further_tokens(
    vocabulary: Vocabulary, layer: FurtherLayer, size: Size, problem: Problem, layout: Layout
) -> Vocabulary:
    """Return the vocabulary with the costs of further tokens on the rank of the output layer.

    `vocabulary` is that of the next token alone.
    """
    times = problem.shape.num_mtp_layers
    projection = projection_of(size, problem, layout)
    output, embedding = vocabulary.output, vocabulary.embedding
    comm = projection.comm + vocabulary.output_comm + vocabulary.embedding_comm
    joules = layer.joules + projection.joules + vocabulary.joules
    return vocabulary._replace(
        output=output + times * (layer.seconds + projection.seconds + output + embedding),
        output_comm=vocabulary.output_comm + times * comm,
        joules=vocabulary.joules + times * joules,
    )


class Projection(NamedTuple):
    """Seconds of a projection with its norms, of its collectives, and its energy above idle."""

    seconds: Real
    comm: Real
    joules: Real


def projection_of(size: Size, problem: Problem, layout: Layout) -> Projection:
    """Return the costs of the projection of a further token.

    The projection, 2 h by h, is split by its columns. Ranks gather its result, and each takes its
    rows of the sequence; backward likewise. Two norms come before it, and their results are joined.
    """
    wide, narrow = 2.0 * size.hidden, size.hidden / layout.tensor_parallel
    matmuls = _added_up(seconds_of(_passes(size.tokens, narrow, wide), problem), problem)
    # norms 4 forward and 6 backward, joined and parted 4 each
    moved = 18.0 * size.rows * wide
    streams = stream_seconds(moved, problem.system, 8.0)
    group = Group(layout.tensor_parallel, problem.network.nvlink_size)
    volume = 2.0 * size.tokens * size.hidden
    single = network.gather_seconds(group, volume, problem.network)
    double = network.gather_seconds(group, 2 * volume, problem.network)
    # under sequence parallelism: gathered before, and gradients scattered
    split = 2 * double + 2 * single
    whole = single + network.reduce_seconds(group, 2 * volume, problem.network)
    comm = np.where(layout.uses_sequence_parallel, split, whole)
    joules = power.gemm_joules(3 * 2.0 * size.tokens * wide * narrow, problem)
    limited = _at_limit(matmuls, streams, comm, joules, moved, problem)
    return Projection(limited.seconds, comm, limited.joules)
