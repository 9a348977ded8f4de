"""What a plan is asked with: options checked, names of rates looked up, inputs of the estimator."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb

from estimators import registry
from estimators.contract import RefusedError, Scalar
from warehouse.catalog import packaged_catalog
from warehouse.connection import open_for_read
from warehouse.costs import above_zero, not_negative, number_or_name
from warehouse.errors import UsageError
from warehouse.plan import Asked, Limits
from warehouse.schema import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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


def given_inputs(
    estimator: str, accelerator: str, given: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the columns of the problem that are given; domains are as the accelerator is sold.

    Raises
    ------
    UsageError
        If the estimator cannot plan a run, or has no such input.
    """
    model = registry.get(estimator)
    if model.search is None or any(name not in model.problem_columns for name in _NEEDED):
        raise UsageError(
            f"`--estimator` {estimator} cannot plan a run: it searches no layouts of a step on a "
            "number of GPUs",
            "use training_step or roofline",
        )
    found: dict[str, Scalar] = {n: value for n, value in given.items() if value is not None}
    for name, value in found.items():
        if name not in model.problem_columns:
            option = name.replace("_", "-")
            raise UsageError(f"`--{option}` {value}: {estimator} has no such input", "leave it out")
    if "nvlink_size" not in found and "framework" not in model.problem_columns:
        sold = _gpus_per_node(accelerator)
        if sold is not None:
            found["nvlink_size"] = sold
    return found


def _gpus_per_node(accelerator: str) -> int | None:
    """Return the GPUs of a domain as sold; None of a system of an estimator's own."""
    try:
        sold = packaged_catalog().find("accelerator", accelerator)["gpus_per_node"]
    except RefusedError:
        return None
    return None if sold is None else int(sold)


@contextmanager
def reference_tables(database: Path) -> Iterator[DuckDBPyConnection]:
    """Yield a connection to the reference tables and their views.

    They are the database's, or, where there is none yet, those of the package.
    """
    if database.exists():
        with open_for_read(database) as connection:
            yield connection
        return
    with duckdb.connect(":memory:") as connection:
        prepare(connection)
        yield connection
