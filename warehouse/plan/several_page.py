"""The page of several questions: one table, a row each, and JSON with every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.database.stamp import reference_in_words
from warehouse.plan.document import PlanAnswers, Unanswered, document, question_document
from warehouse.plan.question_words import assumptions, runs_in_words
from warehouse.plan.several import COLUMNS
from warehouse.plan.words import dollars_in_words, probability_in_words
from warehouse.show.json_schema import as_json
from warehouse.show.page import Page, Section, table_of
from warehouse.show.units import for_people
from warehouse.show.values import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.several import Answered

_ASKED = (
    *("accelerator", "network_bytes_per_second", "dataset_tokens", "num_gpus", "precision"),
    "global_batch_size",
)
"""Columns that the heading has where all rows have the same value."""

SHOWN = (
    *("accelerator", "network_bytes_per_second", "dataset_tokens", "num_gpus", "num_idle_gpus"),
    *(
        "precision",
        "global_batch_size",
        "training_seconds",
        "cost",
        "energy_kwh",
        "memory_bytes",
        "fits",
    ),
    *("time_mean_absolute_relative_error", "layout"),
)
"""Columns that people see; `cost` and `fits` are `cost_usd` and `fit_probability` in words."""

TABLE = (*SHOWN, *(name for name in COLUMNS if name not in SHOWN))
"""Columns of the table: those that people see, and the others, which --columns can show."""

_HEADINGS = {
    "num_idle_gpus": "idle",
    "time_mean_absolute_relative_error": "error %",
    "layout": "layout, or why there is none",
}


def several_page(answered: Sequence[Answered], top: int, command: str) -> Page:
    """Return the page of several answers; `command` asks the first of them alone."""
    records = ranked(answered)
    drop = {name for name in _ASKED if len({record[name] for record in records}) == 1}
    drop |= {name for name in COLUMNS if name not in SHOWN}
    if not any(record["num_idle_gpus"] for record in records):
        drop.add("num_idle_gpus")
    table = Section(
        lines=[runs_in_words([one.run for one in answered]), ""],
        columns=TABLE,
        rows=[[{**record, **_in_words(record)}[name] for name in TABLE] for record in records],
        drop=drop,
        headings={**_HEADINGS, "training_seconds": _unit_of_time(records)},
        below=["", *_remarks(answered), f"one of them in full: {command}"],
    )
    return Page(answers_document(answered, top), Section("", *table_of(records)), [table])


def _unit_of_time(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the unit in which people read the times of these rows."""
    name = "training_seconds"
    [heading], _ = for_people([name], [[record[name]] for record in records])
    return heading.split()[-1]


def _in_words(record: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the columns that people read in words."""
    cost, fits = record["cost_usd"], record["fit_probability"]
    return {
        "cost": None if cost is None else Figure(dollars_in_words(cost)),
        "fits": None if fits is None else Figure(probability_in_words(fits)),
        "layout": record["layout"] or record["note"],
    }


def ranked(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """Return the rows of the table, with a rank where there is an answer."""
    return [
        {"rank": None if one.answer is None else rank, **one.record()}
        for rank, one in enumerate(answered, start=1)
    ]


def answers_document(answered: Sequence[Answered], top: int) -> dict[str, Any]:
    """Return all answers as one object; each is the object of one question."""
    answers: list[Any] = []
    for one in answered:
        if one.answer is not None:
            answers.append(document(one.answer, top))
        elif one.error is not None:
            request = one.run.request
            question = question_document(one.run)
            error = one.error
            answers.append(
                as_json(Unanswered(question, request.num_gpus, error.message, error.hint))
            )
    plain: dict[str, Any] = as_json(PlanAnswers(answers))
    return plain


def _remarks(answered: Sequence[Answered]) -> list[str]:
    """Return what all rows assume, and what the mean error of a row is."""
    each = [assumptions(one.run, alone=False) for one in answered]
    shared = [words for words in each[0] if all(words in others for others in each)]
    lines = [f"all assume {', '.join([*shared, reference_in_words()])}"]
    if any(one.answer is not None and one.answer.own_count["cost_usd"] is None for one in answered):
        lines.append("cost: NULL where no price is published; --price gives one")
    return [*lines, "error: mean of published steps like the row's, if its accelerator has any"]
