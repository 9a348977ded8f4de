"""Seconds of one layer for one microbatch on one GPU: forward, backward and recomputed.

They depend on the shape, the system and the layout columns that split a layer (`LAYER_KEYS`). A
search computes them once for all pipelines and replicas that split a layer alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import equals, flag
from estimators.training_step import power, streams
from estimators.training_step.attention import Core, attention_core
from estimators.training_step.host import Launches, forward_wait, host_of
from estimators.training_step.matmuls import matmul_seconds
from estimators.training_step.modules import IN_MIXTURE
from estimators.training_step.sizes import Size, size_of
from estimators.training_step.streams import Streams
from estimators.training_step.transfers import Parts, Transfers, last_wait, transfers_of, waits

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.values import Real

LAYER_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("uses_sequence_parallel", "microbatch_size"),
)
"""Layout columns that a layer's time depends on."""


WITHOUT_MATMULS = ("layernorm", "moe_act")
"""Parts that are recomputed by streaming kernels alone."""

_WAITS = ("tensor_comm", "context_comm", "expert_comm")
"""Parts of a pass that are exposed transfers."""


@dataclass(frozen=True)
class Layer:
    """Seconds of a layer by part and pass; recomputation is a part of the backward pass.

    The parts are gemm, attention, elementwise, tensor_comm, context_comm, expert_comm, `hidden`
    (arithmetic lost to hidden transfers), and `host` (waits for launches).

    Attributes
    ----------
    host
        Seconds to launch the layer. Part `host` of a pass is the time that the GPU waits in it, if
        passes do not make up for each other.
    clock
        Clock of the matmuls and of attention, relative to the full one.
    joules
        Energy of one GPU above idle, in joules.
    weight_gradients
        Seconds of the matmuls that make the gradients of weights: a part of `backward`.
    """

    forward: Parts
    backward: Parts
    recompute: Parts
    host: Launches
    clock: Real = 1.0
    joules: Real = 0.0
    weight_gradients: Real = 0.0

    @property
    def seconds(self) -> Real:
        """Seconds of both passes."""
        return self.forward_seconds + sum(self.backward.values()) + sum(self.recompute.values())

    @property
    def forward_seconds(self) -> Real:
        """Seconds of the forward pass."""
        return sum(self.forward.values())

    @property
    def waits(self) -> Real:
        """Seconds of both passes that the GPU waits for transfers."""
        passes = (self.forward, self.backward, self.recompute)
        return sum(part[name] for part in passes for name in _WAITS)


class Work(NamedTuple):
    """Seconds of a layer's work at full clock, before any of it is recomputed.

    Attributes
    ----------
    matmuls
        Seconds of the matmuls by name; see `matmuls.matmul_seconds`.
    core
        Seconds of the core of attention.
    streams
        Seconds of memory-bound work besides the core.
    transfers
        Seconds of the transfers, hidden or not.
    parts
        Seconds of the streaming kernels of the parts that are recomputed one by one.
    flops
        FLOPs of the forward pass.
    """

    size: Size
    matmuls: dict[str, Real]
    core: Core
    streams: Streams
    transfers: Transfers
    parts: dict[str, Real]
    flops: power.Flops


def work_of(problem: Problem, layout: Layout) -> Work:
    """Return the work of an average layer at full clock."""
    size, by_module = size_of(problem, layout), problem.program.repeats_modules
    return Work(
        size,
        matmul_seconds(size, problem, layout),
        attention_core(size, problem, layout),
        streams.layer_seconds(size, problem, layout),
        transfers_of(size, problem, layout),
        streams.module_seconds(size, problem, layout) if by_module else {},
        power.flops_of(size, problem, layout),
    )


def layer_of(work: Work, problem: Problem, layout: Layout) -> Layer:
    """Return the seconds of an average layer; `sparse_share` is the share of mixture layers.

    Arithmetic slows down to the clock that the power limit admits; transfers hide behind the slowed
    arithmetic.

    Parameters
    ----------
    work
        Result of `work_of`. The recomputation of `problem` may differ from that of its problem.
    """
    launches = host_of(work.size, problem, layout)
    layer = _at_clock(1.0, work, launches, problem)
    load = load_of(layer, work, problem)

    def at(clock: Real) -> tuple[Layer, power.Load]:
        slowed = _at_clock(clock, work, launches, problem)
        more = problem.power.transfer_watts * (slowed.waits - layer.waits)
        return slowed, load._replace(
            others=slowed.seconds - load.arithmetic / clock,
            other_joules=load.other_joules + more,
        )

    balance = power.balance_of(layer, load, at, problem.power, problem.run.num_gpus)
    return replace(balance.work, clock=balance.clock, joules=balance.joules)


def _at_clock(clock: Real, work: Work, launches: Launches, problem: Problem) -> Layer:
    """Return the layer with its matmuls and its attention at a clock."""
    matmuls = {name: seconds / clock for name, seconds in work.matmuls.items()}
    core, stream = work.core.at(clock), work.streams
    comm = waits(work.transfers, problem, matmuls, core)
    forward = {
        "gemm": matmuls["forward"],
        "attention": core["forward"],
        "elementwise": stream.forward,
        **comm["forward"],
    }
    backward = {
        "gemm": matmuls["input_gradient"] + matmuls["weight_gradient"],
        "attention": core["backward"],
        "elementwise": stream.backward,
        **comm["backward"],
    }
    last = last_wait(work.transfers, problem, matmuls)
    again = _again(problem, forward, matmuls, last)
    if problem.program.repeats_modules:
        again = _with_modules(again, forward, matmuls, work.parts, problem)
    spent = sum(backward.values()) + sum(again.values())
    expert_work = matmuls["experts"] + stream.experts + forward["expert_comm"]
    forward["host"] = forward_wait(launches, sum(forward.values()), expert_work, problem)
    backward["host"] = np.maximum(launches.backward - spent, 0.0)
    weight_gradients = matmuls["weight_gradient"]
    return Layer(forward, backward, again, launches, weight_gradients=weight_gradients)


