"""Seconds of the memory traffic of a layer between its matmuls.

Table `streams.csv` has a row for each kernel: the elements that it passes, the conditions under
which it runs (all of them), and for each pass the bytes that it reads and writes for an element. An
element of 16 bits has 2 to read and 2 to write. A name in place of a number is a constant of the
program, or a figure of `formats.cast_bytes`.

- With `fuses_elementwise` each group that Megatron-LM fuses is one kernel: bias and GeLU; bias,
  dropout and residual; a norm; rotary embedding.
- Without it eager PyTorch runs each operation as a kernel. The matmul adds the bias. PyTorch's
  layer norm reads its inputs twice backward. A gated model writes its norm (RMS) out in 32 bits.

Elementwise kernels of PyTorch load several elements at once if all operands are contiguous and of
one type. A kernel that reads halves of rows, repeats a vector, swaps dimensions or changes the type
loads one at a time; so did `torch.cat` in 16 bits before release 2.8 (pytorch/pytorch
aten/src/ATen/native/cuda/CUDALoops.cuh gpu_kernel_impl; pull requests 71710, 137053, 150233). Such
kernels have too few bytes in flight to fill the memory's bandwidth. An element takes a
multiprocessor `unvectorized_seconds`, or longer if memory is slower:
``loads x max(unvectorized_seconds / num_sms - bytes of one / memory rate, 0)`` is the loss. The
table has the loads for an element, and the mean bytes of a load.

Launches count as the host's other launches of a layer do (module `host`): a plain operation of
PyTorch is a sixth. Those of an expert count for each expert of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from estimators.kernels.attention import IN_8_BITS
from estimators.own_tables import rows_of
from estimators.structure import equals, real
from estimators.training_step.dispatch import moved_bytes
from estimators.training_step.formats import are_fused, cast_bytes, cast_kernels, cast_share
from estimators.training_step.gemm import stream_seconds

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Layout, Problem, System
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real

PassName = Literal["forward", "backward"]

LOSS_BYTES = 7.2
"""Mean bytes of an element that kernels of the loss load one by one: casts from and to 16 bits 6
each; and 8 each for difference to the maximum, quotient by the sum and product with the loss's
gradient, which repeat a number in each row."""


class Pass(NamedTuple):
    """Work of a kernel in one pass, for an element; a text names a constant.

    Attributes
    ----------
    moved
        Bytes that it reads and writes.
    loads, load_bytes
        Elements that it loads one by one, and the bytes that it moves for each.
    launches
        Launches of the host in a layer, or for an expert.
    """

    moved: float | str
    loads: float | str
    load_bytes: float | str
    launches: float


@dataclass(frozen=True)
class Kernel:
    """A row of `streams.csv`.

    Attributes
    ----------
    elements
        Name of the elements that it passes; see `_elements`.
    conditions
        Names of conditions, all of which hold where it runs; see `_conditions`.
    modules
        Parts of `recompute_modules` that repeat its forward pass.
    in_experts
        Whether it runs between the routing of tokens and their way back.
    launches_of
        `layer` or `expert`.
    """

    elements: str
    conditions: tuple[str, ...]
    forward: Pass
    backward: Pass
    modules: tuple[str, ...]
    in_experts: bool
    launches_of: str


def figure(text: str) -> float | str:
    """Return a number or the name of a constant; nothing is 0, ``22/3`` is a fraction."""
    if text[:1].isalpha():
        return text
    return float(Fraction(text or "0"))


def _kernel(row: Mapping[str, str]) -> Kernel:
    """Return the kernel of a line of the table."""
    forward, backward = (
        Pass(
            figure(row[f"{name}_bytes"]),
            figure(row[f"{name}_loads"]),
            figure(row[f"{name}_load_bytes"]),
            float(Fraction(row[f"{name}_launches"] or "0")),
        )
        for name in ("forward", "backward")
    )
    return Kernel(
        row["elements"],
        tuple(row["condition"].split()),
        forward,
        backward,
        tuple(row["module"].split(";")) if row["module"] else (),
        row["in_experts"] == "true",
        row["launches_of"],
    )


KERNELS = tuple(_kernel(row) for row in rows_of("training_step/streams"))

IN_EXPERTS = tuple(kernel for kernel in KERNELS if kernel.in_experts)

LAUNCHED = tuple(kernel for kernel in KERNELS if kernel.launches_of)
"""Kernels whose launches the constants of a program do not count."""

BY_MODULE = {
    name: tuple(kernel for kernel in KERNELS if name in kernel.modules)
    for name in ("layernorm", "moe_act", "mlp", "shared_experts", "mla_up_proj", "moe")
}
"""Part of `recompute_modules` -> kernels that it repeats."""


class MemoryWork(NamedTuple):
    """Work in memory of some kernels in one pass.

    Attributes
    ----------
    moved
        Bytes read and written.
    lost_seconds
        Seconds by which kernels that load elements one by one take longer than memory does.
    """

    moved: Real
    lost_seconds: Real

    def seconds(self, system: System, kernels: Real = 0.0) -> Real:
        """Return the seconds of the work in a number of kernels."""
        return stream_seconds(self.moved, system, kernels) + self.lost_seconds


class Streams(NamedTuple):
    """Seconds of memory-bound work in the forward and in the backward pass.

    Attributes
    ----------
    forward_bytes, backward_bytes
        Bytes that the passes read and write.
    experts
        The part of `forward` that puts tokens in order and works between routed experts.
    """

    forward: Real
    backward: Real
    forward_bytes: Real
    backward_bytes: Real
    experts: Real = 0.0


def layer_seconds(size: Size, problem: Problem, layout: Layout) -> Streams:
    """Return the seconds of a layer's memory-bound work besides the core of attention."""
    mixed, traffic = problem.shape.sparse_share, Traffic(size, problem, layout)
    forward, backward = traffic.work(KERNELS)
    of_layer = np.where(problem.program.fuses_elementwise, 7.0, 22.0)
    of_layer = of_layer + np.where(mixed > 0, 8.0, 0.0)
    of_casts = cast_kernels(size, problem)
    experts: Real = 0.0
    if np.any(mixed):
        of_experts, _ = traffic.work(IN_EXPERTS)
        experts = of_experts.seconds(problem.system)
    return Streams(
        forward.seconds(problem.system, of_layer + of_casts.forward),
        backward.seconds(problem.system, 1.5 * of_layer + of_casts.backward),
        forward.moved,
        backward.moved,
        experts,
    )


