"""The options of `cost` and `energy` as a query: filters, and terms by number or name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.ask.cost import FILTERS, RunQuery, costs, energies
from warehouse.ask.plausible import check_electricity_price, check_prices, check_watts
from warehouse.ask.terms import carbons, number_or_name
from warehouse.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.ask.cost import RunTable
    from warehouse.options import CostOptions


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
    query = _run_query(connection, options, "given_price", list(dict.fromkeys(prices)) or [None])
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
    query = _run_query(connection, options, "given_kg_co2e_per_kwh", per_kwh)
    return energies(connection, query, [grid.name for grid in grids] or [None], all_powers)


def _run_query(
    connection: DuckDBPyConnection,
    options: CostOptions,
    name: str,
    values: Sequence[float | None],
) -> RunQuery:
    """Return the query of the stored runs, with each value of an argument of the macro."""
    check_electricity_price(connection, options.electricity_price)
    check_watts(connection, options.watts)
    filters = {name: getattr(options, name) for name in FILTERS}
    filters = {name: value for name, value in filters.items() if value is not None}
    if options.variant == "all":
        del filters["variant"]
    share = number_or_name(
        *(connection, options.goodput, "goodput", "goodput"),
        "$value > 0 and $value <= 1",
        "0.9 for 90 %",
    )
    pue = number_or_name(
        connection, options.pue, "pue", "facility_pue", "$value >= 1 and $value <= 10"
    )
    return RunQuery(
        filters,
        options.variant is None and options.identity is None,
        options.identity,
        options.num_gpus,
        options.tokens,
        share,
        [
            {
                name: value,
                "given_pue": pue,
                "given_usd_per_kwh": options.electricity_price,
                "given_watts": options.watts,
            }
            for value in values
        ],
        options.seq_len,
        options.study,
    )
