"""Columns of the reference tables of prices, power, places and published runs."""

from __future__ import annotations

from estimators.columns.column import Column, count, efficiency, measure, positive, text
from estimators.columns.forms import (
    COST,
    EMISSIONS,
    ENERGY,
    GPU_HOURS,
    GPU_POWER,
    IDENTIFIER,
    SHARE,
)


def _price(name: str, meaning: str) -> Column:
    return Column(name, "float", "USD/GPU-hour", meaning, minimum=0, maximum=1e9)


def _flag(quantity: str, meaning: str) -> Column:
    return Column(
        f"is_{quantity}_circular", "bool", "", f"Whether {meaning}; NULL where there is none"
    )


COSTS = (
    text("kind", "Kind of figure: published, derived, estimated or assumed"),
    # places
    text("site", "Name of the site"),
    Column("latitude", "float", "degrees", "North of the equator", minimum=-90, maximum=90),
    Column("longitude", "float", "degrees", "East of Greenwich", minimum=-180, maximum=180),
    text("true_site", "The actual site, if the row's coordinates are wrong"),
    # prices
    count("quote_number", "Number of the quote in its table"),
    Column("price_date", "date", "", "Day on which the price was found"),
    text("hardware", "Accelerator as the source of its price spells it"),
    text("vendor", "Vendor that rents it out"),
    _price("on_demand_usd_per_gpu_hour", "Price of an hour of one accelerator"),
    _price("one_year_usd_per_gpu_hour", "The same with a commitment of one year"),
    _price("three_year_usd_per_gpu_hour", "The same with a commitment of three years"),
    text("priced_as", "The accelerator whose price and power are used"),
    text("price_url", "Page with the price"),
    text(
        "purchase_includes",
        "Item bought: accelerator, board of 8 or server of 8; purchase_usd is one share of it",
        *("gpu", "board", "server"),
    ),
    Column("purchase_date", "date", "", "Day on which purchase_usd was found"),
    text(
        "region",
        "Where, and for whom, a price holds; NULL where its source does not say",
        is_optional=True,
    ),
    Column(
        "year", "int", "", "Year", minimum=1900, maximum=2100, shown_as=IDENTIFIER, is_optional=True
    ),
    Column("usd_per_kwh", "float", "USD/kWh", "Price of electricity", minimum=0, maximum=1e6),
    # power
    text("grid", "Name of the power grid, with the source of its figure"),
    Column(
        "kg_co2e_per_kwh", "float", "kg/kWh", "Emissions of electricity", minimum=0, maximum=1e6
    ),
    text("facility", "Name of the data centre or its operator, with the source of its figure"),
    Column(
        "pue",
        "float",
        "",
        "Power usage effectiveness: energy of the facility over that of its computers",
        minimum=1,
        maximum=10,
    ),
    # the share of time that counts
    text("run", "Name of the run"),
    efficiency("goodput", "Share of the run's time that made progress, restarts left out"),
    # other parameters of costs
    text("parameter", "Name of the parameter"),
    Column("parameter_value", "float", "", "Value of the parameter, in parameter_unit"),
    text("parameter_unit", "Unit of parameter_value"),
    # published runs
    text(
        "run_kind",
        "A whole run, its pre-training, a stage of known throughput, or a measured part of a run",
        *("run", "pre-training", "throughput stage", "measured segment"),
    ),
    text("organization", "Who trained the model"),
    positive("gpu_hours", "GPU-hours", "Accelerators times the hours of the run", better="lower"),
    Column(
        "watts_per_gpu",
        "float",
        "watts",
        "Mean power of the run for one accelerator",
        above=0,
        maximum=1e6,
        shown_as=GPU_POWER,
    ),
    text(
        "power_kind", "Kind of watts_per_gpu, and the parts that it covers: measured, TDP, assumed"
    ),
    measure("energy_kwh", "kWh", "Electric energy of the run", better="lower"),
    text("energy_kind", "Kind of energy_kwh: measured, or computed and from which figures"),
    Column("is_energy_before_pue", "bool", "", "Whether energy_kwh leaves the site's overhead out"),
    measure("kg_co2e", "kg", "Emissions of the run, in CO2 equivalents", better="lower"),
    measure("cost_usd", "USD", "Cost of the run", shown_as=COST, better="lower"),
    _flag("time", "the run's time was derived from FLOPs or tokens over a rate, not from a clock"),
    _flag("energy", "its energy, or else its emissions, were computed from hours and a power"),
    _flag("cost", "its cost is hours x a price"),
)

