"""The page of a plan: sections for people, the best layouts as rows, all of it as one object."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.ask.terms import grids_in_words, price_vendors
from warehouse.calibrate import OWN
from warehouse.plan import words
from warehouse.plan.published_runs import COLUMNS as PUBLISHED
from warehouse.plan.published_runs import published_lines
from warehouse.plan.queries import EXPERT_COLUMNS
from warehouse.plan.question_words import question_lines
from warehouse.show.page import Page, Section, table_of
from warehouse.show.units import STEP_PARTS, run_times_in_words, unless_rounding, with_digits
from warehouse.show.values import Figure, json_value

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun

Line = Mapping[str, Any]

_LAYOUT_DROPPED = {
    *(*STEP_PARTS, "hbm_bytes", "num_microbatches", "tokens_per_second", "is_likely_to_fit"),
}
_COST_DROPPED = {
    *("price_source", "quote_vendors", "power_source", "pue", "usd_per_kwh", "power_basis"),
    "option",
}
LAYOUTS = (
    *("rank", *LAYOUT_COLUMNS, "step_seconds", "low_step_seconds", "high_step_seconds"),
    *("training_seconds", "gpu_hours", "mfu", "tokens_per_second", "memory_bytes", "hbm_bytes"),
    *("headroom_bytes", "fit_probability", "is_likely_to_fit", *STEP_PARTS),
)
"""Columns of the best layouts, which CSV has."""

_ERROR_COLUMNS = (
    *("time_mean_absolute_relative_error", "time_max_absolute_relative_error", "time_bias"),
    *("num_rows", "num_published"),
)
TABLES = (
    *(*LAYOUTS, "more_time_fraction", "layout"),
    *("basis", "year", "num_quotes", "quote_vendors", "usd_per_gpu_hour", "cost_usd"),
    *("price_source", "price_note", "option", "power_basis", "watts_per_gpu", "pue", "power_watts"),
    *("energy_kwh", "usd_per_kwh", "electricity_usd", "grid", "kg_co2e_per_kwh", "kg_co2e"),
    *("power_source", "power_note", "part", "s", "%", "other kind s", "more s"),
    *("slow_training_seconds", "note", *PUBLISHED, "published_group", *_ERROR_COLUMNS, "figures"),
)
"""Columns of all tables."""

_NINE_IN_TEN = "nine times in ten (errors of different constants taken as independent)"


def plan_page(answer: PlanAnswer, top: int) -> Page:
    """Return the page of a plan with `top` layouts."""
    layouts = [{"rank": rank, **line} for rank, line in enumerate(answer.layouts[:top], start=1)]
    published = [{name: line[name] for name in PUBLISHED} for line in answer.published_runs]
    of_counts = words.count_lines(answer)
    sections = [
        Section(lines=question_lines(answer.run)),
        Section(
            f"The best layout on {answer.num_gpus:,} GPUs",
            entries=[*words.summary_lines(answer), *words.accuracy_lines(answer)],
        ),
        _section(
            f"The best layouts on {answer.num_gpus:,} GPUs",
            layouts,
            _LAYOUT_DROPPED | _needless(layouts),
            below=[words.layout_line(answer)],
        ),
        *_experts(answer),
        _section(
            "Cost of the best layout",
            _with_options(answer.costs, "price_note"),
            _COST_DROPPED,
            below=[
                *filter(None, [price_vendors(answer.costs)]),
                "published prices of rented hours include electricity; owned adds it",
            ],
        ),
        _section(
            "Energy and carbon of the best layout",
            _with_options(answer.energies, "power_note"),
            _COST_DROPPED,
            below=_grid_lines(answer),
        ),
        parts_section(answer),
        _section("Other GPU counts", words.count_rows(answer), below=of_counts),
    ]
    if published:
        below = list(published_lines(answer))
        sections.append(_section("Published runs of this model", published, below=below))
    sections += _uncertainty(answer)
    return Page(document(answer, top), Section("", *table_of(layouts)), sections)


def _section(
    heading: str,
    records: Sequence[Line],
    drop: Collection[str] = (),
    below: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> Section:
    columns, rows = table_of(records)
    lines = lines if records else [*lines, "-"]
    return Section(heading, columns, rows, drop, lines=lines, below=below)


def _experts(answer: PlanAnswer) -> list[Section]:
    rows = expert_rows(answer)
    heading = "The best layout of each degree of expert parallelism (EP)"
    return [_section(heading, rows)] if rows else []


def expert_rows(answer: PlanAnswer) -> list[dict[str, Any]]:
    """Return step, memory and layout of each degree; `more` is the step over that of the best."""
    best = answer.best["step_seconds"]
    return [
        {
            "expert_parallel": line["expert_parallel"],
            "step_seconds": line["step_seconds"],
            "more_time_fraction": line["step_seconds"] / best - 1,
            "memory_bytes": line["memory_bytes"],
            "layout": answer.in_words(line),
        }
        for line in answer.expert_degrees
    ]


def _needless(layouts: Sequence[Line]) -> set[str]:
    """Return the columns that say nothing: choices that the estimator lacks, and single values."""
    values = {name: {line[name] for line in layouts} for name in layouts[0]}
    names = {name for name, present in values.items() if present == {None}}
    return names | {name for name in ("strategy", "attention") if len(values[name]) == 1}


def _with_options(lines: Sequence[Line], note: str) -> list[dict[str, Any]]:
    """Return the lines, each note followed by the option that gives the missing figure."""
    return [
        {**line, note: f"{line[note]}: {line['option']}" if line["option"] else line[note]}
        for line in lines
    ]


def _grid_lines(answer: PlanAnswer) -> list[str]:
    table = answer.run.catalog.tables.get("grid_carbon", {})
    rows = [row for line in answer.energies if (row := table.get(str(line["grid"])))]
    return grids_in_words((row["grid"], row["kind"], row["year"]) for row in rows)


def parts_section(answer: PlanAnswer) -> Section:
    """Return the parts of the best layout's step, next to those of the best of another kind."""
    best, other, second = answer.best, answer.other_kind, answer.runner_up
    step = best["step_seconds"]
    columns = ["part", "s", "%"] + (["other kind s", "%", "more s"] if other else [])
    rows = []
    for name in (*STEP_PARTS, "step_seconds"):
        if best[name] is None:
            continue
        figures = [
            with_digits(unless_rounding(best[name], step), 4),
            words.share_in_words(best, name),
        ]
        if other:
            more = unless_rounding(other[name] - best[name], step)
            figures += [
                with_digits(unless_rounding(other[name], step), 4),
                words.share_in_words(other, name),
                with_digits(more, 3, "+"),
            ]
        rows.append([name.removesuffix("_seconds"), *map(Figure, figures)])
    below = [words.bound_by(best)]
    if second and second != other:
        longer = words.longer_in_words(second, best)
        below.append(f"rank 2 takes {longer}; it is of the same kind as the best")
    if other:
        below.append(
            "the best of another kind (degrees, recomputation or ZeRO stage) takes "
            f"{words.longer_in_words(other, best)}: {answer.in_words(other)}"
        )
    return Section("Parts of the step", columns, rows, below=below, is_text=True)


