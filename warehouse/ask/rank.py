"""The best layouts of the problems that pass some filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.columns import COLUMNS, LAYOUT_COLUMNS
from estimators.columns.schedule import SCHEDULE
from estimators.contract import variant_name
from estimators.names import did_you_mean, joined_hint
from warehouse.ask.names import Filters, find_name, is_known_name, with_known_names
from warehouse.ask.study_filter import StudyFilter, study_filter
from warehouse.database.connection import rows_as_dicts
from warehouse.database.in_force import CURRENT_CELL, EVALUATED, current_cell_sql
from warehouse.database.sql_text import IN_MAIN, listed, quoted
from warehouse.database.summaries import Summary, by_precedence, summaries, summary_of
from warehouse.database.tables import TOP
from warehouse.database.temporary import replaced
from warehouse.errors import InputError, UsageError, WarehouseError
from warehouse.studies.variants import mends_of_options

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.show.values import Row

PROBLEM_NAMES = (
    *("model", "accelerator", "nvlink_size", "num_gpus", "num_clusters"),
    "global_batch_size",
)
"""Columns that name a problem; a ranking adds others if two problems differ only in them."""

QUESTION = ("seq_len", "framework", "profile", "precision", "number_recipe", "recompute_modules")
"""Other columns of a problem that people choose; tables omit those with one value in all rows."""

USUAL = {"profile": "default", "number_recipe": "none", "recompute_modules": "none"}
"""Usual values of `QUESTION`, which lines do not mention."""

LAYOUT = LAYOUT_COLUMNS
SAID_ONCE = (
    *("strategy", "attention", "uses_sequence_parallel", "zero_stage"),
    *(column.name for column in SCHEDULE),
)
"""Columns of a layout that a line above the table states if all rows agree."""

RESULT = (
    *("step_seconds", "training_seconds", "tokens_per_second", "mfu", "utilization"),
    *(
        "memory_bytes",
        "fit_probability",
        "network_bytes_per_flop",
        "cluster_network_bytes_per_second",
    ),
)
TIME = "step_seconds"
"""The default column of a ranking; views have its ranks."""

RANKED = {"rank_by_time": "configuration_rank", "rank_in_strategy": "strategy_rank"}
"""Rank by time -> the view that has it."""

_MOST_RANKS = 1_000_000
"""Ranks that macro `ranked_layouts` admits."""

DEFAULT_TOP = 10
"""Layouts shown of a single problem; of several problems, the best of each."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Ranking:
    """The best layouts of each problem.

    Attributes
    ----------
    columns, rows
        The layouts, best first within a problem, with the columns in which their problems differ.
    constants
        Columns of problem and layout with the same value in all rows, to be stated once.
    num_single
        Problems with single layouts, from an evaluated or measured file, and without a search.
        Their layouts have no rank; they are shown only if no other problem is.
    num_in_part
        Shown problems whose layouts have some fixed values: no whole space was searched.
    num_problems
        Problems that pass the filters.
    num_without
        Problems of which no layout fits in memory.
    num_without_figure
        Problems whose configurations all lack the column of the ranking.
    num_without_time
        Problems outside `configuration`, which has only estimates of a step.
    """

    columns: tuple[str, ...]
    rows: list[Row]
    constants: dict[str, Any]
    num_single: int
    num_in_part: int
    num_problems: int
    num_without: int
    num_without_figure: int
    num_without_time: int


@dataclass(frozen=True)
class SingleLayouts:
    """Cells of single layouts: no search found these.

    Attributes
    ----------
    cells
        Cells that have only single layouts.
    num_with_searched
        The largest number of such cells in a problem that also has searched ones.
    in_part
        Problems of which no cell has the whole space.
    """

    cells: frozenset[int]
    num_with_searched: int
    in_part: set[int]


