"""Seconds that the host takes to launch kernels, and how long the GPU waits for it.

The host puts kernels into a queue, and the GPU takes them from it. If the host is slower, the queue
runs empty, and a pass takes as long as its launches: their number times
`host_seconds_per_launch`. Most of these seconds are Python, its modules and autograd functions; a
launch alone takes 5e-6 s.

`forward_launches` and `backward_launches` count the kernels in the code of each program. The layout
adds collectives, the number format adds casts, a mixture adds routing and the products of its
experts, recomputation adds a forward pass. A captured CUDA graph is one launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import equals
from estimators.training_step.streams import launches_of

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Host, Layout, Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real

SPLIT_COLLECTIVES = (4.0, 6.0)
"""Collectives of a layer, forward and backward, under sequence parallelism: attention and
feed-forward layer each have a gather before and a reduce-scatter behind them, and backward another
gather (arXiv 2205.05198 section 4.2.2)."""

WHOLE_COLLECTIVES = (2.0, 2.0)
"""All-reduces of a layer, forward and backward, without sequence parallelism (arXiv 1909.08053
section 3)."""

CASTS = (10.0, 11.0)
"""Kernels of a layer that cast to FP8, transpose and find largest values, forward and backward,
+-2: for inputs, weights and gradients of four products (NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/module: a quantizer for each operand). A layer of a mixture has only the
two products of attention; latents add three."""

ROUTING = (36.0, 22.0)
"""Kernels that a mixture adds, forward and backward: 12 of the router and its loss, 11 of counts
and splits, 16 that permute, exchange and sort tokens, less the 3 of a dense layer; backward 26
less 4, +-30 % (NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/router.py,
token_dispatcher.py MoEAlltoAllTokenDispatcher, with fused permutation)."""

TOKEN_LAUNCHES = (16.0, 16.0)
"""The kernels of `ROUTING` that permute, exchange and sort tokens: no graph of a part of a layer
can hold them. Router, counts and splits are captured with attention (scopes `attn`, `moe_router`
and `moe_preprocess`; NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/README.md)."""

EXPERT_MATMULS = (2.0, 4.0)
"""Matmuls of an expert, forward and backward."""

EXPERT_LAUNCH = 1 / 9
"""Host's cost of an expert's kernel over that of a layer's other launches. One call in C++ launches
the kernels of all experts (TransformerEngine's grouped product over cuBLAS): 5e-6 s each (A. Gray,
Getting Started with CUDA Graphs, 2019), a ninth of 45e-6."""

LATENT_LAUNCHES = (6.0, 10.0)
"""Kernels that latents add to a layer, forward and backward: three matmuls (six backward), two
norms, a rotary embedding of keys that also writes the values; backward a sum of the stream's
gradients. Counted in NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer/multi_latent_attention.py, +-30 %."""

OPERATION = 1 / 6
"""Host's cost of a plain operation of PyTorch over that of a layer's other launches.

