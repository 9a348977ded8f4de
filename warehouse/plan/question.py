"""A run that is to be planned: what is asked, and what follows from it before any layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from estimators import registry
from estimators.contract import PUBLISHED, RefusedError, Scalar
from warehouse.ask.defaults import CUSTOM_MODEL, with_model_hint
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.one import Shown, show_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Estimator, Mends

MAX_GPUS = 16_384
"""Largest number of GPUs that is tried unless asked otherwise."""


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
        return str(self.facts.problem["model"] or CUSTOM_MODEL)

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
        raise with_model_hint(error, estimator, texts) from None
    whole, active = estimator.layer_parameters(facts.problem)
    sequences = estimator.default_batch(facts.problem, asked.tokens)
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
