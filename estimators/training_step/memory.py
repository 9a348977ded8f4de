"""Memory of a training step: what a device holds at its peak, and on which rank of a pipeline.

A measurement counts tensors (allocated memory), tensors and the allocator's unused memory
(reserved), or all memory of the device. The estimate has the same three sums.

- Tensors: weights, gradients and optimizer; parameters that ZeRO 3 gathers; activations; logits.
- The allocator holds `fragmentation` times the allocated memory, holes of freed logits that no
  later tensor fits (`reserved_logit_bytes`), and results that wait for tensor-parallel exchanges.
- Libraries: a communicator for each group of more than one GPU, and captured CUDA graphs.
- The CUDA context with its loaded kernels is `framework_bytes`.

Table `tensors.csv` has a row for each tensor of a layer: the elements that it has, the conditions
under which there is one (all of them), and the bytes of an element. A name in place of a number is
a constant of the program, or one of `Measures.widths`. The rows agree with arXiv 2205.05198,
equations 1 to 5, and with three programs. In Megatron-Core with Transformer Engine a norm, a matmul
and an activation each keep their input (NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer).
The others are nanotron (huggingface/nanotron @67c5ebb6 src/nanotron/models/llama.py,
parallel/tensor_parallel/functional.py) and torchtitan's recomputation by operation.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.own_tables import rows_of
from estimators.structure import equals, flag, real
from estimators.training_step import formats
from estimators.training_step.host import QUEUE
from estimators.training_step.kinds import kinds_of, over_kinds
from estimators.training_step.modules import IN_MIXTURE, MODULES
from estimators.training_step.pipelines import microbatches_of
from estimators.training_step.replicas import sharded_parameters
from estimators.training_step.streams import figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from estimators.decoder import Parameters
    from estimators.training_step.pipelines import Held
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.replicas import LayerShare, Share
    from estimators.training_step.sizes import Size
    from estimators.training_step.spent import Spent
    from estimators.values import Array, Flag, Real

PARTS = (
    *("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
    *("logits_bytes", "gathered_bytes"),
)
"""Parts of the allocated memory."""

BESIDES = ("unused_bytes", "library_bytes")
"""Parts of a device's memory that are not allocated; `framework_bytes`, the same in all layouts,
is the third."""


class Tensor(NamedTuple):
    """A row of `tensors.csv`.

    Attributes
    ----------
    part
        Part of the memory that it belongs to. `layer`, `full` and `operations`: kept of a layer if
        nothing is recomputed, all, or every second matmul (`recomputes_operations`). `gradients`:
        there during a layer's backward pass. `further`: kept of a layer of further tokens outside
        its transformer layer. Others: those of `Microbatch`.
    modules
        Parts of `recompute_modules` that drop it and make it again. A part that keeps only its
        input, which a norm made, drops all other tensors.
    """

    part: str
    elements: str
    conditions: tuple[str, ...]
    width: float | str
    modules: tuple[str, ...]


TENSORS = tuple(
    Tensor(
        row["part"],
        row["elements"],
        tuple(row["condition"].split()),
        figure(row["bytes"]),
        tuple(row["module"].split(";")),
    )
    for row in rows_of("training_step/tensors")
)

BY_PART = {
    part: [tensor for tensor in TENSORS if tensor.part == part]
    for part in dict.fromkeys(tensor.part for tensor in TENSORS)
}

DROPPED_BY = {name: [tensor for tensor in TENSORS if name in tensor.modules] for name in MODULES}
"""Part of `recompute_modules` -> tensors that it drops."""


class Microbatch(NamedTuple):
    """Bytes of one microbatch on one GPU.

    Attributes
    ----------
    kept
        Tensors that a layer keeps until its backward pass; the others are recomputed.
    working
        Further tensors of a layer's backward pass: recomputed ones, and gradients.
    waiting
        Results of a layer that a tensor-parallel exchange still reads when the host goes on.
    entry
        Tensors that the embedding keeps.
    exit
        Tensors that the last norm keeps, and the input of the output layer.
    logits, logit_holes
        Peak of output layer and loss, and holes that it leaves in the allocator's memory.
    buffers
        Buffers of exchanges between products, shared by all layers.
    """

    kept: Real
    working: Real
    waiting: Real
    entry: Real
    exit: Real
    logits: Real
    logit_holes: Real
    buffers: Real


def stored_bytes(size: Size, problem: Problem, layout: Layout) -> dict[str, Microbatch]:
    """Return the bytes of a microbatch by kind of layer; `mtp` are layers of further tokens."""
    kinds = kinds_of(problem)
    stored = {kind.name: microbatch_of(size, kind.problem, layout) for kind in kinds}
    if np.any(problem.shape.num_mtp_layers):
        last = kinds[-1]
        layer = stored[last.name]
        further = Measures(size, last.problem, layout).bytes_of("further")
        stored["mtp"] = layer._replace(kept=layer.kept + further)
    return stored


def microbatch_of(size: Size, problem: Problem, layout: Layout) -> Microbatch:
    """Return the bytes of one microbatch in a layer, the embedding and the output layer."""
    program, recompute = problem.program, problem.choices.activation_recompute
    measures = Measures(size, problem, layout)
    is_full = equals(recompute, "full")
    by_operation = equals(recompute, "selective") & program.recomputes_operations
    whole = measures.bytes_of("layer")
    dropped: Real = 0.0
    largest: Real = 0.0
    if program.repeats_modules:
        for name, again in program.again.items():
            is_inside = flag(program.again["moe"]) & (name in IN_MIXTURE)
            part = np.where(again & ~is_full & ~is_inside, measures.dropped_by(name), 0.0)
            dropped, largest = dropped + part, np.maximum(largest, part)
    kept = np.where(is_full, measures.bytes_of("full"), whole - dropped)
    if np.any(by_operation):
        kept = np.where(by_operation, measures.bytes_of("operations"), kept)
    working = largest + measures.bytes_of("gradients")
    return Microbatch(
        kept=kept,
        working=working + np.where(is_full | by_operation, whole, 0.0),
        waiting=measures.bytes_of("waiting"),
        entry=measures.bytes_of("embedding"),
        exit=measures.bytes_of("output"),
        logits=measures.bytes_of("logits"),
        logit_holes=measures.bytes_of("freed_logits"),
        buffers=measures.bytes_of("buffers"),
    )


class Measures:
    """Elements and bytes of the tensors of one microbatch on one GPU.

    Attributes
    ----------
    elements
        - ``residual``, ``gathered``: the stream between blocks, of a rank and of all tokens of its
          tensor-parallel group.
        - ``heads``: queries, keys and values; ``results``: the result of attention.
        - ``dense``, ``shared``, ``routed``: between the two matmuls of dense feed-forward layers,
          of the experts that every token passes, and of routed experts, whose inputs are
          ``routed_inputs`` in ``routed_rows``.
        - ``scores``: a number for each query and key; ``statistics``: one for each query.
    shares
        Share of the layers in which each condition holds.
    widths
        Bytes of an element by name: constants of the program, and figures of several of them.
    """

    def __init__(self, size: Size, problem: Problem, layout: Layout) -> None:
        shape, choices, kept = problem.shape, problem.choices, problem.kept
        tokens, routed = size.tokens, size.experts * size.expert_tokens
        vocabulary = shape.vocab_size / layout.tensor_parallel
        self.elements = {
            "residual": size.rows * size.hidden,
            "gathered": tokens * size.hidden,
            "heads": tokens * (size.query + size.key + size.value),
            "queries_and_keys": tokens * (size.query + size.key),
            "queries": tokens * size.query,
            "values": tokens * size.value,
            "results": tokens * size.result,
            "latents": size.rows * (size.query_latent + size.key_latent),
            "rotary": size.rows * size.rotary,
            "statistics": size.heads * tokens,
            "scores": size.heads * tokens * shape.seq_len,
            "dense": tokens * size.ffn,
            "shared": tokens * size.shared_ffn,
            "routed": routed * size.expert_ffn,
            "routed_inputs": routed * size.hidden,
            "routed_rows": routed,
            "router": shape.num_experts * tokens / layout.tensor_parallel,
            "logits": tokens * vocabulary * (1 + shape.num_mtp_layers),
        }
        is_flash = equals(choices.attention, "flash")
        conditions = {
            "flash": is_flash,
            "unfused": ~is_flash & ~problem.drops_core,
            "not_full": ~equals(choices.activation_recompute, "full"),
            "dropout": problem.program.uses_dropout,
            "qk_norm": shape.uses_qk_norm,
            "post_norm": shape.uses_post_norm,
            "gated": shape.uses_glu,
            "shared": np.greater(size.shared_ffn, 0),
            "tensor": np.greater(layout.tensor_parallel, 1),
            "dense": 1.0 - shape.sparse_share,
            "mixture": shape.sparse_share,
        }
        self.shares = {name: real(holds) for name, holds in conditions.items()}
        # a gated layer keeps both halves and their product, separate kernels also the activated
        # gate; the product and a routed row are inputs of matmuls, in the format of these
        gate = np.where(shape.uses_glu, kept.stored_gate_bytes, 4.0)
        self.widths: dict[str, Real] = vars(kept) | {
            "input_bytes": formats.input_bytes(problem),
            "core_bytes": formats.core_bytes(problem),
            "gate_bytes": gate - 2.0,
            "routed_bytes": kept.stored_routed_bytes - 2.0,
            "freed_logit_bytes": np.maximum(
                kept.reserved_logit_bytes - kept.stored_logit_bytes, 0.0
            ),
        }

    def bytes_of(self, part: str) -> Real:
        """Return the bytes of a part of the memory."""
        return self._sum(BY_PART[part])

    def dropped_by(self, module: str) -> Real:
        """Return the bytes that a part of `recompute_modules` drops and makes again."""
        return self._sum(DROPPED_BY[module])

    def _sum(self, tensors: Sequence[Tensor]) -> Real:
        summed: Real = 0.0
        for tensor in tensors:
            share: Real = 1.0
            for name in tensor.conditions:
                share = share * self.shares[name]
            if np.any(share):
                width = tensor.width
                of_element = width if isinstance(width, float) else self.widths[width]
                summed = summed + share * of_element * self.elements[tensor.elements]
        return summed


class RankBytes(NamedTuple):
    """Bytes of a rank at its peak, without its state.

    `besides` are holes that logits leave, and results that wait for an exchange.
    """

    activations: Real
    logits: Real
    besides: Real


def bytes_of_ranks(
    layers: Mapping[str, Microbatch], flight: Held, layer: Spent, problem: Problem, layout: Layout
) -> list[RankBytes]:
    """Return the bytes of each rank that may need most, without its state.

    The logits of a microbatch peak before the backward pass of a rank, the gradients of a layer
    during it: the larger one counts. The last norm keeps one microbatch.

    Parameters
    ----------
    layers
        Kind of layer -> the bytes of one microbatch in a layer of this kind.
    flight
        Result of `pipelines.held_at`; its first rank has the embedding.
    layer
        One microbatch of an average layer, for `queued_passes`.
    """
    ends = next(iter(layers.values()))
    kept = {name: microbatch.kept for name, microbatch in layers.items()}
    ranks = []
    for rank, outputs in enumerate(flight.outputs):
        counts = {name: of_ranks[rank] for name, of_ranks in flight.layers.items()}
        logits = outputs * ends.logits
        working = reduce(
            np.maximum,
            (np.where(count > 0, layers[name].working, 0.0) for name, count in counts.items()),
        )
        activations = over_kinds(counts, kept) + np.maximum(working - logits, 0.0)
        activations = activations + outputs * ends.exit + ends.buffers
        besides = outputs * ends.logit_holes
        if rank == 0:
            inputs = flight.chunks[rank] / layout.virtual_pipeline
            activations = activations + inputs * ends.entry
            if np.any(ends.waiting):
                besides = besides + queued_passes(layer, problem, layout) * ends.waiting
        ranks.append(RankBytes(activations, logits, besides))
    return ranks


def peak_of(
    state: Sequence[Real], ranks: Sequence[RankBytes], fragmentation: Real
) -> tuple[Array, dict[str, Real]]:
    """Return the place of the rank that needs most, and the parts of its memory besides its state.

    Of equal ranks the first counts. The allocator holds ``fragmentation x (allocated + besides)``
    bytes; what is not allocated is not in use.

    Parameters
    ----------
    state
        For each rank, bytes of weights, gradients and optimizer, and of gathered parameters.
    ranks
        For each rank, its other bytes.
    """
    needed = [whole + sum(rank) for whole, rank in zip(state, ranks, strict=True)]
    most, place = np.asarray(needed[0]), np.zeros(np.shape(needed[0]), dtype=np.int64)
    for number, more in enumerate(needed[1:], start=1):
        place[more > most] = number
        most = np.where(more > most, more, most)
    element = place * np.size(place) + np.arange(np.size(place))
    activations, logits, besides = (
        np.stack(of_ranks).take(element) for of_ranks in zip(*ranks, strict=True)
    )
    return place, {
        "unused_bytes": (fragmentation - 1) * most + besides,
        "activations_bytes": activations,
        "logits_bytes": logits,
    }


def queued_passes(layer: Spent, problem: Problem, layout: Layout) -> Real:
    """Return the passes of a layer that are in the queue after the last forward pass of a step.

    The allocator reuses the memory of an exchange's result once the exchange has run, not when the
    host frees it (PyTorch c10/cuda/CUDACachingAllocator.cpp `recordStream`, called by
    torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp). Until then each launched pass holds its
    results. The host is at most `host.QUEUE` launches ahead of the GPU. The estimate takes all of
    them: reserved memory is the largest of all steps, and the GPU is slow in the first ones. A host
    that sends to another stage waits for the GPU (huggingface/nanotron @2411b022
    src/nanotron/parallel/pipeline_parallel/p2p.py `_send_meta` copies to the GPU from pageable
    memory), so no passes wait in a pipeline.

    The queue ends with the output layer and the loss. Before them it has the forward passes of all
    layers, and before these the backward passes of the previous microbatch. Earlier microbatches
    would fit if layers are few; they are left out.

    `layer` is one microbatch of an average layer.
    """
    layers = problem.shape.num_layers
    backward = np.maximum(layer.launches - layer.forward_launches, 1.0)
    # the output layer and the loss forward are about half of the vocabulary's launches
    room = np.maximum(QUEUE - problem.host.vocabulary_launches / 2, 0.0)
    forwards = np.minimum(layers, room / np.maximum(layer.forward_launches, 1.0))
    before = np.where(microbatches_of(problem.run, layout) > 1, layers, 0.0)
    left = np.maximum(room - forwards * layer.forward_launches, 0.0)
    passes = forwards + np.minimum(before, left / backward)
    return np.where(layout.pipeline_parallel > 1, 0.0, passes)


def state_bytes(zero_stage: int, share: Share, problem: Problem, layout: Layout) -> dict[str, Real]:
    """Return the bytes of a pipeline stage's state on one GPU under a ZeRO stage.

    Stage 1 shards the optimizer, 2 the gradients too, 3 the weights too (arXiv 1910.02054).
    """
    # a program whose weights have 32 bits keeps a gathered copy in 16 bits below stage 3
    stored = problem.sharding
    weights = stored.stored_weight_bytes
    if zero_stage < 3:
        weights = np.maximum(weights, stored.gathered_weight_bytes)
    vocabulary = share._replace(dense=share.vocabulary, experts=0.0 * share.experts)
    layers = share._replace(dense=share.dense - share.vocabulary)
    of_layers = formats.stored_weight_bytes(problem, weights, is_sharded=zero_stage == 3)
    whole = weights * sharded_parameters(zero_stage, 3, vocabulary, layout)
    whole = whole + of_layers * sharded_parameters(zero_stage, 3, layers, layout)
    return {
        "weights_bytes": whole,
        "gradients_bytes": stored.stored_gradient_bytes
        * sharded_parameters(zero_stage, 2, share, layout),
        "optimizer_bytes": stored.stored_optimizer_bytes
        * sharded_parameters(zero_stage, 1, share, layout),
    }


def gathered_bytes(
    zero_stage: int,
    layers: Mapping[str, LayerShare],
    ends: Parameters,
    share: Share,
    problem: Problem,
    layout: Layout,
) -> Real:
    """Return the bytes of gathered weights and of gradients not yet scattered: 0 below ZeRO 3.

    They are the weights of two layers and the gradients of one, or weights and gradients of the
    vocabulary if these are larger. A program with `keeps_gathered_weights` has the weights and
    gradients of its whole stage under a pipeline: it scatters gradients after the last microbatch
    (torchtitan @82f7387f parallelisms/parallelize_llama.py `apply_fsdp`;
    torch/distributed/pipelining/stage.py `backward_maybe_with_nosync`).

    Parameters
    ----------
    layers, ends
        See `replicas.stage_shares`.
    """
    if zero_stage < 3:
        return 0.0
    # rows of a batch may lack a kind that others have
    sparse = problem.shape.sparse_share
    occurs = {"dense": sparse < 1, "mixture": sparse > 0, "mtp": problem.shape.num_mtp_layers > 0}
    layer = reduce(
        np.maximum,
        (np.where(occurs[name], of.dense + of.experts, 0.0) for name, of in layers.items()),
    )
    exchanged = problem.sharding
    weights, gradients = exchanged.gathered_weight_bytes, exchanged.reduced_gradient_bytes
    of_matmul = formats.gathered_weight_bytes(problem)
    vocabulary = (weights + gradients) * ends.embedding / layout.tensor_parallel
    unit = np.maximum((2 * of_matmul + gradients) * layer, vocabulary)
    keeps = np.where(exchanged.keeps_gathered_weights, layout.pipeline_parallel > 1, False)
    whole = (of_matmul + gradients) * (share.dense - share.vocabulary + share.experts)
    whole = whole + (weights + gradients) * share.vocabulary
    unit = np.where(keeps, whole, unit)
    return np.where(layout.data_parallel * layout.context_parallel > 1, unit, 0.0)


def library_bytes(problem: Problem, layout: Layout) -> Real:
    """Return the bytes of communicators and captured graphs.

    A GPU has a communicator for each group of more than one GPU: the tensor- and context-parallel
    groups, replicas and contexts together, the pipeline, and the two stages of a shared embedding;
    in a mixture also the expert-parallel group, the ranks that split an expert, and the replicas of
    experts (NVIDIA/Megatron-LM @d98e8a64 megatron/core/parallel_state.py).
    """
    tensor, context = layout.tensor_parallel, layout.context_parallel
    stages, replicas = layout.pipeline_parallel, layout.data_parallel * context
    ties = problem.shape.ties_embedding & (stages > 1)
    groups: list[Flag | bool] = [tensor > 1, context > 1, replicas > 1, stages > 1, ties]
    is_mixture = problem.shape.num_experts > 1
    if np.any(is_mixture):
        experts, parts = layout.expert_parallel, layout.expert_tensor_parallel
        copies = tensor * replicas > experts * parts
        groups += [experts > 1, is_mixture & (parts > 1), is_mixture & copies]
    graphs = np.where(problem.host.uses_cuda_graphs, problem.kept.graph_bytes, 0.0)
    return problem.kept.communicator_bytes * reduce(np.add, map(real, groups)) + graphs
