"""The texts and tables of a report: everything on the page but its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.columns import COLUMNS
from warehouse.ask.terms import price_vendors
from warehouse.plan import words
from warehouse.plan.launched import launches_of_plan
from warehouse.plan.page import expert_rows, interval_lines, parts_section
from warehouse.plan.published_runs import published_lines
from warehouse.plan.question_words import question_lines
from warehouse.show.page import table_of
from warehouse.show.units import (
    STEP_PARTS,
    for_people,
    in_words,
    informative_columns,
    interval_in_words,
    run_times_in_words,
    unless_rounding,
)
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from warehouse.plan.answer import PlanAnswer

    Line = Mapping[str, Any]

NEAR = 1.05
"""Layouts up to this multiple of the fastest step are near-optimal."""

LAYOUTS = 200
"""Layouts that a report has at most."""


class Headline(NamedTuple):
    """A figure of the answer: its name, value and uncertainty."""

    name: str
    value: str
    sure: str


class SortableTable(NamedTuple):
    """A table as people read it; `sort` has the numbers behind the texts, None for a text."""

    headings: list[str]
    rows: list[list[str]]
    sort: list[list[float | None]]

    @property
    def number_columns(self) -> set[int]:
        """Places of the columns that have a number in any row."""
        return {at for row in self.sort for at, value in enumerate(row) if value is not None}


def content_of(answer: PlanAnswer) -> dict[str, Any]:
    """Return the texts and tables of a plan, by their names in the template."""
    run, best, sure = answer.run, answer.best, answer.uncertainty
    tokens = in_words("dataset_tokens", run.request.tokens)
    time = in_words("training_seconds", best["training_seconds"])
    cost = answer.own_count["cost_usd"]
    costs = "" if cost is None else f" and costs {words.dollars_in_words(cost)}"
    limits = list(parts_section(answer).below)
    limits += [f"{name}: {text}" for name, text in words.alternative_entries(answer)]
    return {
        "title": f"{run.model}: {tokens} on {answer.num_gpus:,} {run.problem['accelerator']}",
        "summary": f"The best layout is {answer.in_words(best)}. The run takes {time}{costs}.",
        "key": layout_key(best),
        "figures": _headlines(answer),
        "limits": [_sentence(line) for line in limits],
        "near": _near_in_words(answer),
        "layouts": _layouts(answer),
        "experts": _table(expert_rows(answer)),
        "counts": _table(words.count_rows(answer)),
        "launches": launches_of_plan(answer),
        "costs": _table(answer.costs, drop=("option", "price_note")),
        "energies": _table(answer.energies, drop=("option", "power_note", "power_basis")),
        "errors": _table([] if sure.record is None else sure.record.groups),
        "memory_errors": _table(sure.memory),
        "published_runs": _table(answer.published_runs),
        "trust": [_sentence(line) for line in _trust(answer)],
        "question": question_lines(run),
        "constants": _constants(answer),
        "queries": list(answer.queries.items()),
    }


def _sentence(line: str) -> str:
    end = "" if "warehouse " in line else "."  # a command is copied
    return f"{line[0].upper()}{line[1:]}{end}"


def _headlines(answer: PlanAnswer) -> list[Headline]:
    """Return the figures of the answer; the interval of the step is that of time and cost."""
    best, sure, second = answer.best, answer.uncertainty, answer.runner_up

    def between(name: str, value: float | None) -> str:
        if value is None or sure.likely is None:
            return "no interval"
        low, high = (value * end / best["step_seconds"] for end in sure.likely)
        if name == "training_seconds":
            return f"{run_times_in_words(low, high, value)}: {words.RANGE}"
        if name == "cost_usd":
            return f"{words.dollars_in_words(low)} to {words.dollars_in_words(high)}"
        return interval_in_words(name, low, high, value)

    def headline(label: str, name: str, value: float | None, more: str = "") -> Headline:
        figure = in_words(name, value)
        if name == "cost_usd" and value is not None:
            figure = words.dollars_in_words(value)
        return Headline(label, figure, between(name, value) + more)

    cost, energy = answer.own_count["cost_usd"], answer.energies[0] if answer.energies else {}
    runner_up = "no other layout fits"
    if second is not None:
        runner_up = f"the runner-up takes {words.longer_in_words(second, best)}"
    limits = "".join(f"; {line}" for line in words.limits_in_words(answer))
    memory = f"of {in_words('hbm_bytes', best['hbm_bytes'])}"
    if sure.fit_probability is not None:
        chance = words.probability_in_words(sure.fit_probability)
        memory += f"; fits with a probability of {chance}"
    headlines = [
        Headline("Layout", answer.in_words(best), runner_up),
        headline("Time", "training_seconds", best["training_seconds"], limits),
        Headline("Cost", "no price", "none is published: give one with --price")
        if cost is None
        else headline("Cost", "cost_usd", cost, _price_in_words(answer)),
        headline("Energy", "energy_kwh", energy.get("energy_kwh")),
        *(headline("CO2e", *figures) for figures in _carbon(answer)),
        Headline("Memory of a GPU", in_words("memory_bytes", best["memory_bytes"]), memory),
    ]
    if (mfu := best.get("mfu")) is not None:
        headlines.append(
            Headline("Model FLOPs utilization", in_words("mfu", mfu), "of the peak rate")
        )
    if (record := sure.record) is not None:
        steps = f"{record.num_steps:,} published steps of {record.found}"
        near = f"mean error{record.bias_in_words()} on {steps}"
        headlines.append(Headline("Accuracy", f"{100 * record.mean_error:.1f} %", near))
    return headlines


def _price_in_words(answer: PlanAnswer) -> str:
    """Return the price behind the dollars of the answer; nothing if there are no dollars."""
    cost = answer.own_count["cost_usd"]
    line = next((line for line in answer.costs if line["cost_usd"] == cost), None)
    if line is None:
        return ""
    price = in_words("usd_per_gpu_hour", line["usd_per_gpu_hour"])
    return f", at {price}, {str(line['basis']).replace('_', ' ')}"


_MEANINGS = (
    ("data_parallel", "{} replicas"),
    ("tensor_parallel", "tensors split over {} GPUs"),
    ("tensor_parallel_2", "and over {} of a second axis"),
    ("context_parallel", "sequences split over {}"),
    ("expert_parallel", "experts split over {}"),
    ("expert_tensor_parallel", "tensors of experts split over {}"),
    ("uses_sequence_parallel", "norms split along the sequence"),
    ("pipeline_parallel", "{} pipeline stages"),
    ("virtual_pipeline", "virtual pipeline: {} chunks of layers a stage"),
    ("microbatch_size", "microbatch size {}"),
    ("zero_stage", "ZeRO stage {}"),
)
"""Column of a layout -> meaning of its word, in the order of the words."""


def layout_key(layout: Line) -> str:
    """Return the meanings of the words in a layout."""
    meanings = []
    for name, meaning in _MEANINGS:
        value = layout.get(name)
        is_count = name in ("microbatch_size", "zero_stage") or value is True
        if not value or (value == 1 and not is_count):
            continue
        short = "seq" if value is True else f"{COLUMNS[name].short}{value}"
        meanings.append(f"{short}: {meaning.format(value)}")
    return "; ".join(meanings)


def _carbon(answer: PlanAnswer) -> list[tuple[str, float, str]]:
    """Return the CO2e on each grid that was named; a grid decides, so without one there is none."""
    named = answer.headline_energies if answer.run.terms.carbons else []
    return [
        ("kg_co2e", float(line["kg_co2e"]), f", on grid {line['grid']}")
        for line in named
        if line["kg_co2e"] is not None
    ]


def parts_of(answer: PlanAnswer) -> list[tuple[str, float]]:
    """Return the parts of the best layout's step in words, with their seconds, longest first.

    Parts without time are left out: one GPU has no collectives.
    """
    step = answer.best["step_seconds"]
    parts = [
        (words, float(answer.best[name]))
        for name, words in STEP_PARTS.items()
        if answer.best.get(name) is not None and unless_rounding(answer.best[name], step) > 0
    ]
    return sorted(parts, key=lambda part: -part[1])


_LAYOUT_COLUMNS = (
    *("step_seconds", "low_step_seconds", "high_step_seconds", "training_seconds", "mfu"),
    *("memory_bytes", "headroom_bytes"),
)


def _near(answer: PlanAnswer) -> list[Line]:
    limit = NEAR * answer.best["step_seconds"]
    return [line for line in answer.layouts if line["step_seconds"] <= limit]


def _near_in_words(answer: PlanAnswer) -> str:
    number, within = len(_near(answer)), f"within {100 * (NEAR - 1):.0f} % of the fastest step"
    if number == 1:
        return f"No other layout is {within}."
    if number < len(answer.layouts) or number < LAYOUTS:
        return f"{number} layouts are {within}."
    return f"These are the {number} fastest layouts; all are {within}, and so may others be."


def _layouts(answer: PlanAnswer) -> SortableTable:
    near = _near(answer)
    rows = [
        {"rank": place, **{name: line[name] for name in _LAYOUT_COLUMNS if name in line}}
        for place, line in enumerate(near, start=1)
    ]
    table = _table(rows)
    assert table is not None
    for row, sort, line in zip(table.rows, table.sort, near, strict=True):
        row.insert(1, answer.in_words(line))
        sort.insert(1, None)
    return SortableTable(["#", "layout", *table.headings[1:]], table.rows, table.sort)


def _trust(answer: PlanAnswer) -> list[str]:
    sure = answer.uncertainty
    intervals = [
        f"the run takes {line}" if line[0].isdigit() else line for line in interval_lines(answer)
    ] or ["the estimate has no interval: its constants have no ranges here"]
    lines = [*sure.unlike, *intervals, *words.memory_lines(answer)]
    if sure.record is not None:
        lines.append(words.record_in_words(sure.record))
    return [
        *lines,
        *published_lines(answer),
        *filter(None, [price_vendors(answer.costs)]),
    ]


def _constants(answer: PlanAnswer) -> SortableTable | None:
    explanation = answer.uncertainty.explanation
    if explanation is None:
        return None
    rows = [
        {
            "constant": constant.name,
            "value": constant.value,
            "lowest": constant.lowest,
            "highest": constant.highest,
            "source": constant.source,
        }
        for constant in explanation.sensitivities
        if constant.lowest is not None and constant.lowest != constant.highest
    ]
    return _table(rows)


def _table(rows: Sequence[Line], drop: Collection[str] = ()) -> SortableTable | None:
    """Return a table in the units and headings of people; None without rows."""
    if not rows:
        return None
    names, values = table_of(rows)
    places = informative_columns(names, values, drop)
    values = [[row[at] for at in places] for row in values]
    headings, shown = for_people([names[at] for at in places], values)
    texts = [["-" if value is None else str(value) for value in row] for row in shown]
    return SortableTable(headings, texts, [[_sortable(value) for value in row] for row in values])


def _sortable(value: Any) -> float | None:
    plain = json_value(value)
    return plain if isinstance(plain, int | float) and not isinstance(plain, bool) else None