class _Asked(NamedTuple):
    """The problems of a ranking, and the filters that chose them.

    Attributes
    ----------
    filters
        The filters as they were given, with the estimator that answers and its variant.
    known
        The same with each name as it is stored.
    problems
        The problems that pass.
    """

    filters: Filters
    known: Filters
    problems: set[int]


def _answering(
    connection: DuckDBPyConnection,
    asked: Filters,
    estimator: str | None,
    variant: str | None,
    study: StudyFilter | None,
) -> _Asked:
    """Return the filters with the estimator that answers: the first that has a problem of them."""
    of_estimator = {} if estimator is None else {"estimator": summary_of(estimator).name}
    known = with_known_names(connection, {**of_estimator, **asked})
    known = {name: known[name] for name in asked}
    estimators = by_precedence() if estimator is None else [summary_of(estimator)]
    stored = _stored(connection, ("estimator", "variant", *known))
    if study is not None:
        stored = [row for row in stored if row["problem_id"] in study.problems]
    errors: list[WarehouseError] = []
    for each in estimators:
        try:
            named = _named(each, variant)
            problems = _passing(stored, {**named, **known}, study)
        except (InputError, UsageError) as error:
            errors.append(error)
        else:
            return _Asked({**named, **asked}, {**named, **known}, problems)
    if estimator is None:
        _passing(stored, known, study)
    raise min(errors, key=lambda error: isinstance(error, UsageError))


def _named(estimator: Summary, variant: str | None) -> dict[str, str]:
    """Return the filters of an estimator and of its variant.

    Raises
    ------
    UsageError
        If it has no such variant.
    """
    mends = mends_of_options(estimator, variant, None)
    return {"estimator": estimator.name, "variant": variant_name(mends, estimator.mends)}


def asked_ranking(
    connection: DuckDBPyConnection,
    asked: Filters,
    *,
    estimator: str | None = None,
    variant: str | None = None,
    top: int | None = None,
    by: str = TIME,
    study: str | None = None,
) -> tuple[Filters, Ranking]:
    """Return the filters with the estimator that answers, and the best layouts of each problem.

    Parameters
    ----------
    asked
        Filters on problem and strategy.
    estimator
        Its name; None: the first by precedence that has a problem of what is asked.
    top
        Layouts of each problem; by default ten of one problem, or the best one of several.
    by
        A numeric column of `configuration`, the best value first.
    study
        Name of a stored study: keep its problems alone. Its estimator answers, and its variant
        where it has one alone.

    Raises
    ------
    InputError
        If no problem passes a filter, or none has the column; the hint lists what is stored.
    UsageError
        If no estimator has the variant.
    """
    of_study = None if study is None else study_filter(connection, study)
    if of_study is not None:
        estimator = estimator or of_study.estimator
        variant = variant or of_study.variant
    found = _answering(connection, asked, estimator, variant, of_study)
    return found.filters, _ranking(connection, found.known, found.problems, top, by)


