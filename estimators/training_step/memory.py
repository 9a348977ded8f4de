"""Memory of a training step: what a device holds at its peak, and on which rank of a pipeline.

A measurement counts tensors (allocated memory), tensors and the allocator's unused memory
(reserved), or all memory of the device. The estimate has the same three sums.

- Tensors: weights, gradients and optimizer; parameters that ZeRO 3 gathers; activations; logits.
- The allocator holds `fragmentation` times the allocated memory, holes of freed logits that no
  later tensor fits (`reserved_logit_bytes`), and results that wait for tensor-parallel exchanges.
- Libraries: a communicator for each group of more than one GPU, and captured CUDA graphs.
- The CUDA context with its loaded kernels is `framework_bytes`.

The kept activations are those in the code of three programs. In Megatron-Core with Transformer
Engine a norm, a product and an activation each keep their input (NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer; the same list in MooreThreads/SimuMax @4dcaae5
simumax/core/transformer/dense_module.py). The others are nanotron (huggingface/nanotron @67c5ebb6
src/nanotron/models/llama.py, parallel/tensor_parallel/functional.py) and torchtitan's recomputation
by operation. They agree with arXiv 2205.05198, equations 1 to 5.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import equals
from estimators.training_step import formats
from estimators.training_step.host import QUEUE
from estimators.training_step.kinds import kinds_of, over_kinds
from estimators.training_step.modules import IN_MIXTURE
from estimators.training_step.pipelines import microbatches_of
from estimators.training_step.replicas import layer_shares, sharded_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from estimators.decoder import Parameters, Shape
    from estimators.training_step.pipelines import Held
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.replicas import Share
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

WHOLE_COPIES = 4.0
"""Bytes of one element of the residual stream that a backward pass holds for all tokens of a
tensor-parallel group: a gradient gathered before a product, and one not yet scattered."""

OWN_COPIES = 4.0
"""Bytes of one such element for a rank's own tokens: gradients of residual stream and norm."""


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
        stored["mtp"] = layer._replace(kept=layer.kept + further_bytes(size, last.problem))
    return stored


def microbatch_of(size: Size, problem: Problem, layout: Layout) -> Microbatch:
    """Return the bytes of one microbatch in a layer, the embedding and the output layer."""
    shape, program, bytes_of = problem.shape, problem.program, problem.kept
    recompute = problem.choices.activation_recompute
    whole = layer_bytes(size, problem, layout)
    dropped = dropped_bytes(size, problem, layout)
    kept, repeats = whole - sum(dropped), equals(recompute, "full")
    kept = np.where(repeats, 2.0 * size.rows * size.hidden, kept)
    by_operation = equals(recompute, "selective") & program.recomputes_operations
    if np.any(by_operation):
        kept = np.where(by_operation, _operation_bytes(size, problem, layout), kept)
    nothing: Real = 0.0
    working = reduce(np.maximum, dropped, nothing) + gradient_bytes(size, problem)
    if np.any(repeats | by_operation):
        working = working + np.where(repeats | by_operation, whole, 0.0)
    drops = np.where(program.uses_dropout, 1.0, 0.0)
    between = size.rows * size.hidden
    is_split = layout.tensor_parallel > 1
    through = np.where(is_split, size.tokens * size.hidden, 0.0)
    logits = size.tokens * shape.vocab_size / layout.tensor_parallel
    logits = logits * (1 + shape.num_mtp_layers)
    stored = bytes_of.stored_logit_bytes
    return Microbatch(
        kept=kept,
        working=working,
        waiting=bytes_of.waiting_exchange_bytes * through,
        entry=drops * between,
        exit=4.0 * between,
        logits=logits * stored,
        logit_holes=logits * np.maximum(bytes_of.reserved_logit_bytes - stored, 0.0),
        buffers=bytes_of.exchange_buffer_bytes * through,
    )


def layer_bytes(size: Size, problem: Problem, layout: Layout) -> Real:
    """Return the bytes that one layer keeps of one microbatch if nothing is recomputed."""
    drops = np.where(problem.program.uses_dropout, 1.0, 0.0)
    between = size.rows * size.hidden
    sparse, read = problem.shape.sparse_share, formats.input_bytes(problem)
    # inputs of both norms and of both blocks; masks. A router reads 16 bits
    own = (1 - sparse) * read + sparse * 2.0
    norms = (4 + read + own + 2 * drops + problem.kept.stored_norm_bytes) * between
    # queries, keys and values; the core's result, which the next product reads
    inside = 2.0 * size.tokens * (size.query + size.key + size.value)
    inside = inside + formats.core_bytes(problem) * size.tokens * size.result
    # queries and keys before their norms
    normed = np.where(problem.shape.uses_qk_norm, 2.0 * size.tokens * (size.query + size.key), 0.0)
    inside = inside + normed
    # latents before and after their norms
    latents = (2.0 + read) * (size.query_latent + size.key_latent) + 2.0 * size.rotary
    attention = norms + inside + size.rows * latents + _core_bytes(size, problem)
    halves = _halves(problem)
    dense = halves * size.tokens * size.ffn
    if not np.any(sparse):
        return attention + dense
    return attention + (1 - sparse) * dense + sparse * mixture_bytes(size, problem, layout)


