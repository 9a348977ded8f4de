"""The question of a plan in words: model and shape, run and limits, batch, estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.batch_rule import BATCH_RULE
from warehouse.ask.defaults import taken_over
from warehouse.ask.plausible import questioned_attributes
from warehouse.show.formats import count
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from estimators.contract import Scalar
    from warehouse.plan.question import TrainingRun


def question_lines(run: TrainingRun) -> list[str]:
    """Return the question: model and shape, run and limits, batch, estimator, fixed columns."""
    request, values = run.request, run.problem
    domain = values.get("nvlink_size")
    lines = [
        f"{run.model}: {_shape(values, _defaults(run))}{_parameters(run)}",
        f"{in_words('dataset_tokens', request.tokens)} on {values['accelerator']}"
        + ("" if domain is None else f" in NVLink domains of {domain}")
        + f", goodput {run.goodput:g}{_limits(run)}",
        batch_in_words(run.batch, values)
        + (f", by the rule {BATCH_RULE}; --batch gives another" if run.is_default_batch else ""),
        f"estimator {run.estimator.name}"
        + (f", {run.variant}" if run.estimator.mends else "")
        + (f", framework {values['framework']}" if values.get("framework") else ""),
    ]
    said = {"framework", "nvlink_size", "seq_len", *run.estimator.shape_columns}
    changed = {name: value for name, value in request.inputs.items() if name not in said}
    if changed:
        lines.append(f"in place of the defaults: {_pairs(changed)}")
    if defaults := taken_over(values, request.inputs):
        lines.append(defaults)
    lines += questioned_attributes(run.catalog, values, request.inputs)
    if run.assumed:
        lines.append(f"assumed, as no source says: {_pairs(run.assumed)}")
    if request.held:
        lines.append(f"every layout has {_pairs(request.held)}")
    if request.headroom_bytes:
        lines.append(f"every layout leaves {request.headroom_bytes / 1e9:,.4g} GB of memory free")
    return lines


def batch_in_words(batch: int, values: Mapping[str, Scalar]) -> str:
    """Return a batch in sequences and in tokens."""
    tokens = batch * int(values["seq_len"] or 0)
    return f"batch {count(batch, 'sequence')} ({tokens:,} tokens)"


def _defaults(run: TrainingRun) -> frozenset[str]:
    """Return the columns of a shape that neither the user nor a table of models has given."""
    if run.catalog.known("model", str(run.problem.get("model"))) is not None:
        return frozenset()
    return frozenset(run.estimator.shape_columns).difference(run.request.inputs)


def _shape(values: Mapping[str, Scalar], defaults: Collection[str]) -> str:
    def mark(name: str) -> str:
        return " (default)" if name in defaults else ""

    heads, keys = values.get("num_heads"), values.get("num_kv_heads")
    words = [f"{values['num_layers']} layers of {values['hidden_size']:,}"]
    if values.get("ffn_hidden_size") is not None:
        gated = " gated" if values.get("uses_glu") else ""
        size = f"{values['ffn_hidden_size']:,}{gated}"
        words.append(f"feed-forward {size}{mark('ffn_hidden_size')}")
    if heads is not None:
        words.append(f"{heads} heads" + (f" ({keys} of keys)" if keys not in (None, heads) else ""))
    if int(values.get("num_experts") or 1) > 1:
        shared = values.get("num_shared_experts")
        words.append(
            f"{values['num_experts']} experts of {values['expert_ffn_hidden_size']:,}"
            f"{mark('expert_ffn_hidden_size')}, {values['experts_per_token']} a token"
            f"{mark('experts_per_token')}" + (f" and {shared} shared" if shared else "")
        )
        if dense := values.get("num_dense_layers"):
            words.append(f"{dense} layers without experts")
    words += _attention(values)
    words.append(f"sequences of {values['seq_len']:,}")
    if values.get("vocab_size") is not None:
        words.append(f"vocabulary {values['vocab_size']:,.0f}")
    elif "vocab_size" in defaults:
        words.append("without embedding and output layer (vocab_size=... adds them)")
    return ", ".join(words)


def _attention(values: Mapping[str, Scalar]) -> list[str]:
    words = []
    if latent := values.get("kv_lora_rank"):
        queries = values.get("q_lora_rank")
        of_queries = f"{queries:,} for queries, " if queries else ""
        words.append(f"latents of {of_queries}{latent:,} for keys and values")
    if window := values.get("attention_window"):
        every = values.get("window_period")
        of_all = f" but in one of {every} layers" if every else ""
        kind = "chunks" if values.get("uses_chunked_attention") else "windows"
        words.append(f"attention in {kind} of {window:,}{of_all}")
    if further := values.get("num_mtp_layers"):
        words.append(f"{further} further token{'' if further == 1 else 's'} predicted")
    return words


def _parameters(run: TrainingRun) -> str:
    if run.parameters != run.parameters:  # NaN: the estimator counts none
        return ""
    words = f"; {run.parameters / 1e9:,.4g} G parameters in its layers"
    if run.active_parameters != run.parameters:
        words += f", {run.active_parameters / 1e9:,.4g} G active"
    return words


def _limits(run: TrainingRun) -> str:
    limits = run.request.limits
    words = (
        limits.budget_usd and f", at most {limits.budget_usd:,.0f} USD",
        limits.days and f", at most {limits.days:g} days",
        limits.max_mw and f", at most {limits.max_mw:g} MW",
    )
    return "".join(word for word in words if word)


def _pairs(pairs: Mapping[str, Scalar]) -> str:
    def in_text(name: str, value: Scalar) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return in_words(name, value) if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {in_text(name, value)}" for name, value in pairs.items())