def _ranking(
    connection: DuckDBPyConnection, filters: Filters, stored: set[int], top: int | None, by: str
) -> Ranking:
    """Return the best `top` layouts of the problems `stored`, which pass the filters."""
    top = top or (DEFAULT_TOP if len(stored) == 1 else 1)
    rank = "rank_in_strategy" if "strategy" in filters else "rank_by_time"
    single = _single_layouts(connection, stored)
    depth = top + single.num_with_searched
    if by == TIME:
        # ranks beyond those that are stored are found among the cells of these problems alone
        cells = f"{current_cell_sql()} and problem_id in ({listed(stored)})"
        with replaced(connection, {CURRENT_CELL: cells} if depth > TOP else {}):
            ranked = _ranked(connection, filters, rank, depth)
    else:
        by = _known_column(connection, by)
        rank, ranked = "rank", _ranked_by(connection, filters, by, depth)
    ranked = {problem: layouts for problem, layouts in ranked.items() if problem in stored}
    if single.cells:
        ranked = {
            problem: _of_searches(layouts, rank, top, single.cells)
            for problem, layouts in ranked.items()
        }
    left_out = _left_out(connection, filters, by, stored - ranked.keys())
    unsearched = {problem for problem, layouts in ranked.items() if layouts[0][rank] is None}
    if len(unsearched) < len(ranked):
        ranked = {problem: some for problem, some in ranked.items() if problem not in unsearched}
    if not ranked and left_out["fits"] == 0:
        raise _nothing_to_rank(connection, filters, by, left_out)
    result = dict.fromkeys((by, *RESULT)) if by not in LAYOUT else dict.fromkeys(RESULT)
    query = "from problem where list_contains(?, problem_id)"
    shown = _sorted(rows_as_dicts(connection, query, [sorted(ranked)]))
    names = tuple(dict.fromkeys((*PROBLEM_NAMES, *QUESTION, *_differing(shown))))
    columns = (*names, rank, *LAYOUT, *(name for name in result if name not in names))
    rows = [{**problem, **layout} for problem in shown for layout in ranked[problem["problem_id"]]]
    return Ranking(
        columns=columns,
        rows=[[row[name] for name in columns] for row in rows],
        constants={
            name: rows[0][name]
            for name in (*names, *SAID_ONCE)
            if rows and len({row[name] for row in rows}) == 1
        },
        num_single=len(unsearched),
        num_in_part=len(single.in_part & ranked.keys() - unsearched),
        num_problems=len(stored),
        num_without=left_out["fits"],
        num_without_figure=left_out["figure"],
        num_without_time=left_out["time"],
    )


def _ranked(
    connection: DuckDBPyConnection, filters: Filters, rank: str, top: int
) -> dict[int, list[Record]]:
    """Return the layouts of each problem up to rank `top`, best first."""
    columns = ", ".join(("problem_id", "cell_id", rank, *LAYOUT, *RESULT))
    where = " and ".join(f"{quoted(name)} = ?" for name in filters)
    view = f"(from {RANKED[rank]} where {rank} <= {top})"
    if rank == "rank_by_time" and top <= _MOST_RANKS:
        view = f"ranked_layouts({top})"
    ranked: dict[int, list[Record]] = {}
    for layout in rows_as_dicts(
        connection,
        f"select {columns} from {view} where {where} order by {rank}",
        [*filters.values()],
    ):
        ranked.setdefault(layout["problem_id"], []).append(layout)
    return ranked


def _ranked_by(
    connection: DuckDBPyConnection, filters: Filters, by: str, top: int
) -> dict[int, list[Record]]:
    """Return the layouts of each problem up to rank `top` by a column, best first."""
    columns = ", ".join(
        quoted(n) for n in dict.fromkeys(("problem_id", "cell_id", by, *LAYOUT, *RESULT))
    )
    where = " and ".join(f"{quoted(name)} = ?" for name in filters)
    order = "desc" if by in COLUMNS and COLUMNS[by].better == "higher" else "asc"
    ranked: dict[int, list[Record]] = {}
    for layout in rows_as_dicts(
        connection,
        f"select {columns}, row_number() over (partition by problem_id order by {quoted(by)} "
        f"{order}, layout_order(configuration), strategy, cell_id) as rank from configuration "
        f"where {where} and fits_memory is distinct from false and {quoted(by)} is not null "
        "qualify rank <= ? order by rank",
        [*filters.values(), top],
    ):
        ranked.setdefault(layout["problem_id"], []).append(layout)
    return ranked


