"""The candidate layouts that a plan's queries see, found once, and the rows of these queries."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.ask.cost import RUNS
from warehouse.database.connection import rows_as_dicts
from warehouse.database.sql_text import double, keep_view, listed, replaced
from warehouse.database.views import LEADING_ROW
from warehouse.plan.queries import KIND, best_layouts, is_candidate
from warehouse.show.units import STEP_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]
    """A row of a query's result."""


_READ = (
    *("problem_id", "estimator", "variant", "num_gpus", "global_batch_size", "step_tokens"),
    *("step_seconds", "training_seconds", "model_flops", "slot_watts", "peak_flops_per_second"),
    *("matrix_flops_per_second", "memory_bytes", "hbm_bytes", "fits_memory", "fit_probability"),
    *LAYOUT_COLUMNS,
    *STEP_PARTS,
)
"""Columns of `configuration_flops` that the queries of a plan read, and those that it fixes: all
145 take twice as long."""


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

    def keep_runs(self, problems: Iterable[int]) -> None:
        """Find the runs of some problems once, for the queries of cost and energy."""
        keep_view(self._connection, RUNS, f"problem_id in ({listed(problems)})")

    @contextmanager
    def fastest_of(self, run: TrainingRun, problems: Iterable[int]) -> Iterator[None]:
        """Let queries in this block see few candidates, among them the fastest of each problem.

        These are the leading rows, which include the fastest layout for any headroom, and so for
        any chance to fit. With fixed
        columns they are all candidates: the fastest of these need not be leading rows.
        """
        source = "configuration_flops" if run.request.held else LEADING_ROW
        with self._in_place(_candidates(run, source, problems)):
            yield

    @contextmanager
    def layouts_of(
        self, run: TrainingRun, problem: int, slowest: float | None = None
    ) -> Iterator[None]:
        """Let queries in this block see only the candidates of one problem.

        Their steps take `slowest` seconds at most; None: no limit.
        """
        found = _candidates(run, "configuration_flops", [problem])
        if slowest is not None:
            found += f" and step_seconds <= {double(slowest)}"
        with self._in_place(found):
            yield

    @contextmanager
    def _in_place(self, found: str) -> Iterator[None]:
        """Replace view `configuration_flops` by the rows of a query that fit, found once."""
        if found not in self._tables:
            self._tables[found] = f"candidate_{len(self._tables)}"
            self._connection.execute(f"create temp table {self._tables[found]} as {found}")
        with replaced(self._connection, {"configuration_flops": f"from {self._tables[found]}"}):
            yield


def _candidates(run: TrainingRun, source: str, problems: Iterable[int]) -> str:
    columns = ", ".join(dict.fromkeys((*_READ, *run.request.held)))
    return (
        f"select {columns} from {source} where {is_candidate(run, problems)}"
        " and fits_memory is distinct from false"
    )


def slowest_needed(run: TrainingRun, ask: QueryCache, problem: int, top: int) -> float | None:
    """Return a step time that no layout of an answer with `top` layouts exceeds; None if unknown.

    Leading rows contain enough layouts for an answer. The answer has these layouts or faster ones
    that are not leading rows. Call it in a block of `QueryCache.fastest_of`.
    """
    if run.request.held:
        return None
    # there are few leading rows: one query reads them all
    found = ask.rows_now(best_layouts(run, problem, None))
    # others may follow that are likely to fit and slower
    found = [line for line in found if line["is_likely_to_fit"]]
    others = [line for line in found if _is_unlike(line, found[0])]
    if len(found) < top or not others:
        return None
    return max(float(line["step_seconds"]) for line in (*found[:top], *others[:1]))


def _is_unlike(line: Line, other: Line) -> bool:
    """Return whether a layout is of another kind, as `best_layouts` decides."""
    return any(
        line[name] is not None and line[name] != other[name]
        for name in KIND
        if other[name] is not None
    )
