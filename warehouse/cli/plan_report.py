"""A plan as people read it, and as one JSON object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from warehouse.cli.common import put, put_for_people
from warehouse.formats import Format, json_value
from warehouse.plan_queries import SHARES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan_answer import Answer

_LAYOUT_DROPPED = frozenset({*SHARES, "hbm_bytes", "num_microbatches", "tokens_per_second"})
_NOT_SHOWN = frozenset(
    {"price_source", "power_source", "pue", "usd_per_kwh", "power_basis", "option"}
)


def put_answer(answer: Answer, top: int, grid: str | None) -> None:
    """Print the report to stdout."""
    best = answer.layouts[0]
    _heading(f"The best layouts on {answer.num_gpus:,} GPUs")
    rows = [{"rank": place, **line} for place, line in enumerate(answer.layouts[:top], start=1)]
    _table(rows, _LAYOUT_DROPPED | _same(rows, ("strategy", "attention")))
    days = best["training_seconds"] / 86400
    _line(
        f"{days:,.1f} days, {best['gpu_hours']:,.0f} GPU-hours; memory {_gb(best['memory_bytes'])} "
        f"of {_gb(best['hbm_bytes'])}, {_gb(best['headroom_bytes'])} are left"
    )
    _heading("Dollars of the best")
    _table(_with_options(answer.costs, "price_note"), _NOT_SHOWN)
    _heading("Energy and carbon of the best")
    _table(_with_options(_energies(answer, grid), "power_note"), _NOT_SHOWN)
    _put_limits(answer)
    _put_counts(answer)
    _put_sureness(answer)


def _put_limits(answer: Answer) -> None:
    """Print the parts of the step of the best layout and of the runner-up side by side."""
    best, second = answer.layouts[0], answer.runner_up
    _heading("What limits it: parts of the step")
    header = ["part", "s", "%"] + (["runner-up s", "%", "more s"] if second else [])
    rows = []
    for name in (*SHARES, "step_seconds"):
        if best[name] is None:
            continue
        row = [name.removesuffix("_seconds"), _short(best[name]), _share(best, name)]
        if second:
            difference = second[name] - best[name]
            row += [_short(second[name]), _share(second, name), f"{difference:+.3g}"]
        rows.append(row)
    put(header, [_figures(rows)])
    _line(binding(best))
    if second:
        slower = second["step_seconds"] / best["step_seconds"] - 1
        _line(f"the runner-up takes {100 * slower:.2f} % longer")


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
    sure, best = answer.sureness, answer.layouts[0]
    _heading("How sure that is")
    if sure.likely and sure.extreme:
        factor = best["training_seconds"] / best["step_seconds"] / 86400
        for (low, high), why in (
            (sure.likely, "the constants' errors taken as independent"),
            (sure.extreme, "all constants at their worst together"),
        ):
            _line(f"{low * factor:,.1f} to {high * factor:,.1f} days: {why}")
        limit = answer.run.asked.limits.days
        if limit is not None and sure.likely[1] * factor > limit:
            _line(f"the slow end of the first is beyond --days {limit:g}")
        _line(f"why: {sure.explain_command}")
    if sure.errors:
        _line("error of the step's time on published steps, + too slow:")
        rows = [
            {
                **{n: e[n] for n in ("reference", "published_group", "num_rows", "num_published")},
                "mean_absolute_relative_error": e["time_mean_absolute_relative_error"],
                "max_absolute_relative_error": e["time_max_absolute_relative_error"],
                "bias": e["time_bias"],
                "figures": "stored" if e["is_stored"] else "evaluated now",
            }
            for e in sure.errors
        ]
        _table(rows, _same(rows, ("published_group",)))
    if sure.note:
        _line(sure.note)


def document(answer: Answer, top: int, grid: str | None) -> dict[str, Any]:
    """Return the answer in base units."""
    run, best = answer.run, answer.layouts[0]
    asked, sure = run.asked, answer.sureness
    place = [line["num_gpus"] for line in answer.counts].index(answer.num_gpus)
    energy = answer.energies[0] if answer.energies else {}
    terms = next(line for line in answer.counts if line["num_gpus"] == answer.num_gpus)
    factor = best["training_seconds"] / best["step_seconds"]
    plain: dict[str, Any] = _plain(
        {
            "question": {
                "estimator": run.estimator.name,
                "variant": "corrected" if run.mends else "published",
                "model": run.facts.problem["model"],
                "accelerator": run.facts.problem["accelerator"],
                "dataset_tokens": asked.tokens,
                "global_batch_size": run.batch,
                "is_default_batch": run.is_default_batch,
                "seq_len": run.facts.problem["seq_len"],
                "framework": run.facts.problem.get("framework"),
                "goodput": asked.goodput or 1.0,
                **vars(asked.limits),
            },
            "swept": {
                "cells": sum(one.missing_cells for one in answer.sweeps),
                "rows": sum(one.missing_rows for one in answer.sweeps),
            },
            "num_gpus": answer.num_gpus,
            "problem_id": answer.problem_id,
            "training_seconds": best["training_seconds"],
            "gpu_hours": best["gpu_hours"],
            "cost_usd": terms["cost_usd"],
            "energy_kwh": energy.get("energy_kwh"),
            "power_watts": energy.get("power_watts"),
            "headroom_bytes": best["headroom_bytes"],
            "limited_by": max(
                (name for name in SHARES if best[name] is not None), key=lambda name: best[name]
            ),
            "layouts": list(answer.layouts[:top]),
            "runner_up": answer.runner_up,
            "costs": list(answer.costs),
            "energies": _energies(answer, grid),
            "counts": list(answer.counts),
            "next_smaller": answer.counts[place - 1] if place else None,
            "next_larger": answer.counts[place + 1] if place + 1 < len(answer.counts) else None,
            "likely_training_seconds": sure.likely and [factor * end for end in sure.likely],
            "extreme_training_seconds": sure.extreme and [factor * end for end in sure.extreme],
            "errors": list(sure.errors),
            "errors_note": sure.note or None,
            "queries": dict(answer.queries),
        }
    )
    return plain


def _energies(answer: Answer, grid: str | None) -> list[Mapping[str, Any]]:
    """Return the energies; carbon that was given by the name of a grid has that name."""
    return [{**line, "grid": grid or line["grid"]} for line in answer.energies]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return json_value(value)


def _same(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if len({row[name] for row in rows}) == 1)


def _table(rows: Sequence[Mapping[str, Any]], drop: frozenset[str]) -> None:
    if not rows:
        _line("-")
        return
    columns = tuple(name for name in rows[0] if name not in drop)
    put_for_people(columns, [[row[name] for name in columns] for row in rows], Format.TABLE)


def _figures(rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    from warehouse.formats import Figure

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
