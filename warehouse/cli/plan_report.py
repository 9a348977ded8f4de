"""A plan as people read it, and as one JSON object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from warehouse.cli.common import count, put, put_for_people
from warehouse.cli.plan_document import energies
from warehouse.cli.plan_question import question_lines
from warehouse.plan.answer import NEAR_CAPACITY
from warehouse.plan.queries import SHARES
from warehouse.show.formats import Format
from warehouse.show.units import layout_in_words, unless_rounding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.answer import Answer

_LAYOUT_DROPPED = frozenset({*SHARES, "hbm_bytes", "num_microbatches", "tokens_per_second"})
_NOT_SHOWN = frozenset(
    {"price_source", "power_source", "pue", "usd_per_kwh", "power_basis", "option"}
)


def put_answer(answer: Answer, top: int, grid: str | None) -> None:
    """Print the report to stdout."""
    best = answer.layouts[0]
    for line in question_lines(answer.run):
        _line(line)
    _heading(f"The best layouts on {answer.num_gpus:,} GPUs")
    rows = [{"rank": place, **line} for place, line in enumerate(answer.layouts[:top], start=1)]
    _table(rows, _LAYOUT_DROPPED | _same(rows, ("strategy", "attention")))
    days = best["training_seconds"] / 86400
    _line(
        f"{days:,.1f} days, {best['gpu_hours']:,.0f} GPU-hours; memory {_gb(best['memory_bytes'])} "
        f"of {_gb(best['hbm_bytes'])}, {_gb(best['headroom_bytes'])} are left"
    )
    if answer.is_near_capacity:
        _line(roomier_line(answer))
    _heading("Dollars of the best")
    _table(_with_options(answer.costs, "price_note"), _NOT_SHOWN)
    if dearer := dearer_commitments(answer.costs):
        _line(
            f"{' and '.join(dearer)} above on_demand: lines with different vendors do not compare"
        )
    _heading("Energy and carbon of the best")
    _table(_with_options(energies(answer, grid), "power_note"), _NOT_SHOWN)
    _put_limits(answer)
    _put_counts(answer)
    _put_sureness(answer)


def roomier_line(answer: Answer) -> str:
    """Return what it costs in time to leave `NEAR_CAPACITY` of the memory."""
    best, roomy = answer.layouts[0], answer.roomier
    room = f"with {_gb(NEAR_CAPACITY * best['hbm_bytes'])} to spare"
    if roomy is None:
        return f"{room}: no layout"
    slower = 100 * (roomy["step_seconds"] / best["step_seconds"] - 1)
    return (
        f"{room}: {roomy['training_seconds'] / 86400:,.1f} days, {slower:+.1f} %, "
        f"{_words(answer, roomy)}"
    )


def dearer_commitments(costs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the committed prices above that on demand: they are those of other vendors."""
    rates = {line["basis"]: line["usd_per_gpu_hour"] for line in costs}
    on_demand = rates.get("on_demand")
    if on_demand is None:
        return []
    return [basis for basis in ("three_year", "one_year") if (rates.get(basis) or 0) > on_demand]


def _put_limits(answer: Answer) -> None:
    """Print the parts of the step of the best layout and of the best of another kind."""
    best, other = answer.layouts[0], answer.other
    step = best["step_seconds"]
    _heading("What limits it: parts of the step")
    header = ["part", "s", "%"] + (["other kind s", "%", "more s"] if other else [])
    rows = []
    for name in (*SHARES, "step_seconds"):
        if best[name] is None:
            continue
        own = unless_rounding(best[name], step)
        row = [name.removesuffix("_seconds"), _short(own), _share(best, name)]
        if other:
            difference = unless_rounding(other[name] - best[name], step)
            told = unless_rounding(other[name], step)
            row += [_short(told), _share(other, name), f"{difference:+.3g}"]
        rows.append(row)
    put(header, [_figures(rows)])
    _line(binding(best))
    second = answer.runner_up
    if second and second != other:
        _line(f"rank 2 takes {_longer(second, best)} and is of the same kind as the best")
    if other:
        _line(
            f"the best of another kind (degrees, recomputation or ZeRO stage) takes "
            f"{_longer(other, best)}: {_words(answer, other)}"
        )


def _words(answer: Answer, layout: Mapping[str, Any]) -> str:
    """Return a layout in words; its strategy where the estimator has a choice of it."""
    has_strategy = "strategy" in answer.run.estimator.choice_columns
    told = {n: v for n, v in layout.items() if n != "strategy" or has_strategy}
    return layout_in_words(told)


