"""The texts and tables of a report: everything on the page but its charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.columns import COLUMNS
from warehouse.ask.terms import price_vendors
from warehouse.plan.count_table import batch_line, count_lines, count_rows
from warehouse.plan.expert_table import expert_rows
from warehouse.plan.queries import STEP_PARTS
from warehouse.plot.parts import STEP_PARTS as PARTS_IN_WORDS
from warehouse.show.units import (
    for_people,
    in_words,
    informative_columns,
    interval_in_words,
    run_times_in_words,
    unless_rounding,
    with_digits,
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


class Figure(NamedTuple):
    """A figure of the answer: its name, value and uncertainty."""

    name: str
    value: str
    sure: str


class Table(NamedTuple):
    """A table as people read it; `sort` has the numbers behind the texts, None for a text."""

    headings: list[str]
    rows: list[list[str]]
    sort: list[list[float | str | None]]

    @property
    def number_columns(self) -> set[int]:
        """Places of the columns that have a number in any row."""
        return {place for row in self.sort for place, value in enumerate(row) if value is not None}


@dataclass(frozen=True)
class Content:
    """The contents of the page.

    Attributes
    ----------
    title, summary
        The question and the answer in a line each.
    key
        The words of the best layout, explained.
    figures
        The answer.
    limits
        Sentences on the parts that limit the run, the longest first.
    near
        How many layouts are near-optimal.
    layouts
        Near-optimal layouts, which the page sorts and filters.
    experts, counts, costs, energies, errors, memory_errors, published_runs
        Tables; None where there is nothing to show.
    count_lines
        Sentences on how the plan's GPU count compares with others.
    trust
        Sentences on the accuracy of the estimate.
    assumptions
        Name and value of each input of the plan.
    constants
        Constants of the estimator with a range, their effect and their source.
    queries
        Name and text of each query.
    """

    title: str
    summary: str
    key: str
    figures: list[Figure]
    limits: list[str]
    near: str
    layouts: Table
    experts: Table | None
    counts: Table | None
    costs: Table | None
    energies: Table | None
    errors: Table | None
    memory_errors: Table | None
    published_runs: Table | None
    count_lines: list[str]
    trust: list[str]
    assumptions: list[tuple[str, str]]
    constants: Table | None
    queries: list[tuple[str, str]]


def content_of(answer: PlanAnswer) -> Content:
    """Return the texts and tables of a plan."""
    run, best = answer.run, answer.best
    tokens = in_words("dataset_tokens", run.request.tokens)
    layout = answer.in_words(best)
    time = in_words("training_seconds", best["training_seconds"])
    return Content(
        title=f"{run.model}: {tokens} on {answer.num_gpus:,} {run.problem['accelerator']}",
        summary=f"The best layout is {layout}. The run takes {time}{_and_costs(answer)}.",
        key=layout_key(best),
        figures=_figures(answer),
        limits=_limits(answer),
        near=_near_in_words(answer),
        layouts=_layouts(answer),
        experts=_table(expert_rows(answer)),
        counts=_table(count_rows(answer)),
        count_lines=[f"{line[0].upper()}{line[1:]}." for line in _about_counts(answer)],
        costs=_table(answer.costs, drop=("option", "price_note")),
        energies=_table(answer.energies, drop=("option", "power_note", "power_basis")),
        errors=_table(answer.uncertainty.errors, drop=_NOT_SHOWN),
        memory_errors=_table(answer.uncertainty.memory),
        published_runs=_table(answer.published_runs),
        trust=_trust(answer),
        assumptions=_assumptions(answer),
        constants=_constants(answer),
        queries=list(answer.queries.items()),
    )


def _about_counts(answer: PlanAnswer) -> list[str]:
    return [*count_lines(answer), *filter(None, [batch_line(answer)])]


def _figures(answer: PlanAnswer) -> list[Figure]:
    """Return the figures of the answer; the interval of the step is that of time and cost."""
    best, sure = answer.best, answer.uncertainty
    low, high = _relative(answer) or (None, None)

    def between(name: str, value: float | None) -> str:
        if value is None or low is None or high is None:
            return "no interval"
        if name == "training_seconds":
            return f"{run_times_in_words(value * low, value * high, value)} in nine of ten runs"
        return interval_in_words(name, value * low, value * high, value)

    cost = answer.own_count["cost_usd"]
    energy: Line = answer.energies[0] if answer.energies else {}
    seconds, mfu = best["training_seconds"], best.get("mfu")
    room = f"of {in_words('hbm_bytes', best['hbm_bytes'])}"
    if sure.room is not None:
        room += f"; fits with a probability of {_probability(sure.room)}"
    second = answer.runner_up
    runner_up = (
        "no other layout fits" if second is None else f"the runner-up is {_longer(answer, second)}"
    )
    found = [
        Figure("Layout", answer.in_words(best), runner_up),
        Figure(
            "Time",
            in_words("training_seconds", seconds),
            between("training_seconds", seconds) + _over_days(answer, high),
        ),
        Figure("Cost", "no price", "none is published: give one with --price")
        if cost is None
        else Figure(
            "Cost", in_words("cost_usd", cost), between("cost_usd", cost) + _price_in_words(answer)
        ),
    ]
    for label, name in (("Energy", "energy_kwh"), ("CO2e", "kg_co2e")):
        value = energy.get(name)
        where = _grids(answer) if name == "kg_co2e" else ""
        found.append(Figure(label, in_words(name, value), between(name, value) + where))
    found.append(Figure("Memory of a GPU", in_words("memory_bytes", best["memory_bytes"]), room))
    if mfu is not None:
        found.append(Figure("Model FLOPs utilization", in_words("mfu", mfu), "of the peak rate"))
    if (record := sure.record) is not None:
        near = (
            f"mean error{record.bias_in_words()} on {record.num_steps:,} published steps of "
            f"{record.found}"
        )
        found.append(Figure("Accuracy", f"{100 * record.mean_error:.1f} %", near))
    return found


def _over_days(answer: PlanAnswer, slow: float | None) -> str:
    """Return a remark if the slow end of the time is over the limit, else nothing."""
    days = answer.run.request.limits.days
    if days is None or slow is None or answer.best["training_seconds"] * slow <= days * 86_400:
        return ""
    return f"; the slow end is over the limit of {days:g} days"


def _and_costs(answer: PlanAnswer) -> str:
    """Return the dollars of the run as the end of a sentence; nothing without a price."""
    cost = answer.own_count["cost_usd"]
    return "" if cost is None else f" and costs {in_words('cost_usd', cost)}"


def _price_in_words(answer: PlanAnswer) -> str:
    """Return the price behind the dollars of the answer; nothing if there are no dollars."""
    cost = answer.own_count["cost_usd"]
    line = next((line for line in answer.costs if line["cost_usd"] == cost), None)
    if line is None:
        return ""
    price = in_words("usd_per_gpu_hour", line["usd_per_gpu_hour"])
    return f", at {price}, {str(line['basis']).replace('_', ' ')}"


_WORDS = (
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
    found = []
    for name, words in _WORDS:
        value = layout.get(name)
        is_count = name in ("microbatch_size", "zero_stage") or value is True
        if not value or (value == 1 and not is_count):
            continue
        short = "seq" if value is True else f"{COLUMNS[name].short}{value}"
        found.append(f"{short}: {words.format(value)}")
    return "; ".join(found)


def _probability(share: float) -> str:
    """Return a probability in words: no estimate is certain."""
    if share > 0.99:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def _grids(answer: PlanAnswer) -> str:
    """Return the grid of the CO2e; of several grids also the dirtiest."""
    known = [line for line in answer.energies if line["kg_co2e"] is not None]
    if not known:
        return ""
    words = f", {known[0]['grid']}"
    most = max(known, key=lambda line: float(line["kg_co2e"]))
    if most["kg_co2e"] > known[0]["kg_co2e"]:
        words += f"; {most['grid']}: {in_words('kg_co2e', most['kg_co2e'])}"
    return words


def _relative(answer: PlanAnswer) -> tuple[float, float] | None:
    """Return the ends of the interval as multiples of the step."""
    likely = answer.uncertainty.likely
    step = answer.best["step_seconds"]
    return None if likely is None else (likely[0] / step, likely[1] / step)


def parts_of(answer: PlanAnswer) -> list[tuple[str, float]]:
    """Return the parts of the best layout's step in words, with their seconds, longest first.

    Parts without time are left out: one GPU exchanges nothing.
    """
    step = answer.best["step_seconds"]
    parts = [
        (PARTS_IN_WORDS.get(name, name), float(answer.best[name]))
        for name in STEP_PARTS
        if answer.best.get(name) is not None and unless_rounding(answer.best[name], step) > 0
    ]
    return sorted(parts, key=lambda part: -part[1])


def _limits(answer: PlanAnswer) -> list[str]:
    step = answer.best["step_seconds"]
    shares = [f"{name} {_share(seconds / step)}" for name, seconds in parts_of(answer)]
    longest = parts_of(answer)[0][0]
    lines = [
        f"{longest[0].upper()}{longest[1:]} takes most of a step. Of {with_digits(step, 4)} s: "
        f"{', '.join(shares)}."
    ]
    second, other, safer = answer.runner_up, answer.other_kind, answer.safer
    if second is not None:
        lines.append(f"The runner-up, {answer.in_words(second)}, is {_longer(answer, second)}.")
    if other is not None and other != second:
        words = answer.in_words(other)
        lines.append(f"The best layout of another kind, {words}, is {_longer(answer, other)}.")
    if safer is not None:
        time = in_words("training_seconds", safer["training_seconds"])
        words = f"{answer.in_words(safer)} leaves more free and takes {time}."
        lines.append(f"The memory is nearly full. {words}")
    return lines


def _longer(answer: PlanAnswer, layout: Line) -> str:
    slower = 100 * (layout["step_seconds"] / answer.best["step_seconds"] - 1)
    return "as fast" if slower < 0.005 else f"{with_digits(slower, 2)} % slower"


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"


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


def _layouts(answer: PlanAnswer) -> Table:
    near = _near(answer)
    rows = [
        {"rank": place, **{name: line[name] for name in _LAYOUT_COLUMNS if name in line}}
        for place, line in enumerate(near, start=1)
    ]
    found = _table(rows)
    assert found is not None
    for row, sort, line in zip(found.rows, found.sort, near, strict=True):
        row.insert(1, answer.in_words(line))
        sort.insert(1, None)
    return Table(["#", "layout", *found.headings[1:]], found.rows, found.sort)


def _trust(answer: PlanAnswer) -> list[str]:
    sure = answer.uncertainty
    lines = [f"{line[0].upper()}{line[1:]}." for line in sure.unlike]
    time = answer.best["training_seconds"]
    if relative := _relative(answer):
        low, high = (time * end for end in relative)
        lines.append(
            f"The run takes {run_times_in_words(low, high, time)} nine times in ten (errors of"
            " different constants taken as independent)."
        )
        lines += _exceeded_limits(answer, relative[1])
    else:
        lines.append("The estimate has no interval: its constants have no ranges here.")
    if sure.extreme is not None:
        step = answer.best["step_seconds"]
        low, high = (time * end / step for end in sure.extreme)
        lines.append(
            "With all constants at their fast ends, and with all at their slow ends, the run takes"
            f" {run_times_in_words(low, high, time)}."
        )
    errors = [line.get("time_mean_absolute_relative_error") for line in sure.errors]
    if known := [float(error) for error in errors if error is not None]:
        lines.append(
            f"On published steps the time is off by {100 * min(known):.1f} % to"
            f" {100 * max(known):.1f} % on average, by group."
        )
    lines += _published_hours(answer)
    if sure.note:
        lines.append(f"{sure.note[0].upper()}{sure.note[1:]}.")
    if words := price_vendors(answer.costs):
        lines.append(f"{words[0].upper()}{words[1:]}.")
    return lines


def _published_hours(answer: PlanAnswer) -> list[str]:
    """Return the plan's share of the GPU-hours of published runs of its model."""
    known = [line.get("planned_share") for line in answer.published_runs]
    shares = sorted(float(share) for share in known if share is not None)
    if not shares:
        return []
    low, high = (f"{100 * share:.0f} %" for share in (shares[0], shares[-1]))
    return [
        f"The plan takes {low if low == high else f'{low} to {high}'} of the GPU-hours that "
        "published runs of this model took for as many tokens. Those may count failures and "
        f"restarts; the plan has a goodput of {answer.run.goodput:g}."
    ]


