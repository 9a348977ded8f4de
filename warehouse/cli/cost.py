"""`warehouse cost` and `warehouse energy`: stored runs in dollars, MWh and tons of CO2e."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    FormatOption,
    count,
    put_for_people,
    say,
)
from warehouse.formats import Format

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.costs import Answer, Question

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Only this model.")]
Accelerator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this accelerator, by any of its names.")
]
EstimatorName = Annotated[str | None, typer.Option(metavar="NAME", help="Whose estimates.")]
Variant = Annotated[
    str,
    typer.Option(metavar="NAME", help="published, corrected, a list of mends such as C1,C2, all."),
]
Identity = Annotated[
    int | None,
    typer.Option("--id", metavar="ID", help="Only the runs of this cell or problem."),
]
NumGpus = Annotated[
    int | None, typer.Option("--num-gpus", min=1, metavar="N", help="Only runs on so many GPUs.")
]
Tokens = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Tokens of the run, such as 20e12.",
        show_default="each run's own; needed where its estimator knows none",
    ),
]
Goodput = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|NAME",
        help="Share of the time that makes progress, or a run of table goodput.",
        show_default="a budgeted run's own, of others 1",
    ),
]
Electricity = Annotated[
    float | None,
    typer.Option("--electricity-price", metavar="USD", help="Price of a kWh."),
]
Pue = Annotated[
    str | None,
    typer.Option(metavar="RATIO|NAME", help="The site's overhead, or one of table facility_pue."),
]
Top = Annotated[int, typer.Option(min=1, metavar="N", help="Lines of a table at most.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json: base units.")]

DEFAULT_TOP = 60
"""Lines of a table unless asked otherwise; JSON and CSV always have all."""

_COMMON = (
    *("estimator", "variant", "model", "accelerator", "dataset_tokens", "basis", "power_basis"),
    *("year", "pue", "usd_per_kwh", "watts_per_gpu"),
)
"""Columns that are told above a table where all rows have the same value."""


def cost(
    model: Model = None,
    accelerator: Accelerator = None,
    estimator: EstimatorName = None,
    variant: Variant = "corrected",
    identity: Identity = None,
    num_gpus: NumGpus = None,
    tokens: Tokens = None,
    goodput: Goodput = None,
    price: Annotated[
        float | None,
        typer.Option(metavar="USD", help="Price of an hour of one GPU, instead of published ones."),
    ] = None,
    electricity_price: Electricity = None,
    pue: Pue = None,
    year: Annotated[
        int | None,
        typer.Option(metavar="YEAR", help="Prices of this year.", show_default="the last"),
    ] = None,
    all_years: Annotated[
        bool, typer.Option("--all-years", help="Prices of every year that there are.")
    ] = False,
    top: Top = DEFAULT_TOP,
    as_json: AsJson = False,
    form: FormatOption = Format.TABLE,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show what stored runs cost, rented and owned.

    Runs are those of the cluster estimator and the best layout of every other cell; those that
    agree in model, accelerator and tokens are one line, with the cheapest (whose GPUs, days and
    layout are shown) and the dearest of them. Prices are those of the reference tables, joined
    now: rent is the middle one of the vendors' last quotes of the year; owning is the purchase
    over its life and the electricity. Where nothing was published there is none, and --price
    gives yours. A table is in days, GPU-hours and dollars; JSON in base units.
    """
    from warehouse.connection import open_for_read
    from warehouse.costs import costs
    from warehouse.errors import UsageError

    if year is not None and (all_years or price is not None):
        other = "--all-years" if all_years else "--price"
        raise UsageError(f"`--year` cannot stand beside `{other}`", "use one of them")
    filters = {
        "estimator": estimator,
        "variant": variant,
        "model": model,
        "accelerator": accelerator,
    }
    with open_for_read(db) as connection:
        overrides = {
            "given_price": _above_zero("price", price),
            "given_pue": _pue(connection, pue),
            "given_usd_per_kwh": _not_negative("electricity-price", electricity_price),
        }
        question = _question(connection, filters, identity, num_gpus, tokens, goodput, overrides)
        answer = costs(connection, question, year, all_years)
    _put(answer, as_json, form, top, {"priced_as", "price_source", "median_cost_usd"})