def interval_lines(answer: PlanAnswer) -> list[str]:
    """Return both intervals of the run's time, and the limits that the slow end exceeds."""
    sure, best = answer.uncertainty, answer.best
    if not (sure.likely and sure.extreme):
        return []
    steps = best["training_seconds"] / best["step_seconds"]
    return [
        *(
            f"{run_times_in_words(low * steps, high * steps)} {condition}"
            for (low, high), condition in (
                (sure.likely, _NINE_IN_TEN),
                (sure.extreme, "with all constants at one end of their ranges"),
            )
        ),
        *(f"the slow end of the first interval {limit}" for limit in words.exceeded_limits(answer)),
    ]


def _uncertainty(answer: PlanAnswer) -> list[Section]:
    sure, lines = answer.uncertainty, interval_lines(answer)
    if lines:
        lines.append(f"explained by: {sure.explain_command}")
    lines += [*words.memory_lines(answer), *sure.unlike]
    sections = [Section("Uncertainty", lines=lines)]
    if sure.record is not None:
        above = ["the published steps on which the line `accuracy` rests (-: too fast):"]
        sections.append(_section("", sure.record.groups, lines=above))
    if sure.errors:
        above = ["error of the time on published steps (-: too fast, the time is too short):"]
        sections.append(_section("", [_error(line) for line in sure.errors], lines=above))
    if sure.note:
        sections.append(Section(lines=[sure.note]))
    return sections


