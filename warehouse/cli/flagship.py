"""The answer that the quickstart ends with: the flagship run, planned and as it was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warehouse.cli.common import fetched, records, say
from warehouse.database.sql_text import literal
from warehouse.plan.words import summary_lines
from warehouse.show.formats import count
from warehouse.show.units import run_time_in_words

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.search import Sweep


@dataclass(frozen=True)
class Flagship:
    """A published run to plan again.

    Attributes
    ----------
    published_row
        Row of `TABLE`, with the same model, GPUs and batch.
    tokens
        Of the whole run.
    """

    published_row: str
    model: str
    num_gpus: int
    global_batch_size: int
    tokens: float


TABLE = "published_megatron_scaling"
PAPER = "arXiv 2104.04473"
ACCELERATOR = "A100 SXM 80GB"
FRAMEWORK = "megatron_lm_2021"
"""The program of the paper, for a plan to compare with what it measured."""

WHOLE = Flagship("1T", "megatron_1T", 3072, 3072, 450e9)
"""The largest run of arXiv 2104.04473 (table 1); its tokens are those of section 5.1."""

SMALL = Flagship("1.7B", "megatron_1.7B", 32, 512, 300e9)
"""The smallest run of that table; it has the tokens of GPT-3 (arXiv 2005.14165)."""

_PUBLISHED = """\
select
    data_parallel, tensor_parallel, pipeline_parallel, microbatch_size, uses_sequence_parallel,
    activation_recompute, published_step_seconds, step_seconds, time_relative_error
from published_comparison
where
    reference = {reference}
    and published_row = {row}
    and estimator = {estimator}"""

_ERROR = """\
select num_timed as num_rows, time_mean_absolute_relative_error as error
from published_accuracy
where grouped_by = 'reference' and reference = {reference} and estimator = {estimator}"""

_SIZE = "select sum(num_rows)::bigint as num_rows from cell"


def flagship_lines(database: Path, *, small: bool) -> list[str]:
    """Plan the flagship run, store its layouts, and return the answer as lines.

    Parameters
    ----------
    small
        Take the smallest run of the table, which has few layouts.
    """
    flagship = SMALL if small else WHOLE
    answer = _planned(flagship, database)
    published, error, num_rows = _stored(flagship, answer.run.request.estimator, database)
    return [
        "",
        f"Best layout of {flagship.model}: {flagship.tokens / 1e9:,.0f} G tokens on "
        f"{flagship.num_gpus:,} {ACCELERATOR}, nothing fitted",
        "",
        *summary_lines(answer),
        *_published_lines(answer, published, error),
        "",
        f"{database} holds {count(num_rows, 'configuration')} "
        f"({database.stat().st_size / 1e6:,.0f} MB)",
    ]


def _planned(flagship: Flagship, database: Path) -> PlanAnswer:
    from warehouse.database.connection import open_once
    from warehouse.options import PlanOptions
    from warehouse.plan.run import answer_plan, first_sweep

    options = PlanOptions(
        tokens=flagship.tokens,
        model=flagship.model,
        accelerator=ACCELERATOR,
        framework=FRAMEWORK,
        num_gpus=flagship.num_gpus,
        global_batch_size=flagship.global_batch_size,
    )
    with open_once(database):
        run, sweep = first_sweep(options, database)
        return answer_plan(run, sweep, database, store=_store)


def _store(sweep: Sweep, database: Path) -> None:
    from warehouse.cli.sweep import run_with_progress, summary

    say(summary(run_with_progress(database, sweep.study, force=False)))


def _stored(
    flagship: Flagship, estimator: str, database: Path
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the published run, the error on its table, and the number of stored rows."""
    from warehouse.database.connection import open_for_read

    names = {
        "reference": literal(TABLE),
        "row": literal(flagship.published_row),
        "estimator": literal(estimator),
    }
    with open_for_read(database) as connection:
        [published] = records(fetched(connection, _PUBLISHED.format(**names)))
        [error] = records(fetched(connection, _ERROR.format(**names)))
        [size] = records(fetched(connection, _SIZE))
    return published, error, size["num_rows"]


def _published_lines(
    answer: PlanAnswer, published: dict[str, Any], error: dict[str, Any]
) -> list[str]:
    steps = answer.best["training_seconds"] / answer.best["step_seconds"]
    measured, predicted = (
        run_time_in_words(steps * published[name])
        for name in ("published_step_seconds", "step_seconds")
    )
    return [
        f"  published  {answer.in_words(published)}: {measured} at the measured step; "
        f"predicted {predicted} ({100 * published['time_relative_error']:+.1f} %)",
        f"  accuracy   {100 * error['error']:.1f} % mean error on the {error['num_rows']} steps of "
        f"its table ({PAPER})",
    ]