def _single_layouts(connection: DuckDBPyConnection, problems: set[int]) -> SingleLayouts:
    """Return the cells of single layouts, and the problems of which only a part was searched.

    A single layout comes from a file of configurations, or from a study that fixes every column of
    it.
    """
    cells = connection.execute(
        "select cell_id, problem_id, kept = '{}', json_exists(kept, ?) or num_rows = 1, num_rows "
        "from current_cell where list_contains(?, problem_id)",
        [f"$.{EVALUATED}", sorted(problems)],
    ).fetchall()
    single: dict[int, set[int]] = {}
    in_all: Counter[int] = Counter()
    searched, whole = set(), set()
    for cell, problem, is_whole, is_alone, rows in cells:
        if is_alone and not is_whole:
            single.setdefault(problem, set()).add(cell)
            in_all[problem] += rows
        else:
            searched.add(problem)
        if is_whole:
            whole.add(problem)
    return SingleLayouts(
        frozenset().union(*single.values()),
        max((rows for problem, rows in in_all.items() if problem in searched), default=0),
        problems - whole,
    )


def _of_searches(
    layouts: Sequence[Record], rank: str, top: int, single: Collection[int]
) -> list[Record]:
    """Return the best `top` layouts; ranks count only layouts that a search found.

    Single layouts have no rank. They are left out of a problem that has a search.
    """
    searched = [layout for layout in layouts if layout["cell_id"] not in single]
    if searched:
        return [{**layout, rank: place} for place, layout in enumerate(searched[:top], start=1)]
    return [{**layout, rank: None} for layout in layouts[:top]]


def _left_out(
    connection: DuckDBPyConnection, filters: Filters, by: str, problems: set[int]
) -> dict[str, int]:
    """Count the problems without a rank that lack a time, the column, or a layout that fits."""
    counts = {"time": 0, "figure": 0, "fits": 0}
    if not problems:
        return counts
    where = " and ".join(f"{quoted(name)} = ?" for name in filters)
    values: list[Any] = [*filters.values(), sorted(problems)]
    has_figure: dict[int, bool] = {}
    if by == TIME:  # if every row has a time, the cells' records suffice
        values.append(list(summary_of(str(filters["estimator"])).timed))
        query = (
            "select problem_id, true from current_cell inner join problem using (problem_id) "
            f"where {where} and list_contains(?, problem_id) and list_contains(?, relation) "
            "group by problem_id having sum(num_rows) > 0"
        )
        has_figure = dict(connection.execute(query, values).fetchall())
        values = [*filters.values(), sorted(problems - has_figure.keys())]
    if problems - has_figure.keys():
        query = (
            f"select problem_id, count({quoted(by)}) > 0 from configuration "
            f"where {where} and list_contains(?, problem_id) group by problem_id"
        )
        has_figure |= dict(connection.execute(query, values).fetchall())
    for problem in problems:
        lacks = {None: "time", False: "figure", True: "fits"}[has_figure.get(problem)]
        counts[lacks] += 1
    return counts


def _nothing_to_rank(
    connection: DuckDBPyConnection, filters: Filters, by: str, left_out: Mapping[str, int]
) -> InputError:
    estimator = filters.get("estimator", "")
    if left_out["figure"]:
        return InputError(
            f"`--by` {by}: no stored configuration of {estimator} has this column",
            'see the columns that are filled: warehouse sql "summarize configuration"',
        )
    views = _own_views(connection, str(estimator))
    return InputError(
        f"{estimator} has no time of a training step to rank by",
        f'ask its own view: warehouse sql "from {views[0]} limit 10"' if views else "",
    )


def _own_views(connection: DuckDBPyConnection, estimator: str) -> list[str]:
    """Return the staging views of an estimator that are not part of `configuration`, in order."""
    from warehouse.database.lineage import reads_of
    from warehouse.database.views import CONFIGURATION_SOURCE

    reads = reads_of(connection)
    joined = reads.get(CONFIGURATION_SOURCE, ())
    return [
        view
        for relation in summary_of(estimator).relations
        for view in sorted(reads)
        if view.startswith(f"stg_{relation}") and view not in joined
    ]


