"""What a plan is asked with: options checked, names of rates looked up, inputs of the estimator."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from estimators import registry
from estimators.contract import Scalar
from warehouse.ask.cost import above_zero, not_negative, number_or_name
from warehouse.ask.defaults import sold_domain
from warehouse.database.connection import open_for_read
from warehouse.database.empty import in_memory
from warehouse.errors import UsageError
from warehouse.evaluate.one import read_pairs, read_values
from warehouse.plan.question import Asked, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_NEEDED = ("model", "accelerator", "num_gpus", "global_batch_size", "seq_len")
"""Problem columns of an estimator that can plan a run."""


@dataclass(frozen=True)
class Given:
    """The terms of a run as options give them: numbers, or names of reference tables."""

    goodput: str | None
    price: float | None
    pue: str | None
    electricity_price: float | None
    carbon: str | None
    watts: float | None
    basis: str
    headroom_gb: float = 0.0

    @property
    def grid(self) -> str | None:
        """The grid whose carbon was given by its name."""
        if self.carbon is None:
            return None
        try:
            float(self.carbon)
        except ValueError:
            return self.carbon
        return None


def asked_of(connection: DuckDBPyConnection, asked: Asked, given: Given) -> Asked:
    """Return what is asked with its terms, every number checked.

    Raises
    ------
    InputError
        If one is not sound, or a name is not in its table.
    """
    limits = asked.limits
    above_zero("tokens", asked.tokens)
    return replace(
        asked,
        limits=Limits(
            above_zero("budget-usd", limits.budget_usd),
            above_zero("days", limits.days),
            above_zero("max-mw", limits.max_mw),
        ),
        basis=given.basis,
        headroom_bytes=1e9 * (not_negative("headroom-gb", given.headroom_gb) or 0.0),
        goodput=number_or_name(
            connection, given.goodput, "goodput", "goodput", "$value > 0 and $value <= 1"
        ),
        price=above_zero("price", given.price),
        pue=number_or_name(
            connection, given.pue, "pue", "facility_pue", "$value >= 1 and $value <= 10"
        ),
        usd_per_kwh=not_negative("electricity-price", given.electricity_price),
        kg_co2e_per_kwh=number_or_name(
            connection, given.carbon, "carbon", "grid_carbon", "$value >= 0"
        ),
        watts=above_zero("watts", given.watts),
    )


_SAID_BY = {
    "num_gpus": "--gpus",
    "global_batch_size": "--batch",
    "num_microbatches": "--batch",
}
"""What a plan settles by an option, and what follows from it."""


@dataclass(frozen=True)
class Inputs:
    """What is given of the problem and of its layouts, each as its column has it.

    Attributes
    ----------
    model, accelerator
        By their names; None where they were not given.
    problem
        Other columns of the problem: a shape, attributes of the system, the framework ...
    held
        Choices and layout columns of which every layout is to have this value.
    """

    model: str | None
    accelerator: str | None
    problem: Mapping[str, Scalar]
    held: Mapping[str, Scalar]


def given_inputs(
    estimator: str, options: Mapping[str, Scalar], pairs: Sequence[str] = ()
) -> Inputs:
    """Return what options and texts such as ``num_layers=80`` give.

    A domain that is not given is as the accelerator is sold, for estimators that know no such
    default themselves.

    Parameters
    ----------
    options
        Column -> value of its option, None where it was not given.

    Raises
    ------
    UsageError
        If the estimator cannot plan a run, has no such input, or something is said twice.
    RefusedError
        If a key is not an input, or a value none that its column may hold.
    """
    model = registry.get(estimator)
    if model.search is None or any(name not in model.problem_columns for name in _NEEDED):
        raise UsageError(
            f"`--estimator` {estimator} cannot plan a run: it searches no layouts of a step on a "
            "number of GPUs",
            "use training_step or roofline",
        )
    relation = model.relations[0]
    texts = read_pairs(model, relation, pairs)
    for name, option in _SAID_BY.items():
        if name in texts:
            raise UsageError(f"`{name}={texts[name]}`: has an option of its own", f"give {option}")
    if texts.pop("profile", "default") != "default":
        hint = "`warehouse show training_step ... --profile NAME` shows a calibrated step"
        raise UsageError("`profile`: a plan is of the constants with their sources", hint)
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None:
            continue
        if name not in model.problem_columns:
            raise UsageError(f"`{option}` {value}: {estimator} has no such input", "leave it out")
        if name in texts:
            raise UsageError(f"`{option}` {value}: stands beside `{name}={texts[name]}`", "say one")
        texts[name] = str(value)
    values = read_values(relation, texts)
    called, chip = (
        None if name not in values else str(values.pop(name)) for name in ("model", "accelerator")
    )
    layout = (*relation.keys, *model.choice_columns)
    held = {name: values.pop(name) for name in layout if name in values}
    if "nvlink_size" not in values and chip is not None:
        values |= sold_domain(model, chip)
    return Inputs(called, chip, values, held)


@contextmanager
def reference_tables(database: Path) -> Iterator[DuckDBPyConnection]:
    """Yield a connection to the reference tables and their views.

    They are the database's, or, where there is none yet, those of the package.
    """
    if database.exists():
        with open_for_read(database) as connection:
            yield connection
        return
    with in_memory() as connection:
        yield connection
