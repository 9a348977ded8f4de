"""The candidate layouts that a plan's queries see, found once, and the rows of these queries.

DuckDB takes longer to plan the views of all configurations than to read the few rows of a plan. So
the rows are found once, and a temporary table takes the place of the view.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.ask.cost import POWERS, PRICES, RUNS, keep_runs
from warehouse.database.connection import rows_as_dicts
from warehouse.database.current import LEADING
from warehouse.database.kept import keep_reference_views, replaced, state_of_views
from warehouse.database.narrow import leave_out_others
from warehouse.database.sql_text import double
from warehouse.plan.queries import KIND, STEP_PARTS, best_layouts, is_candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]
    """A row of a query's result."""


class QueryCache:
    """Rows of queries on one connection; each query runs once."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        self._rows: dict[str, list[Line]] = {}
        self._tables: dict[str, str] = {}

    def __call__(self, query: str) -> list[Line]:
        """Return the rows of a query."""
        if query not in self._rows:
            self._rows[query] = self.rows_now(query)
        return self._rows[query]

    def rows_now(self, query: str) -> list[Line]:
        """Return the rows of a query inside a block; outside it may have other rows."""
        return list(rows_as_dicts(self._connection, query))

    def state_of(self, *views: str) -> list[tuple[str, Any]]:
        """Return each table that some views read with a hash of its rows."""
        return state_of_views(self._connection, *views)

    def keep_runs(self, run: TrainingRun, problems: Collection[int]) -> None:
        """Find the runs of some problems once, for the queries of cost and energy."""
        relations = [relation.name for relation in run.estimator.relations]
        leave_out_others(self._connection, RUNS, relations)
        keep_runs(self._connection, problems)
        keep_reference_views(self._connection, PRICES, POWERS, "published_run")

    @contextmanager
    def replaced(self, views: Mapping[str, str]) -> Iterator[None]:
        """Replace views by queries until the block ends."""
        with replaced(self._connection, views):
            yield

    @contextmanager
    def fastest_of(self, run: TrainingRun, problems: Iterable[int]) -> Iterator[None]:
        """Let queries in this block see few candidates, among them the fastest of each problem.

        These are the leading rows, which include the fastest layout for any headroom. With fixed
        columns they are all candidates; they have the columns of a layout if limits need the layout
        of each count.
        """
        if _has_leading(run):
            found = _candidate_rows(run, problems, _columns_read(run), LEADING)
        else:
            needed = _columns_read if run.request.limits else _columns_of_runs
            found = _candidate_rows(run, problems, needed(run))
        with self._in_place(found):
            yield

    @contextmanager
    def layouts_of(
        self, run: TrainingRun, problem: int, slowest: float | None = None
    ) -> Iterator[None]:
        """Let queries in this block see only the candidates of one problem, found once.

        Parameters
        ----------
        slowest
            Longest step of the candidates [s]; None: no limit.
        """
        found = _candidate_rows(run, [problem], _columns_read(run))
        if slowest is not None:
            found += f" and step_seconds <= {double(slowest)}"
        with self._in_place(found):
            yield

    @contextmanager
    def _in_place(self, found: str) -> Iterator[None]:
        """Replace view `configuration_flops` by the rows of a query.

        DuckDB takes longer to plan the view than to read one problem of it.
        """
        if found not in self._tables:
            self._tables[found] = f"candidate_{len(self._tables)}"
            self._connection.execute(f"create temp table {self._tables[found]} as {found}")
        with self.replaced({"configuration_flops": f"from {self._tables[found]}"}):
            yield


def slowest_needed(
    run: TrainingRun, ask: QueryCache, problem: int, top: int, spare: Callable[[Line], float | None]
) -> float | None:
    """Return a step time that no layout of an answer exceeds; None if it is unknown.

    Leading rows contain enough layouts for an answer. The answer has these layouts or faster ones
    that are not leading rows. Call it in a block of `QueryCache.fastest_of`.

    Parameters
    ----------
    top
        Layouts of the answer.
    spare
        Share of the memory that a layout should leave free; None: no safer one is asked for.
    """
    if not _has_leading(run):
        return None
    # there are few leading rows: one query reads them all
    found = ask.rows_now(best_layouts(run, problem, None))
    others = [line for line in found if _is_unlike(line, found[0])]
    if len(found) < top or not others:
        return None
    wanted = spare(found[0])
    # Leading rows include the least memory: if none of them is safer, no layout is.
    safer = [] if wanted is None else [line for line in found if _leaves_free(line, wanted)]
    return max(float(line["step_seconds"]) for line in (*found[:top], *others[:1], *safer[:1]))


def _is_unlike(line: Line, other: Line) -> bool:
    """Return whether a layout is of another kind, as `best_layouts` decides."""
    return any(
        line[name] is not None and line[name] != other[name]
        for name in KIND
        if other[name] is not None
    )


def _leaves_free(line: Line, spare_fraction: float) -> bool:
    free, whole = line["headroom_bytes"], line["hbm_bytes"]
    return free is not None and whole is not None and bool(free >= spare_fraction * whole)


def _has_leading(run: TrainingRun) -> bool:
    """Return whether the fastest candidates of a problem are leading rows.

    Leading rows are the fastest of all layouts; the fastest with fixed columns need not be among
    them.
    """
    return not run.request.held and all(each.keeps_leading for each in run.estimator.relations)


def _candidate_rows(
    run: TrainingRun, problems: Iterable[int], columns: Iterable[str], begin: str = ""
) -> str:
    """Return the query of the candidates that fit; `begin` begins the name of their view."""
    return (
        f"select {', '.join(columns)} from {begin}configuration_flops "
        f"where {is_candidate(run, problems)} and fits_memory is distinct from false"
    )


def _columns_of_runs(run: TrainingRun) -> Iterable[str]:
    """Return the columns of `configuration_flops` that queries about the time of runs read."""
    return dict.fromkeys(
        (
            *("problem_id", "estimator", "variant", "num_gpus", "global_batch_size"),
            *("step_tokens", "step_seconds", "training_seconds", "model_flops", "slot_watts"),
            *("peak_flops_per_second", "matrix_flops_per_second"),
            *("memory_bytes", "hbm_bytes", "fits_memory"),
            *run.request.held,
        )
    )


def _columns_read(run: TrainingRun) -> Iterable[str]:
    """Return the columns of `configuration_flops` that queries about one problem read."""
    return dict.fromkeys((*_columns_of_runs(run), *LAYOUT_COLUMNS, *STEP_PARTS))
