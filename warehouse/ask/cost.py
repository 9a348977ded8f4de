"""Cost and energy of stored runs, from the prices and powers of the reference tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from warehouse.ask.names import condition, find_name, spellings
from warehouse.ask.plausible import check_terms
from warehouse.ask.problems import study_filter
from warehouse.ask.terms import carbons, share_and_pue
from warehouse.database.connection import rows_as_dicts
from warehouse.database.ranking import ranked_anew
from warehouse.database.sql_text import keep_view, listed
from warehouse.database.summaries import summary_of
from warehouse.errors import InputError, UsageError
from warehouse.options import RUN_NAMES
from warehouse.studies.variants import stored_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.options import CostOptions
    from warehouse.show.values import Row

    Line = Mapping[str, Any]

WITHOUT_TOKENS = "the tokens of the run are not known"
"""The `run_note` of a run that could be priced if `--tokens` were given."""

RUNS = "estimated_run"
"""The view of runs, which the macros of runs, costs and energy read."""

RUN_COLUMNS = (
    *("estimator", "variant", "model", "model_shape", "seq_len", "accelerator", "system_changes"),
    *("assumptions", "dataset_tokens", "is_lower_bound", "num_runs"),
    *("num_gpus", "training_seconds", "best_layout", "lowest_gpu_hours", "highest_gpu_hours"),
)
_ORDER = (
    *("estimator", "variant", "model", "model_shape", "seq_len", "dataset_tokens", "accelerator"),
    *("system_changes", "assumptions"),
)
"""Columns that the lines of a table are sorted by, before those of prices or powers."""

PRICE_COLUMNS = (
    *("basis", "year", "num_quotes", "amortised_usd_per_gpu_hour"),
    *("electricity_usd_per_gpu_hour", "usd_per_gpu_hour"),
    *("lowest_cost_usd", "median_cost_usd", "highest_cost_usd", "price_source", "quote_vendors"),
)
COST_COLUMNS = (*RUN_COLUMNS, *PRICE_COLUMNS, "priced_as", "price_note")
ENERGY_COLUMNS = (
    *(*RUN_COLUMNS, "power_basis", "watts_per_gpu", "pue", "power_watts", "lowest_energy_kwh"),
    *("median_energy_kwh", "highest_energy_kwh", "year", "usd_per_kwh"),
    *("lowest_electricity_usd", "grid", "kg_co2e_per_kwh", "lowest_kg_co2e", "priced_as"),
    *("power_source", "power_note"),
)


@dataclass(frozen=True)
class RunTable:
    """Rows of a table macro, and the number of runs left out for each reason.

    `grids` has name, kind and year of the carbon of each grid in the rows; `purchases` has for each
    owned accelerator the part that its price was paid for: a server, a board or a GPU.
    """

    columns: tuple[str, ...]
    rows: Sequence[Row]
    left_out: Mapping[str, int]
    grids: Sequence[tuple[str, str, int | None]] = ()
    purchases: Mapping[str, str] = field(default_factory=dict)


def check_years(prices: Sequence[float], year: int | None, *, all_years: bool) -> None:
    """Refuse a year together with a price or with all years; reads no database."""
    if year is not None and (all_years or prices):
        other = "--all-years" if all_years else "--price"
        raise UsageError(f"`--year` and `{other}` exclude each other", "give one of them")


def costs(
    connection: DuckDBPyConnection,
    options: CostOptions,
    prices: Sequence[float] = (),
    year: int | None = None,
    *,
    all_years: bool = False,
) -> RunTable:
    """Return the cost of runs at the prices of a year, by default the last year with prices.

    Runs without a price in that year keep a line; its note lists the years with prices. Given
    `prices` [USD/GPU-hour] replace the published ones: each has its own rows.
    """
    check_years(prices, year, all_years=all_years)
    terms = [{"given_price": price} for price in dict.fromkeys(prices) or (None,)]
    tables, left_out = _run_rows(connection, options, "training_cost_for", COST_COLUMNS, terms)
    rows = [row for table in tables for row in table]
    if year is not None:
        rows = _of_year(rows, year)
    elif not all_years:
        rows = _latest(rows)
    query = (
        "select accelerator, purchase_includes from accelerator where purchase_includes is not null"
    )
    owned = {row["priced_as"] for row in rows if row["basis"] == "owned"}
    purchases = {name: part for name, part in connection.execute(query).fetchall() if name in owned}
    rows = _sorted(rows, (*_ORDER, "year", "usd_per_gpu_hour"))
    return RunTable(COST_COLUMNS, _tuples(rows), left_out, purchases=purchases)


def energies(
    connection: DuckDBPyConnection,
    options: CostOptions,
    carbon: Sequence[str] = (),
    *,
    all_powers: bool = False,
) -> RunTable:
    """Return the energy and carbon of runs, by default on the grids of published runs.

    Each `carbon` [kg CO2e/kWh], or name in table ``grid_carbon``, has its own rows. All powers are
    also those at full load, and of the accelerator alone.
    """
    given = carbons(connection, carbon)
    terms = [{"given_kg_co2e_per_kwh": grid.value} for grid in given]
    tables, left_out = _run_rows(
        *(connection, options, "training_energy_for", ENERGY_COLUMNS),
        terms or [{"given_kg_co2e_per_kwh": None}],
        "where is_default_grid" if all_powers else "where is_default",
    )
    rows = [
        row if name is None else {**row, "grid": name}
        for name, table in zip([grid.name for grid in given] or [None], tables, strict=True)
        for row in table
    ]
    rows = _sorted(rows, (*_ORDER, "watts_per_gpu", "kg_co2e_per_kwh", "grid"))
    query = "select grid, kind, year from grid_carbon"
    known = {row[0]: row for row in connection.execute(query).fetchall()}
    names = dict.fromkeys(row["grid"] for row in rows)
    grids = [known[name] for name in names if name in known]
    return RunTable(ENERGY_COLUMNS, _tuples(rows), left_out, grids)


def _sorted(rows: Iterable[Line], names: Sequence[str]) -> list[Line]:
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in names])


def _tuples(rows: Iterable[Line]) -> list[Row]:
    return [tuple(row.values()) for row in rows]


def _latest(rows: Sequence[Line]) -> list[Line]:
    last: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = (row["accelerator"], row["basis"])
        last[key] = max(last.get(key, 0), row["year"] or 0)
    return [row for row in rows if (row["year"] or 0) == last[row["accelerator"], row["basis"]]]


def _of_year(rows: Sequence[Line], year: int) -> list[Line]:
    """Return the rows of a year; a run without a price in that year gets a row without a price."""
    years = {row["year"] for row in rows} - {None}
    if year not in years:
        raise InputError(
            f"`--year` {year} has no price of an hour for these runs",
            f"known: {', '.join(map(str, sorted(years))) or 'none at all'}; or give --price",
        )
    runs: dict[tuple[Any, ...], list[Line]] = {}
    for row in rows:
        runs.setdefault(tuple(row[name] for name in RUN_COLUMNS), []).append(row)
    of_year: list[Line] = []
    for lines in runs.values():
        of_year += [row for row in lines if row["year"] in (year, None)]
        known = {row["year"] for row in lines} - {None}
        if known and year not in known:
            note = f"no price of {year}; known: {', '.join(map(str, sorted(known)))}"
            of_year.append({**lines[0], **dict.fromkeys(PRICE_COLUMNS), "price_note": note})
    return of_year


def _run_rows(
    connection: DuckDBPyConnection,
    options: CostOptions,
    macro: str,
    columns: Sequence[str],
    terms: Sequence[Mapping[str, float | None]],
    where: str = "",
) -> tuple[list[list[Line]], dict[str, int]]:
    prices = [price for term in terms if (price := term.get("given_price")) is not None]
    electricity = [] if options.electricity_price is None else [options.electricity_price]
    check_terms(connection, prices, electricity, options.watts)
    goodput, pue = share_and_pue(connection, options.goodput, options.pue)
    problems = _problems(connection, options)
    with ranked_anew(connection, options.fit_probability):
        keep_view(connection, RUNS, f"problem_id in ({listed(problems)})" if problems else "")
    filters = _stored_filters(connection, options)
    arguments = {
        "assumed_goodput": goodput,
        "only_id": options.identity,
        "only_num_gpus": options.num_gpus,
        "each_num_gpus": False,
        "given_pue": pue,
        "given_usd_per_kwh": options.electricity_price,
        "given_watts": options.watts,
    }
    tables = []
    for term in terms:
        given = {**arguments, **term}
        named = ", ".join(f"{name} := ?" for name in given)
        query = f"select {', '.join(columns)} from {macro}(?, {named}) {where}"
        rows = rows_as_dicts(connection, query, [options.tokens, *given.values()])
        tables.append([row for row in rows if _passes(row, options, filters)])
    left_out = _left_out(connection, options, goodput, filters)
    if not any(tables):
        raise _no_run(options, left_out)
    return tables, left_out


def _problems(connection: DuckDBPyConnection, options: CostOptions) -> list[int]:
    """Return the problems of a study and a sequence length; empty: no filter, all problems."""
    of_length = _problems_of_length(connection, options.seq_len)
    if options.study is None:
        return of_length
    study = study_filter(connection, options.study)
    problems = study.problems if options.seq_len is None else study.problems & {*of_length}
    if not problems:
        raise InputError(f'`--study` "{study.name}": it has no such run', "leave a filter out")
    return sorted(problems)


def _problems_of_length(connection: DuckDBPyConnection, seq_len: int | None) -> list[int]:
    if seq_len is None:
        return []
    query = "select problem_id, seq_len from problem where seq_len is not null"
    stored = connection.execute(query).fetchall()
    if problems := [problem for problem, length in stored if length == seq_len]:
        return problems
    known = ", ".join(f"{length}" for length in sorted({length for _, length in stored}))
    raise InputError(
        f"`--seq-len` {seq_len}: no such run is stored", f"stored: {known or 'no length'}"
    )


def _no_run(options: CostOptions, left_out: Mapping[str, int]) -> InputError:
    if number := left_out.get(WITHOUT_TOKENS):
        return InputError(
            f"the tokens of {number:,} runs are not known: their estimator takes none",
            "give the tokens of the run, such as --tokens 20e12",
        )
    if left_out:
        reasons = "; ".join(f"{reason} ({number:,})" for reason, number in left_out.items())
        return InputError(f"no run with a time passes the filters: {reasons}", "change a filter")
    hint = ", or give --variant all" if options.is_default_variant else ""
    return InputError("no run passes all filters together", f"leave one out{hint}")


@cache  # asked for every run
def _default_variant(estimator: str) -> str:
    return "corrected" if summary_of(estimator).mends else "published"


def _passes(row: Line, options: CostOptions, filters: Mapping[str, str]) -> bool:
    if options.is_default_variant and row["variant"] != _default_variant(row["estimator"]):
        return False
    return all(row[name] == value for name, value in filters.items())


def _stored_filters(connection: DuckDBPyConnection, options: CostOptions) -> dict[str, str]:
    """Return the filters as rows have them: the priced name of an accelerator, mends in order."""
    if options.identity is not None:
        query = "select count(*) from estimated_run where ? in (cell_id, problem_id)"
        if connection.execute(query, [options.identity]).fetchall() == [(0,)]:
            raise InputError(
                f"`--id` {options.identity} is neither a cell nor a problem with a run",
                "`warehouse rank --format json` shows ids",
            )
    filters: dict[str, str] = {}
    for name, value in options.filters.items():
        column, meant = _stored_name(connection, name, value)
        filters[column] = meant
    if "accelerator" in filters and not _has_run(connection, filters):
        # the publication's system has runs, but with these filters only its product has some
        others = {name: value for name, value in filters.items() if name != "accelerator"}
        product = _priced_as(connection, filters["accelerator"])
        if product is not None and _has_run(connection, {**others, "priced_as": product}):
            return {**others, "priced_as": product}
    return filters


def _stored_name(connection: DuckDBPyConnection, name: str, value: str) -> tuple[str, str]:
    """Return the column that a filter is about and the stored name that its value means."""
    known = _stored(connection, name)
    if meant := find_name(value, known, {}):
        return name, meant
    if name == "variant" and (variant := stored_variant(value, known)):
        return name, variant
    if name == "accelerator":
        priced = _priced_as(connection, value)
        if priced in _stored(connection, "priced_as"):
            return "priced_as", str(priced)
    if meant := find_name(value, known, spellings(name)):
        return name, meant
    near = get_close_matches(value, known, 3, 0.5) or known[:20]
    stored = "; ".join(near) or "nothing; `warehouse sweep cluster_budget` stores some"
    raise InputError(f'`--{name}` "{value}": no such run is stored', f"stored: {stored}")


def _has_run(connection: DuckDBPyConnection, filters: Mapping[str, str]) -> bool:
    query = f"select 1 from estimated_run where {condition(filters)} limit 1"
    return connection.execute(query, list(filters.values())).fetchall() != []


def _priced_as(connection: DuckDBPyConnection, name: str) -> str | None:
    query = "select spelling, accelerator from accelerator_spelling"
    priced = dict(connection.execute(query).fetchall())
    return find_name(name, set(priced.values()), priced)


def _stored(connection: DuckDBPyConnection, name: str) -> list[Any]:
    query = f"select distinct {name} from estimated_run where {name} is not null order by all"
    return [row[0] for row in connection.execute(query).fetchall()]


def _left_out(
    connection: DuckDBPyConnection,
    options: CostOptions,
    goodput: float | None,
    filters: Mapping[str, str],
) -> dict[str, int]:
    """Return the number of runs without a time, by reason."""
    query = (
        f"select {', '.join(RUN_NAMES)}, priced_as, run_note, count(*) as num_runs "
        "from training_run_for(?, assumed_goodput := ?) where run_note is not null "
        "and (?::bigint is null or ? in (cell_id, problem_id)) "
        # a run without a number of GPUs may be on any
        "and (?::bigint is null or ? = num_gpus or num_gpus is null) group by all order by all"
    )
    wanted = (options.identity, options.identity, options.num_gpus, options.num_gpus)
    left_out: Counter[str] = Counter()
    for row in rows_as_dicts(connection, query, [options.tokens, goodput, *wanted]):
        if _passes(row, options, filters):
            left_out[row["run_note"]] += row["num_runs"]
    return dict(left_out)