def _known_column(connection: DuckDBPyConnection, by: str) -> str:
    """Return the numeric column of `configuration` that `by` names in any capitals."""
    found = connection.execute(
        f"select column_name from duckdb_columns() where {IN_MAIN} "
        "and table_name = 'configuration' "
        "and numeric_precision is not null and not ends_with(column_name, '_id')"
    ).fetchall()
    known = [name for (name,) in found]
    if meant := find_name(by, known, {}):
        return meant
    near = get_close_matches(by.lower(), known, n=5, cutoff=0.4) or list(RESULT)
    raise InputError(
        f"`--by` {by} is not a numeric column of view configuration", did_you_mean(near)
    )


def _sorted(problems: Iterable[Record]) -> list[Record]:
    """Return problems in order of their names, then of every other value but the id."""
    return sorted(
        problems,
        key=lambda problem: [
            (problem[name] is not None, problem[name])
            for name in (*PROBLEM_NAMES, *problem)
            if name != "problem_id"
        ],
    )


def _differing(problems: Sequence[Record]) -> list[str]:
    """Return the columns in which problems of the same names differ, as in a hardware sweep.

    Columns that differ only because the framework or the number format differs do not count.
    """
    named: dict[tuple[Any, ...], Record] = {}
    differing: set[str] = set()
    for problem in problems:
        names = (*PROBLEM_NAMES, *QUESTION)
        first = named.setdefault(tuple(problem[name] for name in names), problem)
        differing |= {name for name in problem if problem[name] != first[name]}
    return [name for name in problems[0] if name in differing - {"problem_id"}] if problems else []


def stored_problems(connection: DuckDBPyConnection, filters: Filters) -> set[int]:
    """Return the problems that pass the filters.

    Raises
    ------
    InputError
        If none is stored, or none passes; the first filter that none passes is named.
    """
    return _passing(_stored(connection, filters), filters)


def _stored(connection: DuckDBPyConnection, names: Iterable[str]) -> list[Record]:
    """Return every stored problem with some of its names and those of its cells.

    Raises
    ------
    InputError
        If none is stored.
    """
    # the first relation of an estimator has its configurations, the others their details
    relations = [estimator.relations[0] for estimator in summaries()]
    columns = ", ".join(quoted(name) for name in ("problem_id", *names))
    stored = rows_as_dicts(
        connection,
        f"select distinct {columns} from current_cell inner join problem using (problem_id)"
        " where list_contains(?, relation)",
        [relations],
    )
    if not stored:
        raise InputError(
            "no configuration is stored yet",
            "run `warehouse quickstart`, or sweep a study: warehouse sweep gpt3_1T_1d",
        )
    return stored


def _passing(
    stored: Sequence[Record], filters: Filters, study: StudyFilter | None = None
) -> set[int]:
    """Return the problems among `stored`, those of `study` alone, that pass the filters.

    Raises
    ------
    InputError
        If none does; the first filter that none passes is named.
    """
    for place, (name, value) in enumerate(filters.items()):
        left = [row for row in stored if row[name] == value]
        if not left:
            others = [f"{n} {v}" for n, v in list(filters.items())[:place]]
            others = others if study is None else [f"study {study.name}", *others]
            known = sorted({row[name] for row in stored if row[name] is not None})
            raise _unknown(name, value, known, others)
        stored = left
    return {row["problem_id"] for row in stored}


def _unknown(
    name: str, value: str | int, known: Sequence[Any], others: Sequence[str]
) -> InputError:
    near = get_close_matches(str(value), [str(one) for one in known], n=3, cutoff=0.6)
    if is_known_name(name, value):  # spelt as it is stored
        near = []
    of = f" with {', '.join(others)}" if others else ""
    listed = ", ".join(str(one) for one in known[:20]) + (", ..." if len(known) > 20 else "")
    listed = listed or f"problems without `{name}` only"
    shown = f'"{value}"' if isinstance(value, str) else value
    return InputError(
        f"`{name}` {shown}: no configuration is stored{of}",
        joined_hint(
            did_you_mean(near), f"stored: {listed}", "`warehouse sweep` a study for others"
        ),
    )
