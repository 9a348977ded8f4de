"""`warehouse cost` and `warehouse energy`: stored runs in dollars, MWh and tons of CO2e."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import put_for_people, say, title_line
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase, Top
from warehouse.cli.output import Output
from warehouse.options import Carbon, CostOptions, PowerTerms, Prices, RunFilters, number_option
from warehouse.show.formats import Format, count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warehouse.ask.cost import RunTable

    Line = Mapping[str, Any]

DEFAULT_TOP = 60
"""Lines of a table unless --top says otherwise; other formats always have all."""

DEFAULT_STRATEGY = "tensor_1d"
"""The strategy that a layout in words does not name if the estimator has no other."""

_COMMON = (
    *("estimator", "variant", "model", "seq_len", "accelerator", "dataset_tokens", "basis"),
    *("power_basis", "year", "pue", "usd_per_kwh", "watts_per_gpu"),
)
"""Columns that a line above the table states once if all rows have the same value."""

_NOT_SHOWN = frozenset(
    {
        *("priced_as", "is_lower_bound", "price_source", "median_cost_usd", "power_source"),
        "quote_vendors",
        *("amortised_usd_per_gpu_hour", "electricity_usd_per_gpu_hour", "median_energy_kwh"),
    }
)
"""Columns that a table leaves out."""


def cost(
    *,
    runs: RunFilters,
    price: Prices = None,
    terms: PowerTerms,
    year: Annotated[
        int | None,
        number_option(
            "--year",
            "Prices of this year.",
            metavar="YEAR",
            show_default="the last",
            whole=True,
            least=1,
        ),
    ] = None,
    all_years: Annotated[bool, typer.Option("--all-years", help="Prices of every year.")] = False,
    top: Top = None,
    output: Output,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show what stored runs cost, rented and owned.

    Runs are those of the estimators that budget whole runs, and the best layout of every other
    cell. Runs with the same model, system and tokens make one line: it shows GPUs, days and layout
    of the cheapest, and the hours and dollars of the cheapest and the dearest. --variant all
    compares every variant.

    Prices come from the reference tables. Rent is the middle one of the last quotes of all vendors
    in the year. Owning is the purchase price spread over the accelerator's life, plus electricity.
    If no price was published, give --price and --watts; a system that differs from the published
    one has no price either. Runs on sequences of different lengths make separate lines. Tables show
    days, GPU-hours and dollars, 60 lines unless --top says otherwise. JSON uses base units.
    """
    from warehouse.ask.cost import COST_COLUMNS, check_years, costs
    from warehouse.database.connection import open_for_read

    output.expect(COST_COLUMNS)
    check_years(price or (), year, all_years=all_years)
    options = CostOptions(**vars(runs), **vars(terms))
    with open_for_read(db) as connection:
        table = costs(connection, options, price or (), year, all_years=all_years)
    _put(table, output, top)