def _exceeded_limits(answer: PlanAnswer, slow: float) -> list[str]:
    """Return the limits that the run exceeds if its steps take `slow` times as long."""
    limits, cost = answer.run.request.limits, answer.own_count["cost_usd"]
    seconds = answer.best["training_seconds"] * slow
    lines = []
    if limits.days is not None and seconds > limits.days * 86_400:
        lines.append(f"The slow end of this interval is over the limit of {limits.days:g} days.")
    if limits.budget_usd is not None and cost is not None and cost * slow > limits.budget_usd:
        dollars = in_words("cost_usd", limits.budget_usd)
        lines.append(f"The slow end of this interval costs more than the budget of {dollars}.")
    return lines


def _assumptions(answer: PlanAnswer) -> list[tuple[str, str]]:
    run, values = answer.run, answer.run.problem
    found: list[tuple[str, str]] = [("model", str(run.model))]
    names = ("accelerator", "nvlink_size", "seq_len", "framework")
    found += [(_heading(name), in_words(name, values[name])) for name in names if values.get(name)]
    found += [
        ("tokens", in_words("dataset_tokens", run.request.tokens)),
        ("batch", f"{run.batch:,} sequences" + (" (assumed)" if run.is_default_batch else "")),
        ("goodput", f"{run.goodput:g}"),
        ("estimator", f"{run.estimator.name}, {run.variant}"),
    ]
    limits = run.request.limits
    if limits.days is not None:
        found.append(("limit of the time", f"{limits.days:g} days"))
    if limits.budget_usd is not None:
        found.append(("budget", in_words("cost_usd", limits.budget_usd)))
    if limits.max_mw is not None:
        found.append(("limit of the power", f"{limits.max_mw:g} MW"))
    given = {**run.request.held, **run.request.inputs}
    found += [(_heading(name), in_words(name, value)) for name, value in given.items()]
    assumed = {_heading(name): in_words(name, value) for name, value in run.assumed.items()}
    known = dict(found)
    return [*known.items(), *((name, f"{value} (assumed)") for name, value in assumed.items())]


