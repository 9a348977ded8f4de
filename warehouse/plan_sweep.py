"""What a plan has to sweep: the study of its counts of GPUs, and what of it is not stored yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.contract import EmptySpaceError, Scalar
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_read
from warehouse.errors import InputError
from warehouse.evaluate.space import named_choices
from warehouse.studies.study import Study
from warehouse.sweep.runner import Plan, run_study
from warehouse.sweep.runner import plan as plan_study

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from warehouse.plan.question import Run
    from warehouse.sweep.runner import SweepReport


def study_of(run: Run, counts: Sequence[int]) -> Study:
    """Return the study that has every layout on these numbers of GPUs."""
    asked = run.asked
    space: dict[str, tuple[Scalar, ...]] = {
        **({} if asked.model is None else {"model": (run.facts.problem["model"],)}),
        "accelerator": (run.facts.problem["accelerator"],),
        **{name: (value,) for name, value in asked.inputs.items()},
        **named_choices(run.estimator),
        **{name: (value,) for name, value in asked.held.items()},
        "num_gpus": tuple(counts),
        "global_batch_size": (run.batch,),
    }
    given = {**asked.inputs, **asked.held}
    told = "".join(f", {name} {value}" for name, value in given.items())
    model = run.facts.problem["model"] or "of a shape"
    name = (
        f"plan {run.estimator.name} {model} on {','.join(map(str, counts))} x "
        f"{space['accelerator'][0]}, batch {run.batch}{told}"
    )
    known = run.estimator.mends
    definition: dict[str, Any] = {
        "name": name,
        "description": "asked by `warehouse plan`",
        "estimator": run.estimator.name,
        "mends": [[mend for mend in known if mend in run.mends]],
        "spaces": [{key: list(values) for key, values in space.items()}],
    }
    return Study(name, run.estimator.name, (run.mends,), (space,), definition, "plan")


@dataclass(frozen=True)
class Wanted:
    """The cells of some numbers of GPUs, and what of them is not stored."""

    study: Study
    plan: Plan
    missing_cells: int
    missing_rows: int

    @property
    def problems(self) -> dict[int, int]:
        """Number of GPUs -> id of the problem."""
        return {
            int(cell.problem.values["num_gpus"] or 0): cell.problem.id
            for cell, _ in self.plan.cells
        }


def wanted(run: Run, counts: Sequence[int], database: Path) -> Wanted:
    """Return what some numbers of GPUs ask for; nothing is evaluated or written.

    Raises
    ------
    InputError
        If they are refused, if there is no layout on any of them, or none on as many as were
        asked for.
    """
    study = study_of(run, counts)
    if run.asked.num_gpus is not None and not has_layouts(run, run.asked.num_gpus):
        raise no_layout(run, run.asked.num_gpus)
    asked = plan_study(study, packaged_catalog())
    stored: set[int] = set()
    if database.exists():
        with open_for_read(database) as connection:
            query = "select cell_id from cell where list_contains(?, cell_id)"
            ids = [cell.id for cell, _ in asked.cells]
            stored = {row[0] for row in connection.execute(query, [ids]).fetchall()}
    missing = [rows for cell, rows in asked.cells if cell.id not in stored]
    return Wanted(study, asked, len(missing), sum(missing))


def has_layouts(run: Run, num_gpus: int) -> bool:
    """Return whether there is any layout on so many GPUs; nothing is evaluated.

    Raises
    ------
    RefusedError
        If what the layouts are held to is faulty, or leaves none on any number of GPUs.
    """
    search = run.estimator.search
    assert search is not None
    [space] = study_of(run, [num_gpus]).spaces
    try:
        cells = list(search.cells(space, packaged_catalog(), run.mends))
    except EmptySpaceError as error:
        if any(refusal.column in run.asked.held for refusal in error.refusals):
            raise
        return False
    return any(search.count(cell) for cell in cells)


def no_layout(run: Run, num_gpus: int) -> InputError:
    """Return the error of a number of GPUs without a layout, with the nearest powers of two."""
    below = 2 ** (num_gpus.bit_length() - 1)
    powers = range(below.bit_length() - 1, -1, -1)
    near = next((2**n for n in powers if 2**n < num_gpus and has_layouts(run, 2**n)), None)
    found = [] if near is None else [near]
    if near is not None and 2 * near > num_gpus and has_layouts(run, 2 * near):
        found.append(2 * near)
    counts = " or ".join(f"{count:,}" for count in found)
    return InputError(
        f"`--gpus` {num_gpus:,}: there is no layout of {run.model} on so many with batches of "
        f"{run.batch:,}: degrees must multiply to it and divide heads, layers and batch",
        f"ask for {counts}, or for another --batch" if counts else "ask for another --batch",
    )


def swept(
    wanted: Wanted, database: Path, sweep: Callable[[Path, Study], SweepReport] | None = None
) -> SweepReport | None:
    """Evaluate and store what is missing; nothing is opened for writing where nothing is.

    Parameters
    ----------
    sweep
        Runs a study, by default without showing progress.
    """
    if not wanted.missing_cells and database.exists():
        return None
    return (sweep or run_study)(database, wanted.study)
