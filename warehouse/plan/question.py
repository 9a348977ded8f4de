"""A run that is to be planned: what is asked, and what follows from it before any layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from estimators import registry
from estimators.contract import PUBLISHED, RefusedError, Scalar
from estimators.training_step.counts import parameters
from estimators.training_step.estimator import FLAGS, with_derived
from estimators.training_step.inputs import NEEDED as SHAPE
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.one import Shown, show_configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from estimators.contract import Estimator, Mends

MAX_GPUS = 16_384
"""Largest number of GPUs that is tried unless asked otherwise."""

OWN_MODEL = "a model of one's own"
"""What a model is called that is given by its shape alone."""

BATCH_RULE = "2,048^2 tokens at 1e25 FLOPs, with the sixth root of the FLOPs, to a power of two"
"""How large a batch is unless it is given; source: davidsj/ml_par_sim run_optimizer2.ipynb."""


@dataclass(frozen=True)
class Limits:
    """What a run must keep within; None: no such limit."""

    budget_usd: float | None = None
    days: float | None = None
    max_mw: float | None = None

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class Asked:
    """What is asked: the run, what it must keep within, and its terms.

    Attributes
    ----------
    model
        Its name in table `model`, or a label beside a shape; None: the shape says all.
    inputs
        Columns of the problem that were given, beside model, accelerator, GPUs and batch.
    held
        Choices and layout columns of which every layout has this value.
    headroom_bytes
        Memory that a layout must leave to be a candidate.
    batch
        Sequences of a step; None: by the rule.
    basis
        Basis of the price that the budget is held against.
    goodput, price, pue, usd_per_kwh, kg_co2e_per_kwh, watts
        As the table macros of costs and energy take them.
    """

    estimator: str
    model: str | None
    accelerator: str
    tokens: float
    num_gpus: int | None = None
    limits: Limits = field(default_factory=Limits)
    inputs: Mapping[str, Scalar] = field(default_factory=dict)
    held: Mapping[str, Scalar] = field(default_factory=dict)
    headroom_bytes: float = 0.0
    batch: int | None = None
    max_gpus: int = MAX_GPUS
    basis: str = "on_demand"
    goodput: float | None = None
    price: float | None = None
    pue: float | None = None
    usd_per_kwh: float | None = None
    kg_co2e_per_kwh: float | None = None
    watts: float | None = None

    @property
    def takes_cheapest(self) -> bool:
        """Whether the cheapest run within the limits is best, not the fastest."""
        return self.limits.days is not None


@dataclass(frozen=True)
class Run:
    """What is asked, resolved.

    Attributes
    ----------
    facts
        One GPU with one sequence: the problem's values under their names in the tables.
    mends
        Of the variant that is shown unless asked otherwise.
    batch
        Sequences of a step.
    is_default_batch
        Whether the rule gave them.
    parameters, active_parameters
        Of the model without its vocabulary: all of them, and those that a token passes through.
    """

    asked: Asked
    estimator: Estimator
    mends: Mends
    facts: Shown
    batch: int
    is_default_batch: bool
    parameters: float
    active_parameters: float

    @property
    def variant(self) -> str:
        """What the views call the mends."""
        return "corrected" if self.mends else "published"

    @property
    def model(self) -> str:
        """What the model is called where people read."""
        return str(self.facts.problem["model"] or OWN_MODEL)

    @property
    def least_seconds_of_one_gpu(self) -> float:
        """Time of the run on one GPU at its peak rate: no estimate is below that."""
        peak = float(self.facts.problem["matrix_flops_per_second"] or 0)
        goodput = self.asked.goodput or 1.0
        return 6 * self.active_parameters * self.asked.tokens / peak / goodput


def resolve(asked: Asked) -> Run:
    """Look up model and accelerator, and settle the batch.

    Raises
    ------
    RefusedError
        If the model, the accelerator or another input is not known.
    """
    estimator, catalog = registry.get(asked.estimator), packaged_catalog()
    relation = estimator.relations[0]
    mends = frozenset(estimator.mends)
    texts = {
        **({} if asked.model is None else {"model": asked.model}),
        "accelerator": asked.accelerator,
        "num_gpus": "1",
        "global_batch_size": "1",
        **{name: str(value) for name, value in asked.inputs.items()},
    }
    try:
        facts = show_configuration(estimator, relation, texts, mends or PUBLISHED, catalog)
    except RefusedError as error:
        raise with_model_hint(error, texts) from None
    whole, active = layer_parameters(facts.problem)
    sequences = default_batch(active, asked.tokens, int(facts.problem["seq_len"] or 1))
    return Run(
        asked,
        estimator,
        mends,
        facts,
        asked.batch or sequences,
        asked.batch is None,
        whole,
        active,
    )


def with_model_hint(error: RefusedError, given: Iterable[str]) -> RefusedError:
    """Return the error of an unknown model or an incomplete shape with what to do about it.

    Parameters
    ----------
    given
        Names of the inputs that were given.
    """
    missing = [name for name in SHAPE if name not in given]
    shape = f"or give its shape: {' '.join(f'{name}=...' for name in missing)}"
    listing = '`warehouse sql "select model from model"` lists all'
    refusals = []
    for one in error.refusals:
        if one.column == "model" and "table" in one.reason:
            own = shape if missing else "or leave it out beside the shape"
            refusals.append(replace(one, hint=f"{one.hint}; {listing}; {own}"))
        elif one.column in SHAPE and one.reason == "is missing":
            refusals.append(replace(one, hint=f"name a model: {listing}; {shape}"))
        else:
            refusals.append(one)
    return RefusedError(refusals)


def layer_parameters(problem: Mapping[str, Scalar]) -> tuple[float, float]:
    """Return the parameters of all layers, and of those a token passes through."""
    neutral = {"num_experts": 1, "experts_per_token": 1, "num_shared_experts": 0}
    neutral |= {"num_dense_layers": 0}
    shape = {**neutral, **problem, "vocab_size": None}
    shape.setdefault("num_kv_heads", shape["num_heads"])
    shape.setdefault("head_size", int(shape["hidden_size"] or 0) // int(shape["num_heads"] or 1))
    shape.setdefault("expert_ffn_hidden_size", shape["ffn_hidden_size"])
    for name in FLAGS:
        shape.setdefault(name, False)
    shape |= {"precision": None, "fp8_flops_per_second": None}
    count = parameters(with_derived(shape))
    layers = float(shape["num_layers"] or 0)
    share = float(shape["experts_per_token"] or 1) / float(shape["num_experts"] or 1)
    whole, active = count.layer + count.experts, count.layer + share * count.experts
    return float(layers * whole), float(layers * active)


def default_batch(active_parameters: float, tokens: float, seq_len: int) -> int:
    """Return the sequences of a step by `BATCH_RULE`."""
    flops = 6 * active_parameters * tokens
    sequences = 2048**2 * (flops / 1e25) ** (1 / 6) / seq_len
    return int(2 ** max(round(math.log2(sequences)), 0))
