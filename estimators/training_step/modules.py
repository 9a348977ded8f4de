"""Parts of a layer that are recomputed one by one: `recompute_modules`.

The text joins the names of Megatron-Core's ``--recompute-modules`` by + (NVIDIA/Megatron-LM
@d98e8a64 megatron/core/transformer/transformer_config.py, moe/README.md "Fine-grained
recomputation"), or is `none`. The results of a part are dropped after the forward pass and made
again before its backward pass. A text replaces the list of `activation_recompute` selective, which
is core_attn alone (transformer_config.py 1940-1943), and does not count where it is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.rules import Rule

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


def replaces_core(again: Mapping[str, Any]) -> Any:
    """Return whether parts are named, and the core of attention is none of them.

    Parameters
    ----------
    again
        Result of `flags_of`.
    """
    is_named = np.logical_or.reduce([np.asarray(named) for named in again.values()])
    return is_named & ~np.asarray(again["core_attn"])


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
        "an all-to-all during another microbatch is not repeated",
        "recompute_modules",
        ("recompute_modules", "overlaps_expert_comm"),
        lambda v: ~has_module(v, "moe") | ~np.equal(v["overlaps_expert_comm"], True),
        lambda _row: "repeats the all-to-all of experts, which `overlaps_expert_comm` hides",
        lambda _row: "leave out moe, or use `overlaps_expert_comm` false",
    ),
)
"""Source: Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py, __post_init__."""
