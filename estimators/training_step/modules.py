"""Parts of a layer that are recomputed one by one: `recompute_modules`.

The text joins the names of Megatron-Core's ``--recompute-modules`` by + (NVIDIA/Megatron-LM
@d98e8a64 megatron/core/transformer/transformer_config.py, moe/README.md "Fine-grained
recomputation"), or is `none`. The results of a part are dropped after the forward pass and made
again before its backward pass. `activation_recompute` acts in addition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import Array, Values
from estimators.rules import Rule
from estimators.structure import equals, flag
from estimators.training_step.dispatch import moved_bytes
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.streams import (
    RMS_FORWARD,
    clamp_work,
    gate_bytes,
    latent_bytes,
)

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem, Program
    from estimators.training_step.sizes import Size
    from estimators.values import Real

NONE = "none"

IN_MIXTURE = ("moe_act", "shared_experts")
"""Modules that `moe` contains."""

MODULES = ("core_attn", "layernorm", "moe_act", "mlp", "shared_experts", "mla_up_proj", "moe")
"""In order: core of attention; both norms; activation of routed experts; dense feed-forward layer;
experts that every token passes; queries, keys and values of latent attention; mixture with router
and exchanges."""


@lru_cache(maxsize=4096)
def parsed(text: str | None) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset() if text in (None, NONE) else frozenset(str(text).split("+"))


def flags_of(given: Any) -> dict[str, Any]:
    """Return for each of `MODULES` whether it is recomputed: a flag, or a column of them."""
    if given is None or isinstance(given, str):
        return {name: name in parsed(given) for name in MODULES}
    rows = [parsed(text) for text in np.asarray(given).tolist()]
    return {name: np.array([name in names for names in rows], dtype=bool) for name in MODULES}


def can_recompute(parts: str, recipe: str, latent: Array) -> Array:
    """Return for each row whether the parts can be its default: `MODULE_RULES` admit them.

    Parameters
    ----------
    recipe
        Value of `number_recipe`.
    latent
        Width of the latents of keys in each row; 0 without latents.
    """
    again = parsed(parts)
    is_scaled = recipe == "delayed" and not again.isdisjoint(("layernorm", "moe_act"))
    return np.full(len(latent), not is_scaled) & (("mla_up_proj" not in again) | (latent > 0))


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
        repeat("gemm", name, matmuls.get(name, 0.0))
    of_core = np.where(is_selective & ~program.recomputes_operations, 0.0, core)
    repeat("attention", "core_attn", of_core)
    repeat("tensor_comm", "mlp", (1 - sparse) * forward["tensor_comm"] / 2)
    repeat("expert_comm", "moe", sparse * forward["expert_comm"])
    return seconds


def has_module(values: Values, *modules: str) -> Array:
    """Return whether `recompute_modules` names any of these parts: a flag, or one a row."""
    flags = flags_of(values["recompute_modules"])
    has_any: Array = np.logical_or.reduce([np.asarray(flags[name]) for name in modules])
    return has_any


def _is_known(values: Values) -> Array:
    given = values["recompute_modules"]
    if given is None or isinstance(given, str):
        return np.asarray(parsed(given) <= set(MODULES))
    return np.array([parsed(text) <= set(MODULES) for text in np.asarray(given).tolist()])


def _needs(name: str, modules: tuple[str, ...], column: str, what: str) -> Rule:
    """Return the rule that recomputed parts exist: `column` says whether the model has them."""
    return Rule(
        name,
        "recompute_modules",
        ("recompute_modules", column),
        lambda v: (
            ~has_module(v, *modules) | np.greater(v[column], 1 if column == "num_experts" else 0)
        ),
        lambda _row: f"recomputes {what}, but the model has none",
        lambda row: f"leave out {', '.join(sorted(parsed(row['recompute_modules']) & {*modules}))}",
    )


MODULE_RULES = (
    Rule(
        "recomputed parts are known",
        "recompute_modules",
        ("recompute_modules",),
        _is_known,
        lambda row: f"has no part {sorted(parsed(row['recompute_modules']) - {*MODULES})[0]}",
        lambda _row: f"use {NONE}, or some of {', '.join(MODULES)}, with + between them",
    ),
    _needs("only latent attention recomputes latents", ("mla_up_proj",), "kv_lora_rank", "latents"),
    _needs("only mixtures recompute experts", ("moe", "moe_act"), "num_experts", "experts"),
    _needs(
        "only models with shared experts recompute them",
        ("shared_experts",),
        "shared_ffn_hidden_size",
        "shared experts",
    ),
    Rule(
        "scales of past steps are read once a step",
        "recompute_modules",
        ("recompute_modules", "number_recipe"),
        lambda v: (
            ~has_module(v, "layernorm", "moe_act") | np.not_equal(v["number_recipe"], "delayed")
        ),
        lambda _row: "makes operands of `number_recipe` delayed twice, with different scales",
        lambda _row: "leave out layernorm and moe_act",
    ),
    Rule(
        "an exchange during another microbatch is not repeated",
        "recompute_modules",
        ("recompute_modules", "overlaps_expert_comm"),
        lambda v: ~has_module(v, "moe") | ~np.equal(v["overlaps_expert_comm"], True),
        lambda _row: "repeats the exchange of tokens, which `overlaps_expert_comm` hides",
        lambda _row: "leave out moe, or use `overlaps_expert_comm` false",
    ),
)
"""Source: Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py, __post_init__."""
