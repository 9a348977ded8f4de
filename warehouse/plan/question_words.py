"""The question of a plan in words: run and limits, shape, what it assumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.catalog import NAMED_CLUSTER
from warehouse.ask.defaults import note_on_model, taken_over
from warehouse.ask.plausible import questioned_attributes
from warehouse.show.formats import count
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from estimators.contract import Scalar
    from warehouse.plan.question import TrainingRun


NETWORK = "network_bytes_per_second"


def question_lines(run: TrainingRun) -> list[str]:
    """Return the question: run and limits, shape, assumptions, attributes that look wrong."""
    return [
        run_in_words(run),
        shape_in_words(run),
        f"assumes {', '.join(assumptions(run))}",
        *doubts(run),
    ]


def shape_in_words(run: TrainingRun) -> str:
    """Return the shape of the model, and how many parameters it has."""
    return f"{_shape(run.problem, _defaults(run))}{_parameters(run)}"


def run_in_words(run: TrainingRun, num_gpus: int | None = None) -> str:
    """Return what is trained where, within which limits, in one line."""
    gpus = None if num_gpus is None else f"{num_gpus:,}"
    program = f" with {run.problem['framework']}" if run.problem.get("framework") else ""
    return (
        f"{run.model}, {in_words('dataset_tokens', run.request.tokens)} on "
        f"{_machine(run, gpus)}{program}{_limits(run)}"
    )


def _machine(run: TrainingRun, gpus: str | None = None) -> str:
    """Return the accelerator, and how many; of a named cluster the GPU, too."""
    name = str(run.problem["accelerator"])
    if run.cluster is not None:
        name = f"{'GPUs of ' if gpus else ''}{name} ({run.cluster['based_on']})"
    return f"{gpus} {name}" if gpus else name


def runs_in_words(runs: Sequence[TrainingRun]) -> str:
    """Return what several runs have in common, and how many there are, in one line."""
    first = runs[0]
    words = [first.model]
    if len({run.request.tokens for run in runs}) == 1:
        words.append(in_words("dataset_tokens", first.request.tokens))
    places = []
    if len({run.request.num_gpus for run in runs}) == 1 and first.request.num_gpus is not None:
        places.append(f"{first.request.num_gpus:,}")
    if len({run.problem["accelerator"] for run in runs}) == 1:
        places = [_machine(first, *places)]
    elif places:
        places.append("GPUs")
    where = f" on {' '.join(places)}" if places else ""
    return f"{', '.join(words)}{where}{_limits(first)}: {count(len(runs), 'question')}"


def doubts(run: TrainingRun) -> list[str]:
    """Return a line for each attribute that is far from those of all known accelerators.

    What the file of the user's own model leaves out or has in addition is a line, too.
    """
    note = note_on_model(run.catalog, run.problem.get("model"))
    doubtful = questioned_attributes(run.catalog, run.problem, run.request.inputs)
    launch = run.request.launch
    read = [] if launch is None else [*launch.remarks(), *launch.free_layout()]
    return [*filter(None, [note]), *doubtful, *read]


def assumptions(run: TrainingRun, *, alone: bool = True) -> list[str]:
    """Return what a plan assumes: number format, batch, lost time, network, values given.

    An answer that is not `alone` does not say whose network it assumes.
    """
    request, values = run.request, run.problem
    words = [str(values["precision"]).upper()] if values.get("precision") else []
    words.append(f"batch {run.batch:,}" + (" (usual for its size)" if run.is_default_batch else ""))
    if run.critical_batch is not None:
        words.append(_tokens_in_words(run))
    if run.terms.goodput is not None:
        words.append(f"goodput {run.goodput:g}")
    if (domain := values.get("nvlink_size")) is not None:
        words.append(f"fast domains of {domain} GPUs")
    if (rate := values.get(NETWORK)) is not None:
        network = in_words(NETWORK, rate)
        of_which = _of_which_network(run) if alone else ""
        of_which += " without a source" if NETWORK in run.assumed else ""
        words.append(f"network {network} a GPU{of_which}")
    said = {"framework", "nvlink_size", "seq_len", *run.estimator.shape_columns}
    if given := {name: value for name, value in request.inputs.items() if name not in said}:
        words.append(f"given {_pairs(given)}")
    if unchanged := taken_over(values, request.inputs):
        words.append(unchanged)
    if assumed := {name: value for name, value in run.assumed.items() if name != NETWORK}:
        words.append(f"{_pairs(assumed)} without a source")
    if request.held:
        words.append(f"every layout has {_pairs(request.held)}")
    if request.headroom_bytes:
        words.append(f"{request.headroom_bytes / 1e9:,.4g} GB of memory stay free")
    return words


def _of_which_network(run: TrainingRun) -> str:
    """Return whose network an answer assumes; empty for a network that the user gave.

    For a bare chip it adds the named clusters with less than half of it.
    """
    name, rate = run.problem["accelerator"], float(run.problem[NETWORK] or 0)
    tables = run.catalog.tables
    if name is None or NETWORK in run.request.inputs:
        return ""
    if name not in tables.get("accelerator", {}):
        return f" of {name}"
    others = [
        cluster
        for cluster, row in tables.get(NAMED_CLUSTER, {}).items()
        if row["based_on"] == name and 2 * float(row[NETWORK] or rate) < rate
    ]
    have = f" ({' and '.join(others)} {'has' if len(others) == 1 else 'have'} less)"
    return f" of the bare chip{have if others else ''}"


def _tokens_in_words(run: TrainingRun) -> str:
    """Return the critical batch, and how many tokens the run takes at its own batch."""
    critical, asked = run.critical_batch, run.request.tokens
    assert critical is not None
    source, most = critical.fit or "", critical.most_parameters
    if most is not None and run.active_parameters > most:
        source += f", from models of up to {most / 1e9:g} G parameters"
    words = f"critical batch {in_words('dataset_tokens', critical.tokens)}"
    words += f" ({source})" if source else ""
    if run.tokens == asked:
        return words
    more = f"({100 * (run.tokens / asked - 1):+.1f} %)"
    return (
        f"{in_words('dataset_tokens', run.tokens)} {more} to the loss of "
        f"{in_words('dataset_tokens', asked)} at batch {run.usual_batch:,}: {words}"
    )


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
        limits.days and f", at most {limits.days:g} day{'' if limits.days == 1 else 's'}",
        limits.max_mw and f", at most {limits.max_mw:g} MW",
    )
    return "".join(word for word in words if word)


def _pairs(pairs: Mapping[str, Scalar]) -> str:
    def in_text(name: str, value: Scalar) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return in_words(name, value) if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {in_text(name, value)}" for name, value in pairs.items())
