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
    title_line,
)
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.ask.cost import RunQuery, RunTable

Model = Annotated[str | None, typer.Option(metavar="NAME", help="Only this model.")]
Accelerator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this accelerator, by any of its names.")
]
EstimatorName = Annotated[str | None, typer.Option(metavar="NAME", help="Whose estimates.")]
Variant = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="published, corrected, a list of mends such as C1,C2, all.",
        show_default="corrected; published of an estimator without mends",
    ),
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
Watts = Annotated[
    float | None,
    typer.Option(metavar="W", help="Power of one GPU with its server, while training."),
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

_NOT_SHOWN = frozenset(
    {
        *("priced_as", "is_lower_bound", "price_source", "median_cost_usd", "power_source"),
        *("amortised_usd_per_gpu_hour", "electricity_usd_per_gpu_hour", "median_energy_kwh"),
    }
)
"""Columns that a table leaves out."""


def cost(
    model: Model = None,
    accelerator: Accelerator = None,
    estimator: EstimatorName = None,
    variant: Variant = None,
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
    watts: Watts = None,
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
    agree in model, system and tokens are one line, with the cheapest (whose GPUs, days and
    layout are shown) and the dearest of them. Prices are those of the reference tables, joined
    now: rent is the middle one of the vendors' last quotes of the year; owning is the purchase
    over its life and the electricity. Where nothing was published there is none: --price gives
    yours, and --watts the power of what is owned. A system that is not as published has none.
    A table is in days, GPU-hours and dollars; JSON in base units.
    """
    from warehouse.ask.cost import above_zero, costs, not_negative
    from warehouse.database.connection import open_for_read
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
            "given_price": above_zero("price", price),
            "given_pue": _pue(connection, pue),
            "given_usd_per_kwh": not_negative("electricity-price", electricity_price),
            "given_watts": above_zero("watts", watts),
        }
        question = _question(connection, filters, identity, num_gpus, tokens, goodput, overrides)
        answer = costs(connection, question, year, all_years)
    _put(answer, as_json, form, top)


def energy(
    model: Model = None,
    accelerator: Accelerator = None,
    estimator: EstimatorName = None,
    variant: Variant = None,
    identity: Identity = None,
    num_gpus: NumGpus = None,
    tokens: Tokens = None,
    goodput: Goodput = None,
    watts: Watts = None,
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
    from warehouse.ask.cost import above_zero, energies, not_negative, number_or_name
    from warehouse.database.connection import open_for_read

    filters = {
        "estimator": estimator,
        "variant": variant,
        "model": model,
        "accelerator": accelerator,
    }
    with open_for_read(db) as connection:
        overrides = {
            "given_watts": above_zero("watts", watts),
            "given_pue": _pue(connection, pue),
            "given_usd_per_kwh": not_negative("electricity-price", electricity_price),
            "given_kg_co2e_per_kwh": number_or_name(
                connection, carbon, "carbon", "grid_carbon", "$value >= 0"
            ),
        }
        question = _question(connection, filters, identity, num_gpus, tokens, goodput, overrides)
        is_named = carbon is not None and not _is_number(carbon)
        answer = energies(connection, question, carbon if is_named else None, all_powers)
    _put(answer, as_json, form, top)


def _question(
    connection: DuckDBPyConnection,
    filters: dict[str, str | None],
    identity: int | None,
    num_gpus: int | None,
    tokens: float | None,
    goodput: str | None,
    overrides: dict[str, float | None],
) -> RunQuery:
    from warehouse.ask.cost import RunQuery, above_zero, number_or_name

    limits = "$value > 0 and $value <= 1"
    share = number_or_name(connection, goodput, "goodput", "goodput", limits)
    is_default = filters["variant"] is None and identity is None
    if filters["variant"] == "all":
        filters["variant"] = None
    return RunQuery(
        {name: value for name, value in filters.items() if value is not None},
        is_default,
        identity,
        num_gpus,
        above_zero("tokens", tokens),
        share,
        overrides,
    )


def _pue(connection: DuckDBPyConnection, text: str | None) -> float | None:
    from warehouse.ask.cost import number_or_name

    return number_or_name(connection, text, "pue", "facility_pue", "$value >= 1 and $value <= 10")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _put(answer: RunTable, as_json: bool, form: Format, top: int) -> None:
    """Print the answer; above a table, what is the same in all rows."""
    from warehouse.ask.cost import WITHOUT_TOKENS

    place = {name: number for number, name in enumerate(answer.columns)}
    names = dict.fromkeys(row[place["estimator"]] for row in answer.rows)
    if as_json:
        form = Format.JSON
    if form is Format.TABLE:
        for name in names:
            say(title_line(name))
    flags = {(row[place["estimator"]], row[place["is_lower_bound"]]) for row in answer.rows}
    for name in (name for name in names if (name, True) in flags):
        which = "some" if (name, False) in flags else "all"
        say(f"lower bounds: {which} hours, dollars and energies of {name}")
    for reason, number in answer.left_out.items():
        hint = "; give --tokens" if reason == WITHOUT_TOKENS else ""
        say(f"left out, {reason}: {count(number, 'run')}{hint}")
    drop = set(_NOT_SHOWN)
    if any((name, not flag) in flags for name, flag in flags):
        drop.discard("is_lower_bound")  # it tells lines of one estimator apart
    same: dict[str, Any] = {}
    for name, number in place.items():
        values = {row[number] for row in answer.rows}
        if name in _COMMON and len(values) == 1:
            same[name] = values.pop()
        if values == {None} and name in ("system_changes", "assumptions"):
            drop.add(name)
    shapes = {(row[place["model"]], row[place["model_shape"]]) for row in answer.rows}
    if len(shapes) == len({model for model, _ in shapes}):
        drop.add("model_shape")  # the name tells them apart
    if form is Format.TABLE:
        from warehouse.show.units import in_words

        told = [f"{n} {in_words(n, value)}" for n, value in same.items() if value is not None]
        if told:
            say(", ".join(told))
        if len(answer.rows) > top:
            say(f"the first {top:,} of {count(len(answer.rows), 'line')}; filter, or ask for --top")
    rows = answer.rows[:top] if form is Format.TABLE else answer.rows
    put_for_people(answer.columns, rows, form, drop={*drop, *same})
