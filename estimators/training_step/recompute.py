"""Seconds of the work that a backward pass repeats: recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from estimators.structure import equals, flag
from estimators.training_step.dispatch import moved_bytes
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.modules import IN_MIXTURE
from estimators.training_step.streams import RMS_FORWARD, clamp_work, gate_bytes, latent_bytes

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem, Program
    from estimators.training_step.sizes import Size
    from estimators.values import Real


WITHOUT_MATMULS = ("layernorm", "moe_act")
"""Parts that are recomputed by streaming kernels alone."""


def any_again(program: Program) -> bool:
    """Return whether any part is recomputed one by one."""
    return any(bool(np.any(flag)) for flag in program.again.values())


def stream_parts(size: Size, problem: Problem, layout: Layout) -> dict[str, Real]:
    """Return the seconds of each part's streaming kernels, forward; empty if none is recomputed."""
    if not any_again(problem.program):
        return {}
    sparse, gated = problem.shape.sparse_share, problem.shape.uses_glu
    gate = gate_bytes(problem).forward
    routed = size.experts * size.expert_tokens * size.expert_ffn
    shared = size.tokens * size.shared_ffn
    fuses = problem.program.fuses_elementwise
    norm = np.where(fuses | ~gated, 4.0, sum(RMS_FORWARD))
    latents = 4.0 * size.rows * (size.query_latent + size.key_latent)
    tokens = moved_bytes(size, problem, layout) if np.any(sparse) else 0.0
    clamps = clamp_work(routed, problem)
    traffic = {
        "layernorm": 2 * norm * size.rows * size.hidden,
        "moe_act": sparse * (gate * routed + clamps.moved),
        "mlp": (1 - sparse) * gate * size.tokens * size.ffn,
        "shared_experts": sparse * gate * shared,
        "mla_up_proj": np.maximum(latent_bytes(size, fuses).forward - latents, 0.0),
        "moe": sparse * (gate * (routed + shared) + tokens),
    }
    seconds = {name: stream_seconds(volume, problem.system) for name, volume in traffic.items()}
    seconds["moe_act"] = seconds["moe_act"] + sparse * clamps.lost_seconds
    return seconds


def added(
    recompute: dict[str, Real],
    forward: dict[str, Real],
    core: Real,
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
    core
        Seconds of the core of attention.
    matmuls, parts
        Seconds of matmuls and of streaming kernels of each part, forward.
    """
    program, sparse = problem.program, problem.shape.sparse_share
    again, seconds = program.again, dict(recompute)
    is_full = equals(problem.choices.activation_recompute, "full")
    is_selective = equals(problem.choices.activation_recompute, "selective")
    inside = flag(again["moe"])

    def repeat(kind: str, module: str, of_module: Real) -> None:
        is_there = again[module] & ~is_full & ~(inside & (module in IN_MIXTURE))
        seconds[kind] = seconds[kind] + np.where(is_there, of_module, 0.0)

    for name, part in parts.items():
        repeat("elementwise", name, part)
        if name not in WITHOUT_MATMULS:
            repeat("gemm", name, matmuls[name])
    of_core = np.where(is_selective & ~program.recomputes_operations, 0.0, core)
    repeat("attention", "core_attn", of_core)
    repeat("tensor_comm", "mlp", (1 - sparse) * forward["tensor_comm"] / 2)
    repeat("expert_comm", "moe", sparse * forward["expert_comm"])
    return seconds