The others go through modules and autograd functions in Python. It is 7.5e-6 s, +-2.5e-6, of 45e-6
(table `step_constant`, `host_seconds_per_launch` of fsdp and of megatron_core)."""

CORE_LAUNCHES = 1.0
"""Kernels of the core of fused attention forward, which selective recomputation repeats."""

QUEUE = 1024.0
"""Launches that the host can be ahead of the GPU: about 1,000 were measured for a stream
(forums.developer.nvidia.com/t/68937, stackoverflow.com/q/53970187). CUDA documents no number."""


class Launches(NamedTuple):
    """Seconds to launch a layer: forward, backward with recomputation, and both.

    Attributes
    ----------
    launches, forward_launches
        Of both passes, and of the forward pass.
    experts
        Seconds of the forward pass that follow the host's wait for the experts' numbers of tokens.
    """

    forward: Real
    backward: Real
    launches: Real
    forward_launches: Real
    experts: Real = 0.0

    @property
    def seconds(self) -> Real:
        """Seconds of both passes."""
        return self.forward + self.backward


def host_of(size: Size, problem: Problem, layout: Layout) -> Launches:
    """Return the seconds to launch an average layer.

    `host_seconds_per_layer` is the least of either pass.
    """
    (forward, experts), (backward, _) = (
        _launches(in_pass, size, problem, layout) for in_pass in (0, 1)
    )
    recompute, host = problem.choices.activation_recompute, problem.host
    again = np.where(equals(recompute, "full"), forward, 0.0)
    # by operation nearly all kernels are repeated, not attention and half of the matmuls
    again = np.where(problem.drops_core, CORE_LAUNCHES, again)
    by_operation = equals(recompute, "selective") & problem.program.recomputes_operations
    again = np.where(by_operation, forward, again)
    # a graph of the backward pass holds the recomputed kernels
    again = np.where(_captures_layer(host, problem.shape), 0.0, again)
    launch, least = host.host_seconds_per_launch, host.host_seconds_per_layer
    backward = backward + again
    return Launches(
        np.maximum(launch * forward, least),
        np.maximum(launch * backward, least),
        forward + backward,
        forward,
        launch * experts,
    )


def forward_wait(launches: Launches, work: Real, expert_work: Real, problem: Problem) -> Real:
    """Return the seconds that the GPU waits for the host in a forward pass.

    In a mixture the host asks the GPU for the number of tokens of each expert, and waits for the
    answer. By then the queue is empty, and the experts' kernels start only when the host launches
    them. So slack in one part of the pass does not help the other (NVIDIA/Megatron-LM @7fec52c2
    docs/discussions/deepseek-v3-gb200-optimization, sections 2.3 and 3.1). If another microbatch
    runs at the same time, its kernels fill the queue, and the pass waits as a whole. The backward
    pass already knows the numbers.

    Parameters
    ----------
    work, expert_work
        Seconds of the GPU for the pass, and for tokens on their way to experts, in them and back.
    """
    whole: Real = np.maximum(launches.forward - work, 0.0)
    if not np.any(problem.shape.sparse_share):
        return whole
    before = np.maximum(launches.forward - launches.experts - (work - expert_work), 0.0)
    apart = before + np.maximum(launches.experts - expert_work, 0.0)
    return np.where(problem.overlap.overlaps_expert_comm, whole, apart)


def _launches(in_pass: int, size: Size, problem: Problem, layout: Layout) -> tuple[Real, Real]:
    """Return the launches of a pass, and the part of them in its experts.

    `in_pass` is 0 forward, 1 backward. A graph of whole steps leaves none.
    """
    host, recipe, sparse = problem.host, problem.recipe, problem.shape.sparse_share
    splits = layout.uses_sequence_parallel
    collectives = np.where(splits, SPLIT_COLLECTIVES[in_pass], WHOLE_COLLECTIVES[in_pass])
    dense = (host.forward_launches, host.backward_launches)[in_pass]
    dense = dense + np.where(layout.tensor_parallel > 1, collectives, 0.0)
    dense = dense + np.where(size.key_latent > 0, LATENT_LAUNCHES[in_pass], 0.0)
    matmuls = 4.0 - 2.0 * sparse + np.where(size.key_latent > 0, 3.0, 0.0)
    is_low = problem.formats.low_format > 0
    dense = dense + np.where(is_low, CASTS[in_pass] / 4 * matmuls, 0.0)
    rare = launches_of("backward" if in_pass else "forward", size, problem)
    outside, inside = rare
    dense = dense + outside
    # experts that work on a number of tokens that varies cannot be captured
    of_expert = EXPERT_LAUNCH * (EXPERT_MATMULS[in_pass] + recipe.expert_casts)
    of_expert = of_expert + OPERATION * recipe.expert_tensors
    routing = sparse * (ROUTING[in_pass] - TOKEN_LAUNCHES[in_pass])
    tokens = sparse * (TOKEN_LAUNCHES[in_pass] + of_expert * size.experts) + inside
    routing = np.where(host.uses_cuda_graphs, sparse, routing)
    before = np.where(_captures_layer(host, problem.shape), 1.0, dense + routing)
    left = np.where(host.captures_whole_steps, 0.0, 1.0)
    return left * (before + tokens), left * tokens


def _captures_layer(host: Host, shape: Shape) -> Flag:
    """Return where a graph holds a dense layer, or attention and router of a mixture's layer.

    Some recipes capture only the router, with counts and splits.
    """
    holds = host.captures_attention | np.equal(shape.sparse_share, 0)
    return host.uses_cuda_graphs & holds


def optimizer_launch_seconds(layers: Real, problem: Problem) -> Real:
    """Return the seconds to launch the optimizer of a number of layers."""
    return layers * problem.host.optimizer_launches * problem.host.host_seconds_per_launch
