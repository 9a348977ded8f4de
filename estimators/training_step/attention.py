"""Seconds of the core of attention: scores, softmax, and their product with the values.

Fused kernels (FlashAttention, arXiv 2205.14135 and 2307.08691) keep the scores on chip and
leave out the blocks above the diagonal. Separate operations compute all of them, read and
write them, and drop some.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.decoder import attended_length, unwindowed_share
from estimators.kernels.attention import BLOCK, IN_8_BITS
from estimators.training_step.products import product_seconds, stream_seconds

FLASH_BLOCK = BLOCK
"""Queries of one block, and keys of one step, of the fused kernels."""


class Core(NamedTuple):
    """Seconds of the core: forward, backward, and repeated by selective recomputation."""

    forward: Any
    backward: Any
    again: Any


def attention_core(size: Any, values: Values, layout: Values) -> Core:
    """Return the seconds of the core of attention, fused or not as `attention` says."""
    is_flash = np.equal(values["attention"], "flash")
    flash = _flash(size, values, layout) if np.any(is_flash) else Core(0.0, 0.0, 0.0)
    if np.all(is_flash):
        return flash
    unfused = _unfused(size, values, layout)
    return Core(*(np.where(is_flash, a, b) for a, b in zip(flash, unfused, strict=True)))


def backward_products(values: Values) -> Any:
    """Return the FLOPs of the fused backward pass over those of the forward pass.

    ``(3 keys + 2 values) / (keys + values)`` for the widths of a head's keys and values; 2.5 where
    they are equal (arXiv 2307.08691 section 4.1). Three of its five products have the width of the
    keys (the scores again, the gradients of queries and keys), two have that of the values.
    """
    keys = values["qk_head_size"] + values["qk_rotary_size"]
    return (3.0 * keys + 2.0 * values["v_head_size"]) / (keys + values["v_head_size"])


def flash_flops(size: Any, values: Values, layout: Values) -> Any:
    """Return the FLOPs of the fused forward pass of a layer, with blocks on the diagonal whole."""
    whole = _flops_of(values["seq_len"], size, layout)
    if not np.any(values["attention_window"]):
        return whole
    share = unwindowed_share(values)
    return share * whole + (1 - share) * _flops_of(attended_length(values), size, layout)


def _flops_of(length: Any, size: Any, layout: Values) -> Any:
    """Return the FLOPs of the fused forward pass over sequences of a length.

    ``2 T s (queries + results) x (1 + 128 c / s) / 2``: half of the square, and all of the blocks
    on its diagonal. T are the tokens of a GPU, s the length, c the context-parallel ranks; queries
    and results are widths of a GPU.
    """
    causal = np.minimum(0.5 * (1 + FLASH_BLOCK * layout["context_parallel"] / length), 1.0)
    return 2.0 * size.tokens * length * (size.query + size.result) * causal


def _flash(size: Any, values: Values, layout: Values) -> Core:
    """Return the seconds of a fused kernel in an average layer, with a window or without.

    A layer with a window takes the time of shorter sequences with as much causal attention
    (`decoder.attended_length`). The backward pass of cuDNN in MXFP8 does not profit: it grows with
    the square of the whole length (NVIDIA/cudnn-frontend @3929da2
    benchmark/sdpa_benchmark_training/results/gpt_oss).
    """
    length = values["seq_len"]
    whole = _flash_of(length, size, values, layout)
    if not np.any(values["attention_window"]):
        return whole
    windowed = _flash_of(attended_length(values), size, values, layout)
    # in 8 bits the backward kernel does not skip products outside the window
    skips = np.not_equal(values["attention_program"], IN_8_BITS)
    windowed = windowed._replace(backward=np.where(skips, windowed.backward, whole.backward))
    share = unwindowed_share(values)
    return Core(*(share * a + (1 - share) * b for a, b in zip(whole, windowed, strict=True)))


def _flash_of(length: Any, size: Any, values: Values, layout: Values) -> Core:
    """Return the seconds of a fused kernel: at its program's rates, else at a share of the peak.

    Parameters
    ----------
    length
        Sequence length of the attention that is computed. Tokens and blocks are those of the layer.
    """
    context, flops = layout["context_parallel"], _flops_of(length, size, layout)
    of_sequence = np.ceil(values["seq_len"] / (context * FLASH_BLOCK))
    blocks = layout["microbatch_size"] * size.heads * of_sequence
    waves = blocks / values["num_sms"]
    # blocks of a causal kernel differ in work: only less than one whole wave stays unfilled
    share = np.minimum(waves, 1.0)
    peak = values["matrix_flops_per_second"] * share
    products = backward_products(values)
    forward = flops / (peak * values["flash_forward_efficiency"])
    backward = products * flops / (peak * values["flash_backward_efficiency"])
    if values["attention_rates"]:
        own = length / context
        measured = values["attention_rates"].seconds(
            size.tokens * length * (size.query + size.result),
            own,
            blocks,
            values["matrix_flops_per_second"],
            values["num_sms"],
            products,
        )
        forward, backward = (
            np.where(np.isnan(found), computed, found)
            for found, computed in zip(measured, (forward, backward), strict=True)
        )
    factor, launch = values["attention_rate_factor"], values["launch_seconds"]
    forward = forward / factor
    backward = backward / (factor * values["backward_attention_rate_factor"])
    return Core(forward + launch, backward + 3 * launch, forward + launch)


def _unfused(size: Any, values: Values, layout: Values) -> Core:
    """Return the seconds of attention as separate operations; bytes counted from the operations."""
    length, batch = values["seq_len"], layout["microbatch_size"] * size.heads
    keys, results = size.query / size.heads, size.result / size.heads
    product = {
        "scores": product_seconds(length, length, keys, values, batch, low=False),
        "values": product_seconds(length, results, length, values, batch, low=False),
    }
    entries = batch * length * length
    drops, fuses = values["uses_dropout"], values["fuses_elementwise"]
    # softmax: 2 bytes in and out; separate operations scale, mask and convert in 32 bits
    forward_bytes = np.where(fuses, 4.0, 28.0) + np.where(drops, 5.0, 0.0)
    backward_bytes = np.where(fuses, 6.0, 34.0) + np.where(drops, 5.0, 0.0)
    kernels = np.where(fuses, 1.0, 5.0) + np.where(drops, 1.0, 0.0)
    # heads are moved to the front and back again
    copies = 4.0 * size.tokens * (size.query + size.key + size.value + size.result)
    forward = product["scores"] + product["values"]
    forward = forward + stream_seconds(forward_bytes * entries + copies, values, kernels + 4)
    backward = 2 * (product["scores"] + product["values"])
    backward = backward + stream_seconds(backward_bytes * entries + copies, values, kernels + 4)
    return Core(forward, backward, forward)