def dropped_bytes(size: Size, problem: Problem, layout: Layout) -> list[Real]:
    """Return the bytes that each part of `recompute_modules` drops and makes again.

    Norms, the activation of routed experts and latent attention drop their results. Other parts
    keep only their input, which the norm before them made. A fused core drops nothing: it keeps no
    scores, and the product behind it needs its result.
    """
    again = problem.program.again
    if not problem.program.repeats_modules:
        return []
    sparse, read = problem.shape.sparse_share, formats.input_bytes(problem)
    routed = size.experts * size.expert_tokens
    norms = (read + (1 - sparse) * read + sparse * 2.0) * size.rows * size.hidden
    is_flash = equals(problem.choices.attention, "flash")
    kept = {
        "core_attn": np.where(is_flash, 0.0, _core_bytes(size, problem)),
        "layernorm": norms,
        "moe_act": sparse * read * routed * size.expert_ffn,
        "mlp": (1 - sparse) * _halves(problem) * size.tokens * size.ffn,
        "shared_experts": sparse * _halves(problem) * size.tokens * size.shared_ffn,
        "mla_up_proj": 2.0 * size.tokens * (size.query + size.key + size.value),
        "moe": sparse * mixture_bytes(size, problem, layout),
    }
    inside = again["moe"]
    is_full = equals(problem.choices.activation_recompute, "full")
    return [
        np.where(again[name] & ~is_full & ~(inside & (name in IN_MIXTURE)), part, 0.0)
        for name, part in kept.items()
    ]


def mixture_bytes(size: Size, problem: Problem, layout: Layout) -> Real:
    """Return the bytes that a layer's experts, their router and the shared experts keep.

    For each token and expert the router keeps 9 bytes: a logit and a score of 32 bits, and a byte
    of the map of chosen experts. A routed row keeps the input of its expert, the tensors of the
    expert's activation, and its probability in 32 bits. The activation applies the probability, so
    the expert's result is not kept (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/moe/README.md, memory-efficient permutation;
    fusions/fused_bias_swiglu.py WeightedSwiGLUFunction).
    """
    halves = _halves(problem)
    routed = size.experts * size.expert_tokens
    stream = problem.kept.stored_routed_bytes - 2.0 + formats.input_bytes(problem)
    row = stream * size.hidden + halves * size.expert_ffn + 4.0
    router = 9.0 * problem.shape.num_experts * size.tokens / layout.tensor_parallel
    return routed * row + halves * size.tokens * size.shared_ffn + router


def gradient_bytes(size: Size, problem: Problem) -> Real:
    """Return the bytes of the gradients that the backward pass of a layer holds at a time.

    They are largest in the feed-forward layer: gradients of the activation's result and of its
    input, and of the residual stream; of a mixture also of routed rows. Products add gradients of
    weights to their buffer.
    """
    gates = np.where(problem.shape.uses_glu, 2.0, 1.0)
    sparse, routed = problem.shape.sparse_share, size.experts * size.expert_tokens
    inside = (1 - sparse) * size.tokens * size.ffn
    inside = inside + sparse * (size.tokens * size.shared_ffn + routed * size.expert_ffn)
    stream = (WHOLE_COPIES * size.tokens + OWN_COPIES * size.rows) * size.hidden
    rows = sparse * 2 * problem.kept.stored_routed_bytes * routed * size.hidden
    return 2.0 * (1 + gates) * inside + stream + rows


def _halves(problem: Problem) -> Real:
    """Return the bytes kept of one element of a feed-forward width.

    A gated layer keeps both halves and their product; separate kernels also keep the activated
    gate. The next product keeps its input in the format of products.
    """
    kept = np.where(problem.shape.uses_glu, problem.kept.stored_gate_bytes, 4.0)
    return kept - 2.0 + formats.input_bytes(problem)


def _core_bytes(size: Size, problem: Problem) -> Real:
    """Return the bytes that the core keeps: a statistic a query if fused, else scores and masks."""
    heads = size.heads
    is_flash = equals(problem.choices.attention, "flash")
    is_selective = equals(problem.choices.activation_recompute, "selective")
    drops = np.where(problem.program.uses_dropout, 1.0, 0.0)
    scores = heads * size.tokens * problem.shape.seq_len * (2 + 3 * drops)
    return np.where(is_flash, 4.0 * heads * size.tokens, np.where(is_selective, 0.0, scores))


