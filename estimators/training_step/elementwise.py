"""Seconds of the memory traffic of a layer between its products.

Bytes are counted for each element of 16 bits: 2 to read, 2 to write, 1 for a dropout mask.

- With `fuses_elementwise` each group that Megatron-LM fuses is one kernel: bias and GeLU; bias,
  dropout and residual; a norm; rotary embedding.
- Without it the kernels are those of eager PyTorch. The product adds the bias. PyTorch's layer norm
  reads its inputs twice backward. A gated model writes its norm (RMS) out in 32 bits
  (pytorch/torchtitan @82f7387f torchtitan/models/norms.py RMSNorm).

The gate of a gated layer and copies of queries, keys and values are constants of each program.
Casts to 8 and 4 bits are those of Transformer Engine (module `formats`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step.dispatch import moved_bytes
from estimators.training_step.formats import are_fused, casts
from estimators.training_step.latent import traffic as latent_traffic
from estimators.training_step.products import stream_seconds
from estimators.training_step.small_parts import turns_slowly
from estimators.training_step.small_parts import work as small_work
from estimators.training_step.unvectorized import (
    COPY_BYTES,
    GATE_BYTES,
    NORM_BACKWARD,
    NORM_FORWARD,
    ROTARY,
    lost_in,
    lost_seconds,
)

RMS_FORWARD = (6, 8, 4, 8, 6, 4)
"""Bytes an element of a norm written out, kernel by kernel: cast to 32 bits, square, mean, product
with the inverse root, cast to 16 bits, product with the weight."""

RMS_BACKWARD = (4, 8, 6, 8, 16, 4, 28, 12, 6)
"""Bytes an element of its backward pass: gradient of the product with the weight 4, of the weight
8; cast to 32 bits 6; gradient of the product with the root 8, of the root 16, of the mean 4, of the
square 28 (a power of one, two products); sum of both 12; cast to 16 bits 6."""


JOINED_BYTES = 4.0
"""Bytes an element to join the gradients of queries, keys and values to that of their product;
`torch.cat` loads several elements at once since PyTorch 2.8 (NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/utils.py SplitAlongDim)."""


class Ways(NamedTuple):
    """Seconds of the forward and of the backward pass.

    `experts` is the part of `forward` that puts tokens in order and works between routed experts.
    """

    forward: Any
    backward: Any
    experts: Any = 0.0


def layer_seconds(size: Any, values: Values, layout: Values) -> Ways:
    """Return the seconds of a layer's memory-bound work besides the core of attention."""
    sparse = values["sparse_share"]
    fuses, gated = values["fuses_elementwise"], values["uses_glu"]
    drops = values["uses_dropout"]
    between = size.rows * size.hidden
    norms = _either(
        fuses,
        (4, 6),
        np.where(gated, sum(RMS_FORWARD), 4.0),
        np.where(gated, sum(RMS_BACKWARD), 10.0),
    )
    # the residual stream forks before a norm: its two gradients are added up
    residual = Ways(6.0, 6.0)
    masks = _either(fuses, (1, 5), np.where(drops, 5.0, 0.0), np.where(drops, 5.0, 0.0))
    dropped = np.where(drops, 1.0, 0.0)
    biases = np.where(values["uses_linear_bias"], 2.0, 0.0)
    forward = 2 * between * (norms.forward + residual.forward + dropped * masks.forward)
    backward = (
        2 * between * (norms.backward + residual.backward + dropped * masks.backward + biases)
    )

    activation = Ways(
        np.where(gated, values["gate_forward_bytes"], 4.0),
        np.where(gated, values["gate_backward_bytes"], 8.0),
    )
    routed = sparse * size.experts * size.expert_tokens * size.expert_ffn
    routed = np.where(are_fused(values), 0.0, routed)
    inside = (1 - sparse) * size.tokens * size.ffn + sparse * size.tokens * size.shared_ffn + routed
    forward = forward + inside * activation.forward
    backward = backward + inside * activation.backward

    turned = np.where(_turns_heads(size, values), size.tokens * (size.query + size.key), 0.0)
    turned = np.where(turns_slowly(values), 0.0, turned)
    rotary = _either(fuses, (4, 4), 20.0, 20.0)
    forward, backward = forward + turned * rotary.forward, backward + turned * rotary.backward

    latent, small = latent_traffic(size, values), small_work(size, values, norms)
    forward = forward + latent[0] + small[0].moved
    backward = backward + latent[1] + small[1].moved

    moved = size.tokens * (size.query + size.key + size.value)
    forward = forward + moved * values["forward_copy_bytes"]
    backward = backward + moved * values["backward_copy_bytes"]
    grouped = np.where(_copies_queries(size, values), size.tokens, 0.0)
    forward = forward + grouped * size.query * COPY_BYTES
    backward = backward + grouped * (size.query + size.key + size.value) * JOINED_BYTES

    # each pass gathers the sequence before two products and scatters it after two
    copied = np.where(size.rows < size.tokens, 4.0, 0.0) * size.tokens * size.hidden
    forward = forward + copied * values["exchange_copy_bytes"]
    backward = backward + copied * values["exchange_copy_bytes"]

    # copies of tokens go to their experts and come back, weighted
    experts: Any = 0.0
    if np.any(sparse):
        moved_tokens = sparse * moved_bytes(size, values, layout)
        forward, backward = forward + moved_tokens, backward + moved_tokens
        experts = moved_tokens + routed * activation.forward + small[2].moved

    kernels = np.where(fuses, 7.0, 22.0) + np.where(sparse > 0, 8.0, 0.0)
    more = 1.5 * kernels
    if np.any(values["low_format"]):
        cast = casts(size, values)
        forward, backward = forward + cast.forward, backward + cast.backward
        kernels, more = kernels + cast.forward_kernels, more + cast.backward_kernels
        experts = experts + cast.experts
    lost = _lost(size, inside, moved, turned, values)
    of_queries = lost_seconds(grouped * size.query, COPY_BYTES, values)
    return Ways(
        stream_seconds(forward, values, kernels)
        + (lost.forward + of_queries + small[0].lost_seconds),
        stream_seconds(backward, values, more) + lost.backward + small[1].lost_seconds,
        stream_seconds(experts, values) + small[2].lost_seconds if np.any(sparse) else 0.0,
    )


