"""The best layouts of the problems that pass some filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS, LAYOUT_COLUMNS, names_in
from estimators.names import did_you_mean
from warehouse.ask.names import Filters, condition, find_name
from warehouse.ask.problems import Selection, as_sold, select_problems, study_filter
from warehouse.database.connection import rows_as_dicts
from warehouse.database.in_force import EVALUATED
from warehouse.database.sql_text import IN_MAIN, least_fit_probability, quoted
from warehouse.database.summaries import summary_of
from warehouse.database.tables import TOP
from warehouse.errors import InputError
from warehouse.limits import FIT_PROBABILITY

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
    *names_in("Schedule of a pipeline"),
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

_MOST_RANKS = 1_000_000
"""Macro `ranked_layouts` takes fewer ranks."""

DEFAULT_TOP = 10
"""Layouts shown of a single problem; of several problems, the best of each."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Ranking:
    """The best layouts of each problem.

    Attributes
    ----------
    rows
        The layouts, best first within a problem, with the columns in which their problems differ.
    constants
        Columns of problem and layout with the same value in all rows, to be stated once.
    num_single
        Problems with single layouts, from an evaluated or measured file, and without a search.
        Their layouts have no rank; they are shown only if no other problem is.
    num_in_part
        Shown problems whose layouts have some fixed values: no whole space was searched.
    num_without, num_without_figure, num_without_time
        Problems of which no layout fits in memory, or none has the column of the ranking, or whose
        estimator gives no step time.
    num_changed
        Problems that are left out because a study changed the rates of their product.
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
    num_changed: int = 0


def ranking(
    connection: DuckDBPyConnection,
    filters: Filters,
    *,
    estimator: str | None = None,
    variant: str | None = None,
    top: int | None = None,
    by: str = TIME,
    study: str | None = None,
    fit_probability: float = FIT_PROBABILITY,
    hardware_variants: bool = False,
) -> tuple[Filters, Ranking]:
    """Return the filters with the estimator that answers, and the best layouts of each problem.

    Filters are values of columns of problems and cells, in any spelling. The default estimator is
    the first by precedence that has a problem that passes; that of a study answers, with its
    variant if it has only one. By default `top` is ten of one problem, or the best one of several.
    By time, layouts that are likely to fit in memory (macro ``is_likely_to_fit``, with
    `fit_probability`) come first, then the others, the likeliest first.
    Products with changed rates are left out unless a study or `hardware_variants` asks for them.
    """
    of_study = None if study is None else study_filter(connection, study)
    if of_study is not None:
        estimator = estimator or of_study.estimator
        variant = variant or of_study.variant
    selection = select_problems(connection, filters, estimator, variant, of_study)
    num_changed = 0
    if of_study is None and not hardware_variants:
        sold = as_sold(connection, selection.problems)
        num_changed = len(selection.problems) - len(sold)
        selection = selection._replace(problems=sold)
    top = top or (DEFAULT_TOP if len(selection.problems) == 1 else 1)
    if by != TIME:
        by = _known_column(connection, by)
    if fit_probability == FIT_PROBABILITY:
        found = _ranking(connection, selection, by, top)
    else:
        with least_fit_probability(connection, fit_probability):
            found = _ranking(connection, selection, by, top, has_ranks=False)
    return selection.filters, replace(found, num_changed=num_changed)


def _ranking(
    connection: DuckDBPyConnection,
    selection: Selection,
    by: str,
    top: int,
    *,
    has_ranks: bool = True,
) -> Ranking:
    """Return the ranking; `has_ranks` says whether stored leading rows have its ranks."""
    single_cells, partial = _coverage(connection, selection.problems)
    layouts = _ranked(connection, selection, by, top, single_cells, has_ranks=has_ranks)
    with_layouts = {layout["problem_id"] for layout in layouts}
    left_out = _left_out(connection, selection, by, selection.problems - with_layouts)
    if not layouts and not left_out["fits"]:
        raise _nothing_to_rank(connection, selection.stored_filters, by, left_out)
    found_by_search = [layout for layout in layouts if not layout["is_single"]]
    searched = {layout["problem_id"] for layout in found_by_search}
    layouts = found_by_search or layouts
    query = "from problem where list_contains(?, problem_id)"
    shown = sorted({layout["problem_id"] for layout in layouts})
    problems = _sorted(rows_as_dicts(connection, query, [shown]))
    names = tuple(dict.fromkeys((*PROBLEM_NAMES, *QUESTION, *_differing(problems))))
    results = tuple(name for name in _results(by) if name not in names)
    columns = (*names, _rank_name(selection, by), *LAYOUT, *results)
    rows = [
        {**problem, **layout}
        for problem in problems
        for layout in layouts
        if layout["problem_id"] == problem["problem_id"]
    ]
    return Ranking(
        columns=columns,
        rows=[[row[name] for name in columns] for row in rows],
        constants={
            name: rows[0][name]
            for name in (*names, *SAID_ONCE)
            if rows and len({row[name] for row in rows}) == 1
        },
        num_single=len(with_layouts - searched),
        num_in_part=len(partial & searched),
        num_problems=len(selection.problems),
        num_without=left_out["fits"],
        num_without_figure=left_out["figure"],
        num_without_time=left_out["time"],
    )


def _results(by: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(RESULT if by in LAYOUT else (by, *RESULT)))


def _rank_name(selection: Selection, by: str) -> str:
    if by != TIME:
        return "rank"
    return "rank_in_strategy" if "strategy" in selection.filters else "rank_by_time"


def _coverage(
    connection: DuckDBPyConnection, problems: set[int]
) -> tuple[dict[int, int], set[int]]:
    """Return cell -> rows of single layouts, and the problems of which only a part was searched.

    A single layout comes from a file of configurations, or from a study that fixes all its columns.
    """
    cells = connection.execute(
        "select cell_id, problem_id, num_rows, kept = '{}', json_exists(kept, ?) or num_rows = 1 "
        "from current_cell where list_contains(?, problem_id)",
        [f"$.{EVALUATED}", sorted(problems)],
    ).fetchall()
    whole = {problem for _, problem, _, is_whole, _ in cells if is_whole}
    single = {
        cell: num_rows
        for cell, _, num_rows, is_whole, is_alone in cells
        if is_alone and not is_whole
    }
    return single, problems - whole


def _ranked(
    connection: DuckDBPyConnection,
    selection: Selection,
    by: str,
    top: int,
    single_cells: Mapping[int, int],
    *,
    has_ranks: bool,
) -> list[Record]:
    """Return the best layouts of each problem; single ones have no rank and count apart."""
    source = "configuration"
    if by == TIME and top <= (
        TOP if has_ranks else 1
    ):  # the fastest of a problem are among the fastest of its cells
        source = "leading_configuration"
    elif by == TIME and "strategy" not in selection.filters:
        depth = top + sum(single_cells.values())
        if depth < _MOST_RANKS:
            source = f"ranked_layouts({depth})"  # reads few columns of most layouts
    columns = dict.fromkeys(("problem_id", "cell_id", *LAYOUT, *_results(by)))
    order = "layout_order(layout)"
    if by != TIME:
        direction = "desc" if by in COLUMNS and COLUMNS[by].better == "higher" else "asc"
        order = f"{quoted(by)} {direction}, {order}"
    query = f"""
        select
            {", ".join(map(quoted, columns))},
            list_contains(?, cell_id) as is_single,
            row_number() over (
                partition by problem_id, is_single
                order by {order}, strategy, cell_id
            ) as place,
            case when not is_single then place end as {_rank_name(selection, by)}
        from {source} as layout
        where {condition(selection.stored_filters)} and list_contains(?, problem_id)
            and fits_memory is distinct from false and {quoted(by)} is not null
        qualify place <= ?
        order by place"""
    values = selection.stored_filters.values()
    problems = sorted(selection.problems)
    return rows_as_dicts(connection, query, [[*single_cells], *values, problems, top])


def _left_out(
    connection: DuckDBPyConnection, selection: Selection, by: str, problems: set[int]
) -> Counter[str]:
    """Count the problems without a rank that lack a time, the column, or a layout that fits."""
    filters = selection.stored_filters
    has_figure: dict[int, bool] = {}
    if problems and by == TIME:  # if every row has a time, the cells' records suffice
        query = (
            "select problem_id, true from current_cell inner join problem using (problem_id) "
            f"where {condition(filters)} and list_contains(?, problem_id) "
            "and list_contains(?, relation) group by problem_id having sum(num_rows) > 0"
        )
        timed = list(summary_of(str(filters["estimator"])).timed)
        values = [*filters.values(), sorted(problems), timed]
        has_figure = dict(connection.execute(query, values).fetchall())
    if others := problems - has_figure.keys():
        query = (
            f"select problem_id, count({quoted(by)}) > 0 from configuration "
            f"where {condition(filters)} and list_contains(?, problem_id) group by problem_id"
        )
        values = [*filters.values(), sorted(others)]
        has_figure |= dict(connection.execute(query, values).fetchall())
    lacks = {None: "time", False: "figure", True: "fits"}
    return Counter(lacks[has_figure.get(problem)] for problem in problems)


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
