"""Seconds of the core of attention: scores, softmax, and their product with the values.

Fused kernels (FlashAttention, arXiv 2205.14135 and 2307.08691) keep the scores on chip and
leave out the blocks above the diagonal. Separate operations compute all of them, read and
write them, and drop some.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.kernels.attention import BACKWARD_PRODUCTS, BLOCK
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


def _flash(size: Any, values: Values, layout: Values) -> Core:
    """Return the seconds of a fused kernel: at its program's rates, else at a share of the peak."""
    length, context = values["seq_len"], layout["context_parallel"]
    # a block on the diagonal is computed whole
    causal = np.minimum(0.5 * (1 + FLASH_BLOCK * context / length), 1.0)
    flops = 4.0 * size.tokens * length * size.query * causal
    heads = size.query / values["head_size"]
    blocks = layout["microbatch_size"] * heads * np.ceil(length / (context * FLASH_BLOCK))
    waves = blocks / values["num_sms"]
    # blocks of a causal kernel differ in work: only less than one whole wave stays unfilled
    share = np.minimum(waves, 1.0)
    peak = values["matrix_flops_per_second"] * share
    forward = flops / (peak * values["flash_forward_efficiency"])
    backward = BACKWARD_PRODUCTS * flops / (peak * values["flash_backward_efficiency"])
    if values["attention_rates"]:
        own = length / context
        measured = values["attention_rates"].seconds(
            2.0 * size.tokens * length * size.query,
            own,
            blocks,
            values["matrix_flops_per_second"],
            values["num_sms"],
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
    length, width = values["seq_len"], values["head_size"]
    batch = layout["microbatch_size"] * size.query / width
    product = {
        "scores": product_seconds(length, length, width, values, batch, low=False),
        "values": product_seconds(length, width, length, values, batch, low=False),
    }
    entries = batch * length * length
    drops, fuses = values["uses_dropout"], values["fuses_elementwise"]
    # softmax: 2 bytes in and out; separate operations scale, mask and convert in 32 bits
    forward_bytes = np.where(fuses, 4.0, 28.0) + np.where(drops, 5.0, 0.0)
    backward_bytes = np.where(fuses, 6.0, 34.0) + np.where(drops, 5.0, 0.0)
    kernels = np.where(fuses, 1.0, 5.0) + np.where(drops, 1.0, 0.0)
    # heads are moved to the front and back again
    copies = 4.0 * size.tokens * (2 * size.query + 2 * size.key)
    forward = product["scores"] + product["values"]
    forward = forward + stream_seconds(forward_bytes * entries + copies, values, kernels + 4)
    backward = 2 * (product["scores"] + product["values"])
    backward = backward + stream_seconds(backward_bytes * entries + copies, values, kernels + 4)
    return Core(forward, backward, forward)