def module_seconds(size: Size, problem: Problem, layout: Layout) -> dict[str, Real]:
    """Return the seconds of the forward kernels of each part of `recompute_modules`.

    A repeated activation of experts counts also where one kernel does it with the matmuls; clamps
    of gates count only where they are separate kernels.
    """
    traffic = Traffic(size, problem, layout)
    traffic.conditions["activates"] = 1.0
    return {
        name: traffic.work(kernels)[0].seconds(problem.system)
        for name, kernels in BY_MODULE.items()
    }


def launches_of(in_pass: PassName, size: Size, problem: Problem) -> tuple[Real, Real]:
    """Return the launches of rarer kernels in a pass, outside of the experts and in them."""
    conditions = _conditions(size, problem)
    launches: dict[bool, Real] = {False: 0.0, True: 0.0}
    for kernel in LAUNCHED:
        share = _share(kernel, conditions)
        if np.any(share):
            times = size.experts if kernel.launches_of == "expert" else 1.0
            number = share * getattr(kernel, in_pass).launches * times
            launches[kernel.in_experts] = launches[kernel.in_experts] + number
    return launches[False], launches[True]


class Traffic:
    """The memory traffic of an average layer of a problem."""

    def __init__(self, size: Size, problem: Problem, layout: Layout) -> None:
        self.elements = _elements(size, problem)
        if np.any(problem.shape.sparse_share):
            self.elements["permuted_bytes"] = moved_bytes(size, problem, layout)
        self.conditions = _conditions(size, problem)
        self._casts = cast_bytes(size, problem)
        self._problem = problem

    def work(self, kernels: Iterable[Kernel]) -> tuple[MemoryWork, MemoryWork]:
        """Return the work of some kernels in the forward and in the backward pass."""
        work = [MemoryWork(0.0, 0.0), MemoryWork(0.0, 0.0)]
        for kernel in kernels:
            share = _share(kernel, self.conditions)
            if not np.any(share):
                continue
            elements = self.elements[kernel.elements]
            for place, of_pass in enumerate((kernel.forward, kernel.backward)):
                moved, lost = work[place]
                moved = moved + share * self._constant(of_pass.moved) * elements
                loads = share * self._constant(of_pass.loads)
                if np.any(loads):
                    width = self._constant(of_pass.load_bytes)
                    lost = lost + lost_seconds(loads * elements, width, self._problem.system)
                work[place] = MemoryWork(moved, lost)
        return work[0], work[1]

    def _constant(self, number: float | str) -> Real:
        """Return a number of the table, or the constant that it names."""
        if isinstance(number, float):
            return number
        if number in self._casts:
            return self._casts[number]
        constant: Real = getattr(self._problem.program, number)
        return constant


def _share(kernel: Kernel, conditions: Mapping[str, Real]) -> Real:
    """Return the share of the layers in which a kernel runs."""
    share: Real = 1.0
    for name in kernel.conditions:
        share = share * conditions[name]
    return share


def lost_seconds(elements: Real, width: Real, system: System) -> Real:
    """Return the seconds by which kernels that load one by one take longer than memory does.

    Parameters
    ----------
    elements
        Number of elements that they load.
    width
        Bytes that they read and write for each.
    """
    longer = system.unvectorized_seconds / system.num_sms - stream_seconds(width, system)
    lost: Real = elements * np.maximum(longer, 0.0)
    return lost