def _heading(name: str) -> str:
    return COLUMNS[name].heading if name in COLUMNS else name.replace("_", " ")


def _constants(answer: PlanAnswer) -> Table | None:
    explanation = answer.uncertainty.explanation
    if explanation is None:
        return None
    rows = [
        {
            "constant": each.name,
            "value": each.value,
            "lowest": each.lowest,
            "highest": each.highest,
            "source": each.source,
        }
        for each in explanation.sensitivities
        if each.lowest is not None and each.lowest != each.highest
    ]
    return _table(rows)


_NOT_SHOWN = (
    *("mean_absolute_relative_error", "max_absolute_relative_error", "bias"),
    *("is_stored", "num_published"),
)
"""Columns of the errors that the page leaves out, as `plan` does: those of the FLOP rate, which
have the sign and the size of another figure than those of the time next to them."""


def _table(rows: Sequence[Line], drop: Collection[str] = ()) -> Table | None:
    """Return a table in the units and headings of people; None without rows.

    A row may lack columns: a GPU count without a layout that fits has only its note.
    """
    if not rows:
        return None
    names = max((list(row) for row in rows), key=len)
    values = [[row.get(name) for name in names] for row in rows]
    places = informative_columns(names, values, drop)
    names = [names[place] for place in places]
    values = [[row[place] for place in places] for row in values]
    headings, shown = for_people(names, values)
    texts = [["-" if each is None else str(each) for each in row] for row in shown]
    return Table(headings, texts, [[_sortable(each) for each in row] for row in values])


def _sortable(value: Any) -> float | str | None:
    plain = json_value(value)
    if isinstance(plain, bool) or plain is None:
        return None
    return plain if isinstance(plain, int | float) else None