def _operation_bytes(size: Size, problem: Problem, layout: Layout) -> Real:
    """Return the bytes that one layer keeps if it is recomputed by operation.

    It keeps its input, queries, values, the result of attention with its statistic, the result of
    the first feed-forward product, in a gated layer also that of the last one, and the sums of a
    tensor-parallel group (pytorch/torchtitan @82f7387f torchtitan/parallelisms/parallelize_llama.py
    _save_list, _get_custom_policy).
    """
    sparse, routed = problem.shape.sparse_share, size.experts * size.expert_tokens
    core = size.query + size.value + size.result + 2.0 * size.heads
    first = (1 - sparse) * size.tokens * size.ffn
    first = first + sparse * (size.tokens * size.shared_ffn + routed * size.expert_ffn)
    shared = np.where(size.shared_ffn > 0, size.tokens, 0.0)
    last = ((1 - sparse) * size.tokens + sparse * (shared + routed)) * size.hidden
    last = np.where(problem.shape.uses_glu, last, 0.0)
    sums = np.where(layout.tensor_parallel > 1, 3.0, 1.0) * size.rows * size.hidden
    return 2.0 * (size.tokens * core + first + last + sums)


def further_bytes(size: Size, problem: Problem) -> Real:
    """Return the bytes that a layer of further tokens keeps outside its transformer layer.

    For each token and element of the hidden width: 2 bytes of embeddings, which the first norm
    reads; the results of two norms, which the projection reads in its number format; 2 bytes each
    of the last norm's input and result. The norm of the hidden states reads a tensor that the layer
    before keeps. Full recomputation keeps only the embeddings.

    Source: NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionLayer (enorm, hnorm,
    eh_proj, final_layernorm).
    """
    again = equals(problem.choices.activation_recompute, "full")
    inside = 2 * formats.input_bytes(problem) + 4.0
    return size.rows * size.hidden * (2.0 + np.where(again, 0.0, inside))


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

    Of equal ranks the first counts. The allocator holds
    ``(fragmentation - 1) x allocated + fragmentation x besides`` bytes that are not in use.

    Parameters
    ----------
    state
        For each rank, bytes of weights, gradients and optimizer, and of gathered parameters.
    ranks
        For each rank, its other bytes.
    """
    allocated = [
        whole + rank.activations + rank.logits for whole, rank in zip(state, ranks, strict=True)
    ]
    most, place = np.asarray(allocated[0]), np.zeros(np.shape(allocated[0]), dtype=np.int64)
    for number, more in enumerate(allocated[1:], start=1):
        place[more > most] = number
        most = np.where(more > most, more, most)
    element = place * np.size(place) + np.arange(np.size(place))
    activations, logits, besides = (
        np.stack(of_ranks).take(element) for of_ranks in zip(*ranks, strict=True)
    )
    return place, {
        "unused_bytes": (fragmentation - 1) * most + fragmentation * besides,
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
    counts: Mapping[str, Parameters],
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
    """
    if zero_stage < 3:
        return 0.0
    tensor = layout.tensor_parallel
    # rows of a batch may lack a kind that others have
    sparse = problem.shape.sparse_share
    occurs = {"dense": sparse < 1, "mixture": sparse > 0, "mtp": problem.shape.num_mtp_layers > 0}
    layers = [
        np.where(occurs[name], outside + experts, 0.0)
        for name, (outside, experts) in layer_shares(counts, problem.shape, layout).items()
    ]
    layer = reduce(np.maximum, layers)
    exchanged = problem.sharding
    weights, gradients = exchanged.gathered_weight_bytes, exchanged.reduced_gradient_bytes
    own = formats.gathered_weight_bytes(problem)
    embedding = next(iter(counts.values())).embedding
    unit = np.maximum((2 * own + gradients) * layer, (weights + gradients) * embedding / tensor)
    keeps = np.where(exchanged.keeps_gathered_weights, layout.pipeline_parallel > 1, False)
    whole = (own + gradients) * (share.dense - share.vocabulary + share.experts)
    whole = whole + (weights + gradients) * share.vocabulary
    unit = np.where(keeps, whole, unit)
    return np.where(layout.data_parallel * layout.context_parallel > 1, unit, 0.0)


def communicators(shape: Shape, layout: Layout) -> Real:
    """Return the number of groups of more than one GPU that a GPU exchanges with.

    They are the tensor- and context-parallel groups, replicas and contexts together, the pipeline,
    and the two stages of a shared embedding; in a mixture also the expert-parallel group, the ranks
    that split an expert, and the replicas of experts (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/parallel_state.py).
    """
    tensor, context = layout.tensor_parallel, layout.context_parallel
    stages, replicas = layout.pipeline_parallel, layout.data_parallel * context
    ties = shape.ties_embedding & (stages > 1)
    groups: tuple[Flag | bool, ...] = (tensor > 1, context > 1, replicas > 1, stages > 1, ties)
    has_experts = shape.num_experts > 1
    if np.any(has_experts):
        experts, parts = layout.expert_parallel, layout.expert_tensor_parallel
        copies = tensor * replicas > experts * parts
        groups += (experts > 1, has_experts & (parts > 1), has_experts & copies)
    return reduce(np.add, (np.where(group, 1.0, 0.0) for group in groups))


def library_bytes(problem: Problem, layout: Layout) -> Real:
    """Return the bytes of communicators and captured graphs."""
    graphs = np.where(problem.host.uses_cuda_graphs, problem.kept.graph_bytes, 0.0)
    return problem.kept.communicator_bytes * communicators(problem.shape, layout) + graphs
