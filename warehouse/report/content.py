"""The texts and tables of a report: everything on the page but its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from estimators.columns import COLUMNS
from warehouse.ask.terms import price_vendors
from warehouse.plan import words
from warehouse.plan.page import expert_rows
from warehouse.show.page import table_of
from warehouse.show.units import (
    STEP_PARTS,
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
    costs = "" if cost is None else f" and costs {in_words('cost_usd', cost)}"
    of_counts = [*words.count_lines(answer), *filter(None, [words.batch_line(answer)])]
    return {
        "title": f"{run.model}: {tokens} on {answer.num_gpus:,} {run.problem['accelerator']}",
        "summary": f"The best layout is {answer.in_words(best)}. The run takes {time}{costs}.",
        "key": layout_key(best),
        "figures": _headlines(answer),
        "limits": _limits(answer),
        "near": _near_in_words(answer),
        "layouts": _layouts(answer),
        "experts": _table(expert_rows(answer)),
        "counts": _table(words.count_rows(answer)),
        "count_lines": [_sentence(line) for line in of_counts],
        "costs": _table(answer.costs, drop=("option", "price_note")),
        "energies": _table(answer.energies, drop=("option", "power_note", "power_basis")),
        "errors": _table(sure.errors, drop=_NOT_SHOWN),
        "memory_errors": _table(sure.memory),
        "published_runs": _table(answer.published_runs),
        "trust": _trust(answer),
        "assumptions": _assumptions(answer),
        "constants": _constants(answer),
        "queries": list(answer.queries.items()),
    }


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _headlines(answer: PlanAnswer) -> list[Headline]:
    """Return the figures of the answer; the interval of the step is that of time and cost."""
    best, sure, second = answer.best, answer.uncertainty, answer.runner_up
    low, high = _relative(answer) or (None, None)

    def between(name: str, value: float | None) -> str:
        if value is None or low is None or high is None:
            return "no interval"
        if name == "training_seconds":
            return f"{run_times_in_words(value * low, value * high, value)} in nine of ten runs"
        return interval_in_words(name, value * low, value * high, value)

    cost, seconds = answer.own_count["cost_usd"], best["training_seconds"]
    energy: Line = answer.energies[0] if answer.energies else {}
    memory = f"of {in_words('hbm_bytes', best['hbm_bytes'])}"
    if sure.fit_probability is not None:
        chance = words.probability_in_words(sure.fit_probability)
        memory += f"; fits with a probability of {chance}"
    runner_up = "no other layout fits"
    if second is not None:
        runner_up = f"the runner-up takes {words.longer_in_words(second, best)}"
    time = between("training_seconds", seconds)
    time += "".join(f"; the slow end {limit}" for limit in words.exceeded_limits(answer)[:1])
    headlines = [
        Headline("Layout", answer.in_words(best), runner_up),
        Headline("Time", in_words("training_seconds", seconds), time),
        Headline("Cost", "no price", "none is published: give one with --price")
        if cost is None
        else Headline(
            "Cost", in_words("cost_usd", cost), between("cost_usd", cost) + _price_in_words(answer)
        ),
    ]
    for label, name, grids in (
        ("Energy", "energy_kwh", ""),
        ("CO2e", "kg_co2e", _grids_in_words(answer)),
    ):
        value = energy.get(name)
        headlines.append(Headline(label, in_words(name, value), between(name, value) + grids))
    memory_bytes = in_words("memory_bytes", best["memory_bytes"])
    headlines.append(Headline("Memory of a GPU", memory_bytes, memory))
    if (mfu := best.get("mfu")) is not None:
        utilization = in_words("mfu", mfu)
        headlines.append(Headline("Model FLOPs utilization", utilization, "of the peak rate"))
    if (record := sure.record) is not None:
        near = (
            f"mean error{record.bias_in_words()} on {record.num_steps:,} published steps of "
            f"{record.found}"
        )
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


def _grids_in_words(answer: PlanAnswer) -> str:
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

    Parts without time are left out: one GPU has no collectives.
    """
    step = answer.best["step_seconds"]
    parts = [
        (words, float(answer.best[name]))
        for name, words in STEP_PARTS.items()
        if answer.best.get(name) is not None and unless_rounding(answer.best[name], step) > 0
    ]
    return sorted(parts, key=lambda part: -part[1])


def _limits(answer: PlanAnswer) -> list[str]:
    """Return sentences on the parts that limit the run, the longest first, and other layouts."""
    best, parts = answer.best, parts_of(answer)
    step, (longest, seconds) = best["step_seconds"], parts[0]
    lines = [
        f"The longest part is {longest}: {_share(seconds / step)} of a step. Of "
        f"{with_digits(step, 4)} s: "
        f"{', '.join(f'{name} {_share(seconds / step)}' for name, seconds in parts)}."
    ]
    second, other, roomier = answer.runner_up, answer.other_kind, answer.roomier_layout
    if second is not None:
        longer = words.longer_in_words(second, best)
        lines.append(f"The runner-up, {answer.in_words(second)}, takes {longer}.")
    if other is not None and other != second:
        longer = words.longer_in_words(other, best)
        layout = answer.in_words(other)
        lines.append(f"The best layout of another kind, {layout}, takes {longer}.")
    if roomier is not None:
        time = in_words("training_seconds", roomier["training_seconds"])
        layout = answer.in_words(roomier)
        lines.append(f"The memory is nearly full. {layout} leaves more free and takes {time}.")
    return lines


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
    lines = [_sentence(line) for line in sure.unlike]
    time = answer.best["training_seconds"]
    if relative := _relative(answer):
        low, high = (time * end for end in relative)
        lines.append(
            f"The run takes {run_times_in_words(low, high, time)} nine times in ten (errors of"
            " different constants taken as independent)."
        )
        lines += [
            f"The slow end of this interval {limit}." for limit in words.exceeded_limits(answer)
        ]
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
        lines.append(_sentence(sure.note))
    if vendors := price_vendors(answer.costs):
        lines.append(_sentence(vendors))
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


_NOT_SHOWN = (
    *("mean_absolute_relative_error", "max_absolute_relative_error", "bias"),
    *("is_stored", "num_published"),
)
"""Columns of the errors that the page leaves out, as `plan` does: those of the FLOP rate, which
have the sign and the size of another figure than those of the time next to them."""


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