def _turns_heads(size: Any, values: Values) -> Any:
    """Return whether queries and keys have rotary positions, without latents.

    Gated models have rotary positions, and so have models in which groups of queries share a key:
    Nemotron-4 (arXiv 2402.16819 section 2), StarCoder2 (arXiv 2402.19173). A model with one key for
    all queries may have learned positions (StarCoder, arXiv 2305.06161).
    """
    heads = values["num_kv_heads"]
    grouped = np.greater(heads, 1) & np.less(heads, values["num_heads"])
    return (np.asarray(values["uses_glu"], dtype=bool) | grouped) & np.equal(size.key_latent, 0)


def _copies_queries(size: Any, values: Values) -> Any:
    """Return whether queries are copied because several share a key.

    The merged product has queries, keys and values group by group. Queries are a view of it only if
    each has its own key (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/attention.py get_query_key_value_tensors, lines 1888 to 1918).
    """
    shares = np.less(size.key, size.query) & np.equal(size.key_latent, 0)
    return shares & values["copies_grouped_queries"]


def _lost(size: Any, inside: Any, moved: Any, turned: Any, values: Values) -> Ways:
    """Return the additional seconds of kernels that load elements one by one.

    Parameters
    ----------
    inside, moved, turned
        Elements of the feed-forward layer's width, of queries, keys and values, and of those that
        have positions.
    """
    ways = []
    for way, norm in zip(("forward", "backward"), (NORM_FORWARD, NORM_BACKWARD), strict=True):
        gates, copies = (values[f"unvectorized_{part}_{way}"] for part in ("gate", "copy"))
        lost: Any = 0.0
        if np.any(gates) or np.any(copies):
            lost = lost_seconds(
                gates * np.where(values["uses_glu"], inside, 0.0), GATE_BYTES, values
            )
            lost = lost + lost_seconds(copies * moved, COPY_BYTES, values)
        written_out = values["uses_glu"] & ~values["fuses_elementwise"]
        if np.any(written_out):
            norms = lost_in(norm, 2 * size.rows * size.hidden, values)
            lost = lost + np.where(written_out, norms + lost_in(ROTARY, turned, values), 0.0)
        ways.append(lost)
    return Ways(*ways)


def _either(fuses: Any, fused: tuple[Any, Any], forward: Any, backward: Any) -> Ways:
    """Return both passes' figures: those of the fused kernel, or those of separate ones."""
    return Ways(np.where(fuses, fused[0], forward), np.where(fuses, fused[1], backward))