def energy(
    *,
    runs: RunFilters,
    terms: PowerTerms,
    carbon: Carbon = None,
    all_powers: Annotated[
        bool,
        typer.Option(
            "--all-powers",
            help="Also show power at full load, of the accelerator alone, and as measured.",
        ),
    ] = False,
    top: Top = None,
    output: Output,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show the energy that stored runs take, and its CO2e.

    Runs are those of `warehouse cost`. Power is that of the run's own steps with the host if the
    estimator computes it, otherwise that of the server at full load times the average share during
    training. Without options, the site's overhead (PUE) is a hyperscaler's, electricity has the
    last industrial price of the United States, and carbon is shown for the grids of published runs.
    --carbon takes a country, a state or another grid of table grid_carbon by any of its names, or
    your number, and may be repeated. Where no power is known, --watts gives yours. Tables show MW,
    MWh and tons, kWh and kg of short runs; they have 60 lines unless --top says otherwise. JSON
    uses base units.
    """
    from warehouse.ask.cost import ENERGY_COLUMNS, energies
    from warehouse.database.connection import open_for_read

    output.expect(ENERGY_COLUMNS)
    options = CostOptions(**vars(runs), **vars(terms))
    with open_for_read(db) as connection:
        table = energies(connection, options, carbon or (), all_powers=all_powers)
    _put(table, output, top)


def _put(table: RunTable, output: Output, top: int | None) -> None:
    """Print the runs; above a table, what is the same in all rows."""
    from warehouse.database.stamp import reference_in_words
    from warehouse.show.units import in_words

    is_table = output.form is Format.TABLE
    lines: list[Line] = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    values = {name: {line[name] for line in lines} for name in table.columns}
    bounds: dict[str, set[bool]] = {}
    for line in lines:
        bounds.setdefault(line["estimator"], set()).add(line["is_lower_bound"])
    for name in bounds if is_table else ():
        say(title_line(name))
    for note in (*_notes(table, lines, bounds), reference_in_words()):
        say(note)
    same = {
        name: next(iter(values[name]))
        for name in table.columns
        if name in _COMMON and len(values[name]) == 1
    }
    drop = {*_needless(lines, values), *same}
    if any(len(flags) > 1 for flags in bounds.values()):
        drop.discard("is_lower_bound")
    if is_table:
        words = [f"{n} {in_words(n, value)}" for n, value in same.items() if value is not None]
        if words:
            say(", ".join(words))
        shown = top or DEFAULT_TOP
        if len(lines) > shown:
            say(f"{shown:,} of {count(len(lines), 'line')} shown; --top N shows more")
            lines = lines[:shown]
        lines = _without_needless_strategy(lines)
    with output.opened():
        put_for_people(table.columns, [tuple(line.values()) for line in lines], drop)


def _without_needless_strategy(lines: Sequence[Line]) -> list[Line]:
    """Return lines whose layouts do not name the strategy if the estimator has only one."""
    others = {
        line["estimator"]
        for line in lines
        if str(line["best_layout"] or "").partition(" ")[0] != DEFAULT_STRATEGY
    }
    return [
        line
        if line["estimator"] in others
        else {**line, "best_layout": line["best_layout"].removeprefix(f"{DEFAULT_STRATEGY} ")}
        for line in lines
    ]


def _notes(
    table: RunTable, lines: Sequence[Line], bounds: Mapping[str, set[bool]]
) -> Iterator[str]:
    """Yield lower bounds, vendors and purchases that differ, grids, and runs that are left out."""
    from warehouse.ask.cost import WITHOUT_TOKENS
    from warehouse.ask.terms import grids_in_words, price_vendors

    for name, flags in bounds.items():
        if True in flags:
            which = "some" if False in flags else "all"
            yield f"lower bounds: {which} hours, dollars and energies of {name}"
    if "quote_vendors" in table.columns:
        for name in dict.fromkeys(line["priced_as"] for line in lines):
            if words := price_vendors(line for line in lines if line["priced_as"] == name):
                yield f"{name}: {words}"
    bought: dict[str, list[str]] = {}
    for name, part in table.purchases.items():
        bought.setdefault(part, []).append(name)
    if len(bought) > 1:
        kinds = [f"of a {kind} for {', '.join(names)}" for kind, names in bought.items()]
        yield (
            f"owned: prices {'; '.join(kinds)}. The rest of a server is an estimate there, so do "
            "not compare them closely"
        )
    yield from grids_in_words(table.grids)
    for reason, number in table.left_out.items():
        hint = "; give --tokens" if reason == WITHOUT_TOKENS else ""
        yield f"left out, {reason}: {count(number, 'run')}{hint}"


def _needless(lines: Sequence[Line], values: Mapping[str, set[Any]]) -> Iterator[str]:
    """Yield the columns that a table does not need."""
    yield from _NOT_SHOWN
    yield from (n for n in ("system_changes", "assumptions") if values[n] == {None})
    shapes = {(line["model"], line["model_shape"]) for line in lines}
    if len(shapes) == len(values["model"]):
        yield "model_shape"  # each model has one shape
