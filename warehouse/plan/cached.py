"""The answer of a plan beside the cache of cells: its own stay, and older questions go."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Protocol

from warehouse.database.connection import open_for_read
from warehouse.database.sink import stored_among
from warehouse.errors import DatabaseError
from warehouse.sweep.plan_cache import trim_plan_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep

    Store = Callable[[Sweep, Path], None]

    class Answer(Protocol):
        """Answers a plan from a sweep, which `store` stores first."""

        def __call__(
            self, run: TrainingRun, sweep: Sweep, database: Path, top: int = ..., store: Store = ...
        ) -> PlanAnswer:
            """Return the answer with `top` layouts."""


def beside_the_cache(usual: Store) -> Callable[[Answer], Answer]:
    """Return what makes an answer remove the oldest questions where the cache is too large.

    Nothing is removed where nothing was stored. Another process may have removed cells between
    their storing and the answer: that answer is refused. `usual` stores a sweep by default.
    """

    def beside(answer: Answer) -> Answer:
        @wraps(answer)
        def answered(
            run: TrainingRun, sweep: Sweep, database: Path, top: int = 3, store: Store = usual
        ) -> PlanAnswer:
            asked: dict[str, Sweep] = {}

            def noted(sweep: Sweep, database: Path) -> None:
                asked[sweep.study.name] = sweep
                store(sweep, database)

            found = answer(run, sweep, database, top, noted)
            if any(sweep.missing_cells for sweep in asked.values()):
                _refuse_removed(database, asked.values())
                trim_plan_cache(database, kept=asked)
            return found

        return answered

    return beside


def _refuse_removed(database: Path, sweeps: Iterable[Sweep]) -> None:
    """Refuse an answer from cells that are not all stored."""
    cells = {cell.id for sweep in sweeps for cell, _ in sweep.cells.counted}
    with open_for_read(database) as connection:
        if len(stored_among(connection, [*cells])) < len(cells):
            raise DatabaseError(
                f"{database}: another process has removed layouts of this plan",
                "ask again; a larger `plan_cache_gb` keeps more (`warehouse config`)",
            )