def _longer(layout: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    percent = f"{100 * (layout['step_seconds'] / best['step_seconds'] - 1):.2f}"
    return "as long" if percent == "0.00" else f"{percent} % longer"


def binding(layout: Mapping[str, Any]) -> str:
    """Return what a layout's step mostly consists of, and what of it is not arithmetic."""
    parts = {name: layout[name] for name in SHARES if layout[name] is not None}
    first = max(parts, key=lambda name: parts[name])
    rest = {name: value for name, value in parts.items() if name != first and value > 0}
    told = f"bound by {first.removesuffix('_seconds')}: {_share(layout, first)} % of the step"
    if rest:
        second = max(rest, key=lambda name: rest[name])
        told += f"; next {second.removesuffix('_seconds')}: {_share(layout, second)} %"
    return told


def _put_counts(answer: Answer) -> None:
    _heading("Other numbers of GPUs")
    lines = answer.counts if answer.run.asked.limits else _neighbours(answer)
    names = (
        *("num_gpus", "training_seconds", "gpu_hours", "cost_usd", "energy_kwh"),
        *("power_watts", "mfu", "memory_bytes"),
    )
    rows = []
    for line in lines:
        mark = "best" if line["num_gpus"] == answer.num_gpus else None
        if mark is None and answer.run.asked.limits and line["num_gpus"] in answer.kept:
            mark = "within the limits"
        note = line["note"] or mark or ""
        rows.append({**{name: line.get(name) for name in names}, "note": note})
    _table(rows, frozenset())
    smaller = [
        one for one in answer.counts if one["num_gpus"] < answer.num_gpus and not one["note"]
    ]
    if smaller:
        own = next(line for line in answer.counts if line["num_gpus"] == answer.num_gpus)
        less = 1 - own["training_seconds"] / smaller[-1]["training_seconds"]
        more = own["gpu_hours"] / smaller[-1]["gpu_hours"] - 1
        _line(
            f"against {smaller[-1]['num_gpus']:,} GPUs: {-100 * less:+.1f} % time, "
            f"{100 * more:+.1f} % GPU-hours"
        )


def _with_options(lines: Sequence[Mapping[str, Any]], note: str) -> list[dict[str, Any]]:
    """Return the lines with the option that gives what is missing behind the note."""
    return [
        {**line, note: f"{line[note]}: {line['option']}" if line["option"] else line[note]}
        for line in lines
    ]


def _neighbours(answer: Answer) -> list[Mapping[str, Any]]:
    """Return the line of the count taken, with that before and that behind it."""
    place = next(at for at, line in enumerate(answer.counts) if line["num_gpus"] == answer.num_gpus)
    return list(answer.counts[max(place - 1, 0) : place + 2])


def _put_sureness(answer: Answer) -> None:
    sure = answer.sureness
    _heading("How sure that is")
    if sure.likely and sure.extreme:
        best = answer.layouts[0]
        factor = best["training_seconds"] / best["step_seconds"] / 86400
        for (low, high), why in (
            (sure.likely, "the constants' errors taken as independent"),
            (sure.extreme, "all constants at their worst together"),
        ):
            _line(f"{low * factor:,.1f} to {high * factor:,.1f} days: {why}")
        for line in warnings(answer):
            _line(line)
        _line(f"why: {sure.explain_command}")
    for line in memory_lines(answer):
        _line(line)
    for line in sure.unlike:
        _line(line)
    if sure.errors:
        _line("error of the rate on published steps, + too fast (the days come out too short):")
        rows = [
            {
                **{n: e[n] for n in ("reference", "published_group", "num_rows", "num_published")},
                "mean_absolute_relative_error": e["mean_absolute_relative_error"],
                "max_absolute_relative_error": e["max_absolute_relative_error"],
                "bias": e["bias"],
                "figures": "stored" if e["is_stored"] else "evaluated now",
            }
            for e in sure.errors
        ]
        _table(rows, frozenset())
    if sure.note:
        _line(sure.note)


def warnings(answer: Answer) -> list[str]:
    """Return the limits that the slow end of the likely interval exceeds.

    Power is that of the GPUs, however long they run: no interval of the time moves it.
    """
    limits, likely = answer.run.asked.limits, answer.sureness.likely
    if likely is None:
        return []
    best = answer.layouts[0]
    slower = likely[1] / best["step_seconds"]
    told = []
    if limits.days is not None and slower * best["training_seconds"] > limits.days * 86400:
        told.append(f"the slow end of the first is beyond --days {limits.days:g}")
    own = next(line for line in answer.counts if line["num_gpus"] == answer.num_gpus)
    if limits.budget_usd is not None and slower * own["cost_usd"] > limits.budget_usd:
        told.append(
            f"the slow end of the first costs {slower * own['cost_usd']:,.0f} USD, beyond "
            f"--budget-usd {limits.budget_usd:,.0f}"
        )
    return told


def memory_lines(answer: Answer) -> list[str]:
    """Return how sure the memory is: the errors on one's own runs, or that there is no figure."""
    if not answer.sureness.memory:
        return [
            "memory: no published figure validates it; `warehouse measure` compares that of your "
            "own runs"
        ]
    return [
        f"memory, + too large, on {count(line['num_rows'], 'run')} of {line['reference']}: "
        f"mean |error| {100 * line['memory_mean_absolute_relative_error']:.1f} %, "
        f"max {100 * line['memory_max_absolute_relative_error']:.1f} %, "
        f"bias {100 * line['memory_bias']:+.1f} %"
        for line in answer.sureness.memory
    ]


def _same(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if len({row[name] for row in rows}) == 1)


def _table(rows: Sequence[Mapping[str, Any]], drop: frozenset[str]) -> None:
    if not rows:
        _line("-")
        return
    columns = tuple(name for name in rows[0] if name not in drop)
    put_for_people(columns, [[row[name] for name in columns] for row in rows], Format.TABLE)


def _figures(rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    from warehouse.show.formats import Figure

    return [[row[0], *map(Figure, row[1:])] for row in rows]


def _heading(text: str) -> None:
    sys.stdout.write(f"\n{text}\n\n")


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _gb(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:,.1f} GB"


def _short(value: float) -> str:
    return f"{value:.4g}"


def _share(layout: Mapping[str, Any], name: str) -> str:
    return f"{100 * layout[name] / layout['step_seconds']:.1f}"
