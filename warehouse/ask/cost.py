"""Cost and energy of stored runs, from the prices and powers of the reference tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from warehouse.ask.names import find_name, spellings
from warehouse.ask.problems import study_filter
from warehouse.database.sql_text import listed
from warehouse.database.summaries import summary_of
from warehouse.database.temporary import keep_view
from warehouse.errors import InputError
from warehouse.studies.variants import stored_variant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.show.values import Row

FILTERS = ("estimator", "variant", "model", "accelerator")
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
class RunQuery:
    """The runs to price, their tokens, and the terms that replace those of the tables.

    Attributes
    ----------
    filters
        Column -> value that a run must have; an accelerator by any of its names.
    is_default_variant
        Whether to keep the default variant of each estimator: corrected if it has mends.
    identity
        Id of a cell or of a problem: keep its runs alone.
    num_gpus
        Keep runs on this number of GPUs.
    tokens
        Tokens of every run; None: each run's own.
    goodput
        Share of the time that makes progress; None: 1, or that of a budgeted run.
    overrides
        Arguments of the macro, such as `given_price` and `given_pue`: each set gives its own rows.
    seq_len
        Keep runs of sequences of this number of tokens.
    study
        Keep runs of the problems of this stored study.
    """

    filters: Mapping[str, str]
    is_default_variant: bool
    identity: int | None
    num_gpus: int | None
    tokens: float | None
    goodput: float | None
    overrides: Sequence[Mapping[str, float | None]]
    seq_len: int | None = None
    study: str | None = None


@dataclass(frozen=True)
class RunTable:
    """Rows of a table macro, and the number of runs left out for each reason.

    Attributes
    ----------
    grids
        Name, kind and year of the carbon of each grid that the rows have.
    purchases
        Owned accelerator -> the part that its price was paid for: a server, a board or a GPU.
    """

    columns: tuple[str, ...]
    rows: Sequence[Row]
    left_out: Mapping[str, int]
    grids: Sequence[tuple[str, str, int | None]] = ()
    purchases: Mapping[str, str] = field(default_factory=dict)


def costs(
    connection: DuckDBPyConnection, runs: RunQuery, year: int | None, all_years: bool
) -> RunTable:
    """Return the cost of runs at the prices of a year, by default the last year with prices.

    Runs without a price in that year keep a line; its note lists the years with prices.
    """
    found = _run_table(connection, "training_cost_for", COST_COLUMNS, runs)
    place = {name: number for number, name in enumerate(COST_COLUMNS)}
    rows = found.rows
    if year is not None:
        rows = _of_year(rows, place, year)
    elif not all_years:
        rows = _latest(rows, place)
    keys = [place[name] for name in (*_ORDER, "year", "usd_per_gpu_hour")]
    rows = sorted(rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys])
    owned = {row[place["priced_as"]] for row in rows if row[place["basis"]] == "owned"}
    known: dict[str, str] = dict(
        connection.execute(
            "select accelerator, purchase_includes from accelerator "
            "where purchase_includes is not null"
        ).fetchall()
    )
    bought = {name: part for name, part in known.items() if name in owned}
    return RunTable(found.columns, rows, found.left_out, purchases=bought)


def energies(
    connection: DuckDBPyConnection, runs: RunQuery, grids: Sequence[str | None], all_powers: bool
) -> RunTable:
    """Return the energy and carbon of runs, at the default basis of power or at every basis.

    Parameters
    ----------
    grids
        Name of the grid of each set of overrides; None where the macro names it.
    """
    where = " where is_default_grid" if all_powers else " where is_default"
    found = _run_table(connection, "training_energy_for", ENERGY_COLUMNS, runs, where, grids)
    place = {name: number for number, name in enumerate(ENERGY_COLUMNS)}
    power = ("watts_per_gpu", "kg_co2e_per_kwh", "grid")
    keys = [place[name] for name in (*_ORDER, *power)]
    rows: list[Row] = sorted(
        found.rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys]
    )
    names = dict.fromkeys(row[place["grid"]] for row in rows)
    known = {
        grid: (grid, kind, year)
        for grid, kind, year in connection.execute(
            "select grid, kind, year from grid_carbon"
        ).fetchall()
    }
    shown = [known[name] for name in names if name in known]
    return RunTable(found.columns, rows, found.left_out, shown)


def _latest(rows: Sequence[Row], place: Mapping[str, int]) -> list[Row]:
    """Return the rows of the last year of each accelerator and basis."""
    last: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = (row[place["accelerator"]], row[place["basis"]])
        last[key] = max(last.get(key, 0), row[place["year"]] or 0)
    return [
        row
        for row in rows
        if (row[place["year"]] or 0) == last[row[place["accelerator"]], row[place["basis"]]]
    ]


def _of_year(rows: Sequence[Row], place: Mapping[str, int], year: int) -> list[Row]:
    """Return the rows of a year; a line without a price in that year gets a row without a price."""
    years = {row[place["year"]] for row in rows} - {None}
    if year not in years:
        listed = ", ".join(map(str, sorted(years))) or "none at all"
        raise InputError(
            f"`--year` {year} has no price of an hour for these runs",
            f"known: {listed}; or give --price",
        )
    lines: dict[Row, list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[place[name]] for name in RUN_COLUMNS), []).append(row)
    kept: list[Row] = []
    for line in lines.values():
        kept += [row for row in line if row[place["year"]] in (year, None)]
        known = {row[place["year"]] for row in line} - {None}
        if known and year not in known:
            listed = ", ".join(map(str, sorted(known)))
            note = f"no price of {year}; known: {listed}"
            unpriced = {**dict.fromkeys(PRICE_COLUMNS), "price_note": note}
            kept.append(tuple(unpriced.get(name, line[0][at]) for name, at in place.items()))
    return kept


def _run_table(
    connection: DuckDBPyConnection,
    macro: str,
    columns: Sequence[str],
    runs: RunQuery,
    where: str = "",
    grids: Sequence[str | None] = (),
) -> RunTable:
    """Return the rows of a macro that the filters leave, for each set of overrides.

    Parameters
    ----------
    grids
        Name of the grid in the rows of each set of overrides, instead of the macro's.
    """
    problems = _asked_problems(connection, runs)
    keep_view(connection, RUNS, f"problem_id in ({listed(problems)})" if problems else "")
    filters = _known_filters(connection, runs)
    kept = {"only_id": runs.identity, "only_num_gpus": runs.num_gpus, "each_num_gpus": False}
    rows: list[Row] = []
    for overrides, grid in zip_longest(runs.overrides, grids):
        arguments: dict[str, Any] = {"assumed_goodput": runs.goodput, **kept, **overrides}
        named = ", ".join(f"{name} := ?" for name in arguments)
        asked = [f"? as {name}" if name == "grid" and grid else name for name in columns]
        query = f"select {', '.join(asked)} from {macro}(?, {named}){where}"
        given = [*([grid] if grid else []), runs.tokens, *arguments.values()]
        found = connection.execute(query, given).fetchall()
        rows += [r for r in found if _kept(dict(zip(columns, r, strict=True)), runs, filters)]
    left_out = _left_out(connection, runs, filters)
    if not rows:
        _refuse_nothing(runs, left_out)
    return RunTable(tuple(columns), rows, left_out)


def _asked_problems(connection: DuckDBPyConnection, runs: RunQuery) -> list[int]:
    """Return the problems of a study and a sequence length; empty: no filter, all problems."""
    found = _problems_of_length(connection, runs.seq_len)
    if runs.study is None:
        return found
    study = study_filter(connection, runs.study)
    kept = study.problems if runs.seq_len is None else study.problems.intersection(found)
    if not kept:
        raise InputError(f'`--study` "{study.name}": it has no such run', "leave a filter out")
    return sorted(kept)


def _problems_of_length(connection: DuckDBPyConnection, seq_len: int | None) -> list[int]:
    """Return the problems whose sequences have this number of tokens; empty: no filter."""
    if seq_len is None:
        return []
    query = "select problem_id, seq_len from problem where seq_len is not null"
    stored = connection.execute(query).fetchall()
    if found := [problem for problem, length in stored if length == seq_len]:
        return found
    known = ", ".join(f"{length}" for length in sorted({length for _, length in stored}))
    raise InputError(
        f"`--seq-len` {seq_len}: no such run is stored", f"stored: {known or 'no length'}"
    )


def _refuse_nothing(runs: RunQuery, left_out: Mapping[str, int]) -> None:
    if number := left_out.get(WITHOUT_TOKENS):
        raise InputError(
            f"the tokens of {number:,} runs are not known: their estimator takes none",
            "give the tokens of the run, such as --tokens 20e12",
        )
    if left_out:
        reasons = "; ".join(f"{reason} ({number:,})" for reason, number in left_out.items())
        raise InputError(f"no run with a time passes the filters: {reasons}", "change a filter")
    hint = ", or give --variant all" if runs.is_default_variant else ""
    raise InputError("no run passes all filters together", f"leave one out{hint}")


@cache  # asked for every run
def default_variant(estimator: str) -> str:
    """Return the default variant of an estimator: corrected if it has mends."""
    return "corrected" if summary_of(estimator).mends else "published"


def _kept(row: Mapping[str, Any], runs: RunQuery, filters: Mapping[str, str]) -> bool:
    if runs.is_default_variant and row["variant"] != default_variant(row["estimator"]):
        return False
    return all(row[name] == value for name, value in filters.items())


def _known_filters(connection: DuckDBPyConnection, runs: RunQuery) -> dict[str, str]:
    """Return the filters as rows have them: the priced name of an accelerator, mends in order."""
    if runs.identity is not None:
        query = "select count(*) from estimated_run where ? in (cell_id, problem_id)"
        if connection.execute(query, [runs.identity]).fetchall() == [(0,)]:
            raise InputError(
                f"`--id` {runs.identity} is neither a cell nor a problem with a run",
                "`warehouse rank --format json` shows ids",
            )
    filters: dict[str, str] = {}
    for name, value in runs.filters.items():
        known = _stored(connection, name)
        if meant := find_name(value, known, {}):
            filters[name] = meant
            continue
        if name == "variant" and (variant := stored_variant(value, known)):
            filters[name] = variant
            continue
        if name == "accelerator":
            priced = _priced_as(connection, value)
            if priced in _stored(connection, "priced_as"):
                filters["priced_as"] = str(priced)
                continue
        if meant := find_name(value, known, spellings(connection, name)):
            filters[name] = meant
            continue
        near = get_close_matches(value, known, 3, 0.5) or known[:20]
        listed = "; ".join(near) or "nothing; `warehouse sweep cluster_budget` stores some"
        raise InputError(f'`--{name}` "{value}": no such run is stored', f"stored: {listed}")
    if "accelerator" in filters and not _has_run(connection, filters):
        # the publication's system has runs, but with these filters only its product has some
        others = {name: value for name, value in filters.items() if name != "accelerator"}
        product = _priced_as(connection, filters["accelerator"])
        if product is not None and _has_run(connection, {**others, "priced_as": product}):
            return {**others, "priced_as": product}
    return filters


def _has_run(connection: DuckDBPyConnection, filters: Mapping[str, str]) -> bool:
    """Return whether a stored run passes all filters."""
    where = " and ".join(f"{name} = ?" for name in filters)
    query = f"select 1 from estimated_run where {where} limit 1"
    return connection.execute(query, list(filters.values())).fetchall() != []


def _priced_as(connection: DuckDBPyConnection, name: str) -> str | None:
    """Return the accelerator whose prices hold for an accelerator, a system or a device."""
    query = "select spelling, accelerator from accelerator_spelling"
    priced = dict(connection.execute(query).fetchall())
    return find_name(name, set(priced.values()), priced)


def _stored(connection: DuckDBPyConnection, name: str) -> list[Any]:
    """Return the values of a column of estimated_run, in order."""
    query = f"select distinct {name} from estimated_run where {name} is not null order by all"
    return [row[0] for row in connection.execute(query).fetchall()]


def _left_out(
    connection: DuckDBPyConnection, runs: RunQuery, filters: Mapping[str, str]
) -> dict[str, int]:
    """Return the number of runs without a time, by reason."""
    columns = (*FILTERS, "priced_as")
    query = (
        f"select {', '.join(columns)}, run_note, count(*) "
        "from training_run_for(?, assumed_goodput := ?) where run_note is not null "
        "and (?::bigint is null or ? in (cell_id, problem_id)) "
        # a run without a number of GPUs may be on any
        "and (?::bigint is null or ? = num_gpus or num_gpus is null) group by all order by all"
    )
    wanted = (runs.identity, runs.identity, runs.num_gpus, runs.num_gpus)
    given = [runs.tokens, runs.goodput, *wanted]
    found: dict[str, int] = {}
    for *values, note, number in connection.execute(query, given).fetchall():
        if _kept(dict(zip(columns, values, strict=True)), runs, filters):
            found[note] = found.get(note, 0) + number
    return found