def _elements(size: Size, problem: Problem) -> dict[str, Real]:
    """Return the elements of a microbatch that kernels of a layer pass, on one GPU.

    - ``residual``: the stream before attention and before the feed-forward layer.
    - ``dense``, ``shared``, ``routed``: between the two matmuls of dense feed-forward layers, of
      the experts that every token passes, and of routed experts; ``routed_results`` behind these.
    - ``heads``: queries, keys and values; ``turned``: those with rotary positions; ``results``:
      the result of attention.
    - ``turned_queries``, ``turned_of_latents``, ``keys_and_values``: rotary parts of the queries of
      latents, those of queries and keys, and what the kernel of keys and values reads and writes.
    - ``for_collectives``: what a tensor-parallel group gathers and scatters in a pass.
    - ``normed``, ``unnormed``: inputs of matmuls in few bits behind a norm, and others; the two
      matmuls that make latents cast one copy each.
    - ``gathered_inputs``, ``gathered_copies``: inputs of matmuls that a tensor-parallel group
      gathers, on a rank, and with their gradients on the group.
    """
    stream, gathered = size.rows * size.hidden, size.tokens * size.hidden
    sparse, tokens = problem.shape.sparse_share, size.experts * size.expert_tokens
    has_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    shared = sparse * np.where(size.shared_ffn > 0, 1.0, 0.0)
    inputs = 1.0 + (1 - sparse) + shared
    turned = size.heads * size.rotary
    made = size.key - turned + size.value
    return {
        "residual": 2 * stream,
        "dense": size.tokens * size.ffn,
        "shared": size.tokens * size.shared_ffn,
        "routed": tokens * size.expert_ffn,
        "routed_results": tokens * size.hidden,
        "heads": size.tokens * (size.query + size.key + size.value),
        "turned": size.tokens * (size.query + size.key),
        "queries": size.tokens * size.query,
        "results": size.tokens * size.result,
        "latents": size.rows * (size.query_latent + size.key_latent),
        "latents_with_rotary": size.rows * (size.query_latent + size.key_latent + size.rotary),
        "turned_queries": size.tokens * turned,
        "turned_of_latents": size.tokens * (turned + size.rotary),
        "keys_and_values": size.tokens * (made + size.rotary + size.key + size.value),
        "for_collectives": 4.0 * gathered,
        "normed": (2.0 - sparse - has_latent) * stream,
        "unnormed": (shared + 2.0 * has_latent) * stream,
        "gathered_inputs": inputs * stream,
        "gathered_copies": 2 * inputs * gathered,
    }


def _conditions(size: Size, problem: Problem) -> dict[str, Real]:
    """Return the share of the layers in which each condition holds: mostly all (1) or none (0)."""
    shape, program = problem.shape, problem.program
    fused, is_latent = program.fuses_elementwise, np.greater(size.key_latent, 0)
    in_32_bits = equals(problem.experts.dispatcher, "flex")
    # kernels of PyTorch turn queries and keys, not a fused one: it lacks the factor of YaRN. The
    # fused kernel of latents has it
    is_slow = shape.uses_yarn & fused
    is_separate = ~are_fused(problem)
    shares = {
        "dense": 1.0 - shape.sparse_share,
        "mixture": shape.sparse_share,
        "low": cast_share(problem),
        "fused": fused,
        "eager": ~fused,
        "gated": shape.uses_glu,
        "plain": ~shape.uses_glu,
        "biased": shape.uses_linear_bias,
        "clamped": shape.uses_gate_clamp,
        "qk_norm": shape.uses_qk_norm,
        "post_norm": shape.uses_post_norm,
        "dropout": program.uses_dropout,
        "latent": is_latent,
        "yarn": is_slow & ~is_latent,
        "rotary": _turns_heads(shape) & ~is_slow & ~is_latent,
        "grouped": np.less(size.key, size.query) & ~is_latent & program.copies_grouped_queries,
        "gathers": np.less(size.rows, size.tokens),
        "separate": is_separate,
        "activates": is_separate,
        "wide": in_32_bits,
        "narrow": ~in_32_bits,
        "attention_in_8_bits": equals(problem.kernels.attention_program, IN_8_BITS),
    }
    return {name: real(share) for name, share in shares.items()}


def _turns_heads(shape: Shape) -> Flag:
    """Return whether queries and keys have rotary positions.

    Gated models have rotary positions, and so have models in which groups of queries share a key:
    Nemotron-4 (arXiv 2402.16819 section 2), StarCoder2 (arXiv 2402.19173). A model with one key for
    all queries may have learned positions (StarCoder, arXiv 2305.06161).
    """
    heads = shape.num_kv_heads
    return shape.uses_glu | (np.greater(heads, 1) & np.less(heads, shape.num_heads))