def _error(line: Line) -> Line:
    group, table = line["published_group"], str(line["reference"]).removeprefix("published_")
    if table != "measurement":
        group = table if group == OWN else f"{table}, {group}"
    return {
        "published_group": group,
        **{name: line[name] for name in _ERROR_COLUMNS},
        "figures": "stored" if line["is_stored"] else "evaluated now",
    }


# ---- for programs ----


def document(answer: PlanAnswer, top: int) -> dict[str, Any]:
    """Return the plan as one JSON-able object, in base units."""
    run, best, sure = answer.run, answer.best, answer.uncertainty
    at = list(answer.counts).index(answer.own_count)
    energy = answer.energies[0] if answer.energies else {}
    steps = best["training_seconds"] / best["step_seconds"]
    plain: dict[str, Any] = json_value(
        {
            "question": _question(run),
            "swept": {
                "cells": sum(sweep.missing_cells for sweep in answer.sweeps),
                "rows": sum(sweep.missing_rows for sweep in answer.sweeps),
            },
            "num_gpus": answer.num_gpus,
            "problem_id": answer.problem_id,
            "training_seconds": best["training_seconds"],
            "gpu_hours": best["gpu_hours"],
            "cost_usd": answer.own_count["cost_usd"],
            "cost_basis": _basis(run),
            "energy_kwh": energy.get("energy_kwh"),
            "power_watts": energy.get("power_watts"),
            "headroom_bytes": best["headroom_bytes"],
            "limited_by": max(
                (name for name in STEP_PARTS if best[name] is not None), key=lambda name: best[name]
            ),
            "layouts": answer.layouts[:top],
            "runner_up": answer.runner_up,
            "other_kind": answer.other_kind,
            "surer": answer.steadier_layout,
            "riskier": answer.riskier_layout,
            "expert_degrees": [
                {name: line[name] for name in EXPERT_COLUMNS} for line in answer.expert_degrees
            ],
            "costs": answer.costs,
            "energies": answer.energies,
            "published_runs": answer.published_runs,
            "counts": answer.counts,
            "next_smaller": answer.counts[at - 1] if at else None,
            "next_larger": answer.counts[at + 1] if at + 1 < len(answer.counts) else None,
            "batch_to_try": words.batch_to_try(answer),
            "likely_training_seconds": sure.likely and [steps * end for end in sure.likely],
            "extreme_training_seconds": sure.extreme and [steps * end for end in sure.extreme],
            "unlike_published": sure.unlike,
            "errors": sure.errors,
            "own_runs": sure.own_runs,
            "track_record": None if sure.record is None else vars(sure.record),
            "fit_probability": sure.fit_probability,
            "own_memory_bias": sure.own_memory_bias,
            "memory_errors": sure.memory,
            "errors_note": sure.note or None,
            "queries": answer.queries,
        }
    )
    return plain


def _question(run: TrainingRun) -> dict[str, Any]:
    request, terms, values = run.request, run.terms, run.problem
    return {
        "estimator": run.estimator.name,
        "variant": run.variant,
        "model": values["model"],
        "accelerator": values["accelerator"],
        "dataset_tokens": request.tokens,
        "global_batch_size": run.batch,
        "is_default_batch": run.is_default_batch,
        "seq_len": values["seq_len"],
        "shape": {name: values[name] for name in run.estimator.shape_columns if name in values},
        "nvlink_size": values.get("nvlink_size"),
        "framework": values.get("framework"),
        "inputs": dict(request.inputs),
        "held": dict(request.held),
        "headroom_bytes": request.headroom_bytes,
        "least_fit_probability": request.fit_probability,
        "goodput": run.goodput,
        "basis": _basis(run),
        "usd_per_gpu_hour": terms.price,
        "pue": terms.pue,
        "usd_per_kwh": terms.usd_per_kwh,
        "kg_co2e_per_kwh": [carbon.value for carbon in terms.carbons] or None,
        "watts_per_gpu": terms.watts,
        **vars(request.limits),
    }


def _basis(run: TrainingRun) -> str:
    return run.terms.basis if run.terms.price is None else "given"