def _again(problem: Problem, forward: Parts, matmuls: dict[str, Real], last: Real) -> Parts:
    """Return the seconds of the work that a backward pass repeats.

    Full recomputation repeats the forward pass. With `stops_recompute_early` it ends at the last
    tensor that the backward pass needs, the input of a dense layer's last matmul (pytorch/pytorch
    @4b804b85 torch/utils/checkpoint.py `early_stop`). Selective recomputation repeats the core of
    attention unless `recompute_modules` names other parts. With `recomputes_operations` it repeats
    the operations whose results torchtitan drops: every second matmul, norms, rotary embedding and
    activation. It keeps attention and reduce-scatters (pytorch/torchtitan @82f7387f
    torchtitan/parallelisms/parallelize_llama.py _get_custom_policy).

    Parameters
    ----------
    matmuls
        Seconds of matmuls as in `matmuls.matmul_seconds`.
    last
        Seconds that the layer waits for the collective behind its last matmul.
    """
    choice = problem.choices.activation_recompute
    is_full, is_selective = equals(choice, "full"), equals(choice, "selective")
    again: Parts = {name: np.where(is_full, part, 0.0) for name, part in forward.items()}
    stops = is_full & problem.program.stops_recompute_early
    again["gemm"] = again["gemm"] - np.where(stops, matmuls["ffn_row_forward"], 0.0)
    again["tensor_comm"] = again["tensor_comm"] - np.where(stops, last, 0.0)
    repeats = is_selective & problem.program.recomputes_operations
    drops_core = problem.drops_core & ~repeats
    again["attention"] = np.where(drops_core, forward["attention"], again["attention"])
    again["gemm"] = np.where(repeats, matmuls["operations"], again["gemm"])
    again["elementwise"] = np.where(repeats, forward["elementwise"], again["elementwise"])
    return again


def _with_modules(
    recompute: dict[str, Real],
    forward: dict[str, Real],
    matmuls: dict[str, Real],
    parts: dict[str, Real],
    problem: Problem,
) -> dict[str, Real]:
    """Return the seconds that a backward pass repeats, with the parts of `recompute_modules`.

    A dense feed-forward layer repeats its collectives, half of those of the layer; a mixture
    repeats the transfers of its tokens.

    Parameters
    ----------
    recompute, forward
        Seconds by kind of work: repeated without these parts, and of the forward pass.
    matmuls, parts
        Seconds of matmuls and of streaming kernels of each part, forward.
    """
    program, sparse = problem.program, problem.shape.sparse_share
    again, seconds = program.again, dict(recompute)
    is_full = equals(problem.choices.activation_recompute, "full")
    inside = flag(again["moe"])

    def repeat(kind: str, module: str, of_module: Real) -> None:
        is_there = again[module] & ~is_full & ~(inside & (module in IN_MIXTURE))
        seconds[kind] = seconds[kind] + np.where(is_there, of_module, 0.0)

    for name, part in parts.items():
        repeat("elementwise", name, part)
        if name not in WITHOUT_MATMULS:
            repeat("gemm", name, matmuls[name])
    is_dropped = problem.drops_core & ~program.recomputes_operations
    of_core = np.where(is_dropped, 0.0, forward["attention"])
    repeat("attention", "core_attn", of_core)
    repeat("tensor_comm", "mlp", (1 - sparse) * forward["tensor_comm"] / 2)
    repeat("expert_comm", "moe", sparse * forward["expert_comm"])
    return seconds


def load_of(layer: Layer, work: Work, problem: Problem) -> power.Load:
    """Return the load of a layer whose times are those at full clock."""
    core, streams, flops = work.core, work.streams, work.flops
    gemm, attention, elementwise = (
        share_of(layer.recompute[name], layer.forward[name])
        for name in ("gemm", "attention", "elementwise")
    )
    matmuls = layer.forward["gemm"] + layer.backward["gemm"] + layer.recompute["gemm"]
    arithmetic = matmuls + (1.0 + attention) * core.forward + core.backward
    joules = power.gemm_joules(flops.matmuls * (3.0 + gemm), problem)
    of_attention = flops.attention * (1.0 + flops.backward_attention + attention)
    joules = joules + problem.power.attention_joules_per_flop * of_attention
    # separate operations of attention stream the scores through memory
    moved = (1.0 + elementwise) * streams.forward_bytes + streams.backward_bytes
    moved = moved + (1.0 + attention) * core.streams.forward_bytes + core.streams.backward_bytes
    others = problem.power.memory_joules_per_byte * moved
    others = others + problem.power.transfer_watts * layer.waits
    return power.Load(arithmetic, layer.seconds - arithmetic, joules, others)


def share_of(part: Real, whole: Real) -> Real:
    """Return part over whole, 0 where the whole is nothing."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)