def energy(
    model: Model = None,
    accelerator: Accelerator = None,
    estimator: EstimatorName = None,
    variant: Variant = "corrected",
    identity: Identity = None,
    num_gpus: NumGpus = None,
    tokens: Tokens = None,
    goodput: Goodput = None,
    watts: Annotated[
        float | None,
        typer.Option(metavar="W", help="Power of one GPU with its server, while training."),
    ] = None,
    electricity_price: Electricity = None,
    pue: Pue = None,
    carbon: Annotated[
        str | None,
        typer.Option(
            metavar="KG|NAME", help="kg CO2e of a kWh, or one of table grid_carbon; default: all."
        ),
    ] = None,
    all_powers: Annotated[
        bool,
        typer.Option("--all-powers", help="Also at full load, of the accelerator alone, measured."),
    ] = False,
    top: Top = DEFAULT_TOP,
    as_json: AsJson = False,
    form: FormatOption = Format.TABLE,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show the energy that stored runs take, and its CO2e.

    Runs are those of `warehouse cost`. Power is the server's at full load times the share that
    training draws on average; the site's overhead (PUE) that of a hyperscaler; electricity at
    the last industrial price of the United States; carbon that of each grid of the reference
    tables. Where no power was published there is no energy, and --watts gives yours. A table is
    in MW, MWh and tons; JSON in base units.
    """
    from warehouse.connection import open_for_read
    from warehouse.costs import energies, number_or_name

    filters = {
        "estimator": estimator,
        "variant": variant,
        "model": model,
        "accelerator": accelerator,
    }
    with open_for_read(db) as connection:
        overrides = {
            "given_watts": _above_zero("watts", watts),
            "given_pue": _pue(connection, pue),
            "given_usd_per_kwh": _not_negative("electricity-price", electricity_price),
            "given_kg_co2e_per_kwh": number_or_name(
                connection, carbon, "carbon", "grid_carbon", "$value >= 0"
            ),
        }
        question = _question(connection, filters, identity, num_gpus, tokens, goodput, overrides)
        is_named = carbon is not None and not _is_number(carbon)
        answer = energies(connection, question, carbon if is_named else None, all_powers)
    _put(answer, as_json, form, top, {"priced_as", "power_source", "median_energy_kwh"})


def _question(
    connection: DuckDBPyConnection,
    filters: dict[str, str | None],
    identity: int | None,
    num_gpus: int | None,
    tokens: float | None,
    goodput: str | None,
    overrides: dict[str, float | None],
) -> Question:
    from warehouse.costs import Question, number_or_name

    limits = "$value > 0 and $value <= 1"
    share = number_or_name(connection, goodput, "goodput", "goodput", limits)
    if filters["variant"] == "all" or identity is not None:
        filters["variant"] = None
    return Question(
        {name: value for name, value in filters.items() if value is not None},
        identity,
        num_gpus,
        _above_zero("tokens", tokens),
        share,
        overrides,
    )


def _pue(connection: DuckDBPyConnection, text: str | None) -> float | None:
    from warehouse.costs import number_or_name

    return number_or_name(connection, text, "pue", "facility_pue", "$value >= 1 and $value <= 10")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _above_zero(option: str, value: float | None) -> float | None:
    return _checked(option, value, value is None or value > 0, "above 0")


def _not_negative(option: str, value: float | None) -> float | None:
    return _checked(option, value, value is None or value >= 0, "at least 0")


def _checked(option: str, value: float | None, is_sound: bool, limit: str) -> float | None:
    from math import isfinite

    from warehouse.errors import InputError

    if value is not None and not (is_sound and isfinite(value) and value <= 1e30):
        raise InputError(f"`{option}` {value:g}: cannot be", f"it must be a number {limit}")
    return value


def _put(answer: Answer, as_json: bool, form: Format, top: int, drop: set[str]) -> None:
    """Print the answer; above a table, what is the same in all rows."""
    if answer.num_without_tokens:
        runs = count(answer.num_without_tokens, "run")
        say(f"left out, their tokens are not known: {runs}; give --tokens")
    if as_json:
        form = Format.JSON
    same: dict[str, Any] = {}
    for place, name in enumerate(answer.columns):
        values = {row[place] for row in answer.rows}
        if name in _COMMON and len(values) == 1:
            same[name] = values.pop()
    if form is Format.TABLE:
        from warehouse.report import in_words

        told = [f"{n} {in_words(n, value)}" for n, value in same.items() if value is not None]
        say(", ".join(told))
        if len(answer.rows) > top:
            say(f"the first {top:,} of {count(len(answer.rows), 'line')}; filter, or ask for --top")
    rows = answer.rows[:top] if form is Format.TABLE else answer.rows
    put_for_people(answer.columns, rows, form, drop={*drop, *same})
