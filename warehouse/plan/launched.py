"""The launch file of a plan's best layout."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from warehouse.errors import InputError, UsageError
from warehouse.evaluate.one import show_configuration
from warehouse.launch.backwards import text_of
from warehouse.launch.table import table
from warehouse.launch.write import PROGRAMS, RunToLaunch, launch_text

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer


def launches_of_plan(answer: PlanAnswer) -> dict[str, str]:
    """Return the launch files of the best layout by the names of the programs that can say it."""
    found = {}
    for program in PROGRAMS:
        with suppress(InputError, UsageError):
            found[table(program).name] = launch_of_plan(answer, program)
    return found


def launch_of_plan(answer: PlanAnswer, program: str, *, slurm: bool = False) -> str:
    """Return the launch file of the best layout; refuse what the program cannot say, by column."""
    run, best = answer.run, answer.best
    request, estimator = run.request, run.estimator
    relation = estimator.relations[0]
    machine = {name: text_of(value) for name, value in request.inputs.items()}
    machine["accelerator"] = request.accelerator
    given = {**machine, "num_gpus": str(answer.num_gpus), "global_batch_size": str(run.batch)}
    if request.model is not None:
        given["model"] = request.model
    layout = (*relation.keys, *estimator.choice_columns)
    given |= {name: text_of(best[name]) for name in layout if text_of(best.get(name))}
    planned = show_configuration(estimator, relation, given, run.mends, run.catalog, has_ends=False)
    steps = math.ceil(run.tokens / (run.batch * int(run.problem["seq_len"] or 1)))
    return launch_text(program, RunToLaunch(planned, machine, num_steps=steps), slurm=slurm)
