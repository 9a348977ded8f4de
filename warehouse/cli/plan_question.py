"""The question that a plan answers, in lines: what was asked, and what was taken beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.cli.common import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Scalar
    from warehouse.plan.question import Run

_TOLD = frozenset({"framework", "nvlink_size", "seq_len"})
"""Inputs that the lines tell anyway, beside the shape."""


def question_lines(run: Run) -> list[str]:
    """Return what is asked: model and shape, run, batch, whose estimate under what terms."""
    asked, values = run.asked, run.facts.problem
    goodput = 1 if asked.goodput is None else asked.goodput
    lines = [
        f"{run.model}: {shape_in_words(values)}; {_parameters(run)}",
        f"{asked.tokens / 1e12:,.4g} T tokens on {values['accelerator']} in "
        f"{domain_in_words(values)}, goodput {goodput:g}{_limits(run)}",
        f"{batch_in_words(run.batch, values)}{_rule(run)}",
        f"estimator {run.estimator.name}"
        + (f", {run.variant}" if run.estimator.mends else "")
        + (f", framework {values['framework']}" if values.get("framework") else ""),
    ]
    changed = {n: v for n, v in asked.inputs.items() if n not in _TOLD and n not in _SHAPE}
    if changed:
        lines.append(f"in place of what is known or usual: {pairs_in_words(changed)}")
    if asked.held:
        lines.append(f"every layout has {pairs_in_words(asked.held)}")
    if asked.headroom_bytes:
        lines.append(f"every layout leaves {asked.headroom_bytes / 1e9:,.4g} GB of memory")
    return lines


_SHAPE = frozenset(
    {
        *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
        *("head_size", "vocab_size", "ties_embedding", "num_experts", "experts_per_token"),
        *("expert_ffn_hidden_size", "num_shared_experts", "num_dense_layers"),
    }
)


def shape_in_words(values: Mapping[str, Scalar]) -> str:
    """Return the shape of a model, as far as its estimator reads it."""
    heads, keys = values["num_heads"], values.get("num_kv_heads")
    gated = " gated" if values.get("uses_glu") else ""
    words = [
        f"{values['num_layers']} layers of {values['hidden_size']:,}",
        f"feed-forward {values['ffn_hidden_size']:,}{gated}",
        f"{heads} heads" + (f" ({keys} of keys)" if keys not in (None, heads) else ""),
    ]
    if int(values.get("num_experts") or 1) > 1:
        shared = values.get("num_shared_experts")
        words.append(
            f"{values['num_experts']} experts of {values['expert_ffn_hidden_size']:,}, "
            f"{values['experts_per_token']} a token" + (f" and {shared} shared" if shared else "")
        )
    words.append(f"sequences of {values['seq_len']:,}")
    if values.get("vocab_size") is not None:
        words.append(f"vocabulary {values['vocab_size']:,.0f}")
    return ", ".join(words)


def domain_in_words(values: Mapping[str, Scalar]) -> str:
    """Return how many GPUs one fast domain has."""
    return f"NVLink domains of {values['nvlink_size']}"


def batch_in_words(batch: int, values: Mapping[str, Scalar]) -> str:
    """Return the batch in sequences and in tokens."""
    tokens = batch * int(values["seq_len"] or 0)
    return f"batch {count(batch, 'sequence')} ({tokens:,} tokens)"


def pairs_in_words(pairs: Mapping[str, Scalar]) -> str:
    """Return names with their values."""
    return ", ".join(f"{name} {_value(value)}" for name, value in pairs.items())


def _value(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _parameters(run: Run) -> str:
    told = f"{run.parameters / 1e9:,.4g} G parameters in its layers"
    if run.active_parameters != run.parameters:
        told += f", {run.active_parameters / 1e9:,.4g} G active"
    return told


def _limits(run: Run) -> str:
    limits = run.asked.limits
    told = {
        "USD": limits.budget_usd and f"at most {limits.budget_usd:,.0f} USD",
        "days": limits.days and f"at most {limits.days:g} days",
        "MW": limits.max_mw and f"at most {limits.max_mw:g} MW",
    }
    return "".join(f", {words}" for words in told.values() if words)


def _rule(run: Run) -> str:
    if not run.is_default_batch:
        return ""
    return f", by the rule {run.estimator.batch_rule}; --batch gives another"