_TOTALS = {
    "gpu_hours": ("GPU-hours", GPU_HOURS, "GPU-hours of the run"),
    "cost_usd": ("USD", COST, "Cost of the run"),
    "energy_kwh": ("kWh", ENERGY, "Energy of the run, the site's overhead included,"),
    "kg_co2e": ("kg", EMISSIONS, "Emissions of the run"),
}
_WHICH = {
    "lowest": "that takes fewest GPU-hours",
    "median": "in the middle",
    "highest": "that takes most GPU-hours",
}

COST_VIEWS = (
    text("spelling", "A name of a model, an accelerator, a system or a device"),
    text("model_shape", "Exact sizes of the model: equal shapes are the same model"),
    Column(
        "is_published_system",
        "bool",
        "",
        "Whether the system is the accelerator's as published; NULL where none of that name is",
    ),
    text(
        "system_changes",
        "Attributes of the system that differ from the published ones, with their values",
    ),
    text(
        "assumptions",
        "Other values that differ from the defaults: program, number format, constants",
    ),
    Column("is_lower_bound", "bool", "", "Whether time, and all that follows, is a lower bound"),
    Column(
        "run_id",
        "int",
        "",
        "Id of runs that differ only in the tokens of their data set",
        storage="UBIGINT",
        shown_as=IDENTIFIER,
    ),
    text("run_note", "Why the run cannot be priced; NULL where it can"),
    text(
        "basis",
        "Basis of a price: rent without or with a commitment, owning, or given by the user",
    ),
    measure("lowest_usd_per_gpu_hour", "USD/GPU-hour", "Cheapest of the quotes"),
    measure("highest_usd_per_gpu_hour", "USD/GPU-hour", "Dearest of the quotes"),
    measure("amortised_usd_per_gpu_hour", "USD/GPU-hour", "Part of it: the purchase"),
    measure("electricity_usd_per_gpu_hour", "USD/GPU-hour", "Part of it: electricity"),
    count(
        "num_quotes",
        "Quotes from which the price was chosen: the last one of each vendor",
        heading="vendors",
        is_optional=True,
    ),
    text(
        "quote_vendors",
        "Vendors of these quotes, by name; prices of different vendors cannot be compared",
        is_optional=True,
    ),
    text("price_note", "Why there is no price; NULL where there is one", is_optional=True),
    text(
        "power_basis",
        "Basis of a power: the load of the run's own steps, the server on average or at full load, "
        "the accelerator alone, a measurement, or given by the user",
    ),
    Column("is_default", "bool", "", "Whether commands take the row by default"),
    Column("is_default_power", "bool", "", "Whether the basis of its power is the default one"),
    Column("is_default_grid", "bool", "", "Whether commands take its grid by default"),
    text("power_source", "Where watts_per_gpu comes from"),
    text("power_note", "Why there is no power; NULL where there is one", is_optional=True),
    text("carbon_note", "Why there is no carbon; NULL where there is some"),
    text("prediction_note", "Why there is no predicted value; NULL where there is one"),
    count("num_runs", "Number of runs behind the figures", heading="runs"),
    *(
        measure(f"{which}_{total}", unit, f"{meaning} {of}", shown_as=form)
        for total, (unit, form, meaning) in _TOTALS.items()
        for which, of in _WHICH.items()
    ),
    measure("lowest_electricity_usd", "USD", "Price of lowest_energy_kwh"),
    measure("elapsed_seconds", "seconds", "Time of the run, waiting for exchanges included"),
    measure("latency_fraction", "", "Share of the run that waits for light", shown_as=SHARE),
    measure("hbm_fraction", "", "Memory needed over that of the GPU", shown_as=SHARE),
    text("quantity", "Which figure of a run is compared"),
    Column("published_value", "float", "", "The published figure, in its base unit"),
    Column("predicted_value", "float", "", "The predicted figure, in the same unit"),
    text("prediction", "How the predicted value is made"),
    Column(
        "is_circular",
        "bool",
        "",
        "Whether the published figure was computed in this way: agreement then proves nothing",
    ),
)
