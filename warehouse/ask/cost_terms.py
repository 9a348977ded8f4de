"""The options of `cost` and `energy` as a query: filters, and terms by number or name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.ask.cost import FILTERS, RunQuery, costs, energies
from warehouse.ask.plausible import check_electricity_price, check_prices, check_watts
from warehouse.ask.terms import carbons, number_or_name
from warehouse.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.ask.cost import RunTable


@dataclass(frozen=True)
class CostOptions:
    """Which stored runs are priced, and the terms that replace those of the tables.

    Attributes
    ----------
    estimator, variant, model, accelerator
        Values that a run must have, in any spelling; variant "all" compares every variant, and
        None takes the default one of each estimator.
    identity
        Id of a cell or of a problem: keep its runs alone.
    num_gpus
        Keep runs on this number of GPUs.
    seq_len
        Keep runs of sequences of this number of tokens.
    study
        Keep runs of the problems of this stored study.
    tokens
        Tokens of every run; None: each run's own.
    goodput, pue
        A number, or the name of a row of table ``goodput`` or ``facility_pue``.
    electricity_price
        USD a kWh.
    watts
        Power of one GPU with its server, while training.
    """

    estimator: str | None = None
    variant: str | None = None
    model: str | None = None
    accelerator: str | None = None
    identity: int | None = None
    num_gpus: int | None = None
    seq_len: int | None = None
    tokens: float | None = None
    goodput: str | None = None
    electricity_price: float | None = None
    pue: str | None = None
    watts: float | None = None
    study: str | None = None

    def query(
        self, connection: DuckDBPyConnection, name: str, values: Sequence[float | None]
    ) -> RunQuery:
        """Return the query of the stored runs, with each value of an argument of the macro."""
        check_electricity_price(connection, self.electricity_price)
        check_watts(connection, self.watts)
        filters = {name: getattr(self, name) for name in FILTERS}
        filters = {name: value for name, value in filters.items() if value is not None}
        if self.variant == "all":
            del filters["variant"]
        share = number_or_name(
            *(connection, self.goodput, "goodput", "goodput"),
            "$value > 0 and $value <= 1",
            "0.9 for 90 %",
        )
        pue = number_or_name(
            connection, self.pue, "pue", "facility_pue", "$value >= 1 and $value <= 10"
        )
        return RunQuery(
            filters,
            self.variant is None and self.identity is None,
            self.identity,
            self.num_gpus,
            self.tokens,
            share,
            [
                {
                    name: value,
                    "given_pue": pue,
                    "given_usd_per_kwh": self.electricity_price,
                    "given_watts": self.watts,
                }
                for value in values
            ],
            self.seq_len,
            self.study,
        )


def check_years(prices: Sequence[float], year: int | None, *, all_years: bool) -> None:
    """Refuse a year together with a price or with all years; reads no database."""
    if year is not None and (all_years or prices):
        other = "--all-years" if all_years else "--price"
        raise UsageError(f"`--year` and `{other}` exclude each other", "give one of them")


def asked_costs(
    connection: DuckDBPyConnection,
    options: CostOptions,
    prices: Sequence[float] = (),
    year: int | None = None,
    *,
    all_years: bool = False,
) -> RunTable:
    """Return the cost of the runs that options ask for.

    Parameters
    ----------
    prices
        USD of an hour of one GPU, instead of published prices: each gives its own rows.
    year
        Prices of this year; None: of the last one, unless `all_years`.
    """
    check_years(prices, year, all_years=all_years)
    check_prices(connection, prices)
    query = options.query(connection, "given_price", list(dict.fromkeys(prices)) or [None])
    return costs(connection, query, year, all_years)


def asked_energies(
    connection: DuckDBPyConnection,
    options: CostOptions,
    carbon: Sequence[str] = (),
    *,
    all_powers: bool = False,
) -> RunTable:
    """Return the energy and carbon of the runs that options ask for.

    Parameters
    ----------
    carbon
        kg CO2e of a kWh, or names of rows of table ``grid_carbon``: each gives its own rows.
        Without one, the grids of published runs.
    all_powers
        Also at full load, and of the accelerator alone.
    """
    grids = carbons(connection, carbon)
    per_kwh: list[float | None] = [grid.value for grid in grids] or [None]
    query = options.query(connection, "given_kg_co2e_per_kwh", per_kwh)
    return energies(connection, query, [grid.name for grid in grids] or [None], all_powers)
