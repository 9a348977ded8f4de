"""Seconds of the core of attention: scores, softmax, and their product with the values.

Fused kernels (FlashAttention, arXiv 2205.14135 and 2307.08691) keep the scores on chip and
leave out the blocks above the diagonal. Separate operations compute all of them, read and
write them, and drop some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.decoder import attended_length, unwindowed_share
from estimators.kernels.attention import BLOCK, IN_8_BITS
from estimators.structure import equals
from estimators.training_step.gemm import IN_16_BITS, Gemm, gemm_seconds, stream_seconds
from estimators.training_step.streams import Streams

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Real


class Core(NamedTuple):
    """Seconds of the core at full clock: arithmetic of both passes, and memory-bound work.

    A fused kernel is arithmetic. Separate operations also stream the scores through memory.
    """

    forward: Real
    backward: Real
    streams: Streams = Streams(0.0, 0.0, 0.0, 0.0)

    def at(self, clock: Real) -> dict[str, Real]:
        """Return the seconds of each pass at a clock."""
        return {
            "forward": self.forward / clock + self.streams.forward,
            "backward": self.backward / clock + self.streams.backward,
        }


def attention_core(size: Size, problem: Problem, layout: Layout) -> Core:
    """Return the seconds of the core of attention, fused or not as `attention` says."""
    is_flash = equals(problem.choices.attention, "flash")
    flash = _flash(size, problem, layout) if np.any(is_flash) else Core(0.0, 0.0)
    if np.all(is_flash):
        return flash
    unfused = _unfused(size, problem, layout)
    return Core(
        np.where(is_flash, flash.forward, unfused.forward),
        np.where(is_flash, flash.backward, unfused.backward),
        Streams(*(np.where(is_flash, 0.0, part) for part in unfused.streams)),
    )


def backward_products(shape: Shape) -> Real:
    """Return the FLOPs of the fused backward pass over those of the forward pass.

    ``(3 keys + 2 values) / (keys + values)`` for the widths of a head's keys and values; 2.5 where
    they are equal (arXiv 2307.08691 section 4.1). Three of its five products have the width of the
    keys (the scores again, the gradients of queries and keys), two have that of the values.
    """
    keys = shape.qk_head_size + shape.qk_rotary_size
    return (3.0 * keys + 2.0 * shape.v_head_size) / (keys + shape.v_head_size)


def flash_flops(size: Size, shape: Shape, layout: Layout) -> Real:
    """Return the FLOPs of the fused forward pass of a layer, with blocks on the diagonal whole."""
    whole = _flops_of(shape.seq_len, size, layout)
    if not np.any(shape.attention_window):
        return whole
    share = unwindowed_share(shape)
    return share * whole + (1 - share) * _flops_of(attended_length(shape), size, layout)


def _flops_of(length: Real, size: Size, layout: Layout) -> Real:
    """Return the FLOPs of the fused forward pass over sequences of a length.

    ``2 T s (queries + results) x (1 + 128 c / s) / 2``: half of the square, and all of the blocks
    on its diagonal. T are the tokens of a GPU, s the length, c the context-parallel ranks; queries
    and results are widths of a GPU.
    """
    causal = np.minimum(0.5 * (1 + BLOCK * layout.context_parallel / length), 1.0)
    flops: Real = 2.0 * size.tokens * length * (size.query + size.result) * causal
    return flops


def _flash(size: Size, problem: Problem, layout: Layout) -> Core:
    """Return the seconds of a fused kernel in an average layer, with a window or without.

    A layer with a window takes the time of shorter sequences with as much causal attention
    (`decoder.attended_length`). The backward pass of cuDNN in MXFP8 does not profit: it grows with
    the square of the whole length (NVIDIA/cudnn-frontend @3929da2
    benchmark/sdpa_benchmark_training/results/gpt_oss).
    """
    length = problem.shape.seq_len
    whole = _flash_of(length, size, problem, layout)
    if not np.any(problem.shape.attention_window):
        return whole
    windowed = _flash_of(attended_length(problem.shape), size, problem, layout)
    # in 8 bits the backward kernel does not skip products outside the window
    skips = ~equals(problem.kernels.attention_program, IN_8_BITS)
    backward = np.where(skips, windowed.backward, whole.backward)
    share = unwindowed_share(problem.shape)
    return Core(
        share * whole.forward + (1 - share) * windowed.forward,
        share * whole.backward + (1 - share) * backward,
    )


def _flash_of(length: Real, size: Size, problem: Problem, layout: Layout) -> Core:
    """Return the seconds of a fused kernel: at its program's rates, else at a share of the peak.

    Parameters
    ----------
    length
        Sequence length of the attention that is computed. Tokens and blocks are those of the layer.
    """
    system, kernels = problem.system, problem.kernels
    context, flops = layout.context_parallel, _flops_of(length, size, layout)
    of_sequence = np.ceil(problem.shape.seq_len / (context * BLOCK))
    blocks = layout.microbatch_size * size.heads * of_sequence
    waves = blocks / system.num_sms
    # blocks of a causal kernel differ in work: only less than one whole wave stays unfilled
    peak = system.matrix_flops_per_second * np.minimum(waves, 1.0)
    products = backward_products(problem.shape)
    forward = flops / (peak * kernels.flash_forward_efficiency)
    backward = products * flops / (peak * kernels.flash_backward_efficiency)
    if kernels.measured is not None and kernels.measured.attention:
        measured = kernels.measured.attention.seconds(
            size.tokens * length * (size.query + size.result),
            length / context,
            blocks,
            system.matrix_flops_per_second,
            system.num_sms,
            products,
        )
        forward, backward = (
            np.where(np.isnan(seconds), computed, seconds)
            for seconds, computed in zip(measured, (forward, backward), strict=True)
        )
    factor, launch = kernels.attention_rate_factor, system.launch_seconds
    forward = forward / factor
    backward = backward / (factor * kernels.backward_attention_rate_factor)
    return Core(forward + launch, backward + 3 * launch)


def _unfused(size: Size, problem: Problem, layout: Layout) -> Core:
    """Return the seconds of attention as separate operations; bytes counted from the operations."""
    length, batch = problem.shape.seq_len, layout.microbatch_size * size.heads
    keys, results = size.query / size.heads, size.result / size.heads
    scores, values = (
        gemm_seconds(Gemm(length, columns, depth, batch), problem, IN_16_BITS)
        for columns, depth in ((length, keys), (results, length))
    )
    entries = batch * length * length
    drops, fuses = problem.program.uses_dropout, problem.program.fuses_elementwise
    # softmax: 2 bytes in and out; separate operations scale, mask and convert in 32 bits
    forward_bytes = np.where(fuses, 4.0, 28.0) + np.where(drops, 5.0, 0.0)
    backward_bytes = np.where(fuses, 6.0, 34.0) + np.where(drops, 5.0, 0.0)
    kernels = np.where(fuses, 1.0, 5.0) + np.where(drops, 1.0, 0.0) + 4
    # heads are moved to the front and back again
    copies = 4.0 * size.tokens * (size.query + size.key + size.value + size.result)
    moved = forward_bytes * entries + copies, backward_bytes * entries + copies
    forward, backward = (stream_seconds(volume, problem.system, kernels) for volume in moved)
    streams = Streams(forward, backward, *moved)
    return Core(scores + values, 2 * (scores + values), streams)
