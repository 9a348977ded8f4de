"""Seconds of the work that a backward pass repeats: recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from estimators.structure import equals, flag
from estimators.training_step.modules import IN_MIXTURE

if TYPE_CHECKING:
    from estimators.training_step.problem import Problem, Program
    from estimators.values import Real


WITHOUT_MATMULS = ("layernorm", "moe_act")
"""Parts that are recomputed by streaming kernels alone."""


def any_again(program: Program) -> bool:
    """Return whether any part is recomputed one by one."""
    return any(bool(np.any(flag)) for flag in program.again.values())


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
