"""The page of a plan: its answer in a few lines, and its tables, which `--details` adds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.ask.terms import grids_in_words, price_vendors
from warehouse.database.stamp import reference_in_words
from warehouse.plan import words
from warehouse.plan.document import document
from warehouse.plan.published_runs import COLUMNS as PUBLISHED
from warehouse.plan.published_runs import published_lines
from warehouse.plan.question_words import doubts, run_in_words, shape_in_words
from warehouse.show.page import Page, Section, table_of
from warehouse.show.units import (
    STEP_PARTS,
    run_time_in_words,
    run_times_in_words,
    unless_rounding,
    with_digits,
)
from warehouse.show.values import Figure

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer

Line = Mapping[str, Any]

_LAYOUT_DROPPED = {
    *(*STEP_PARTS, "hbm_bytes", "num_microbatches", "tokens_per_second", "is_likely_to_fit"),
}
_OF_SITE = frozenset({"pue", "usd_per_kwh"})
_COST_DROPPED = {
    *("price_source", "quote_vendors", "power_source", "power_basis", "option"),
    *_OF_SITE,
}
LAYOUTS = (
    *("rank", *LAYOUT_COLUMNS, "step_seconds", "low_step_seconds", "high_step_seconds"),
    *("training_seconds", "gpu_hours", "mfu", "tokens_per_second", "memory_bytes", "hbm_bytes"),
    *("headroom_bytes", "fit_probability", "is_likely_to_fit", *STEP_PARTS),
)
"""Columns of the best layouts, which CSV has."""

_ERROR_COLUMNS = (
    *("time_mean_absolute_relative_error", "time_max_absolute_relative_error", "time_bias"),
    "num_rows",
)
TABLES = (
    *(*LAYOUTS, "more_time_fraction", "layout"),
    *("basis", "year", "num_quotes", "quote_vendors", "usd_per_gpu_hour", "cost_usd"),
    *("price_source", "price_note", "option", "power_basis", "watts_per_gpu", "pue", "power_watts"),
    *("energy_kwh", "usd_per_kwh", "electricity_usd", "grid", "kg_co2e_per_kwh", "kg_co2e"),
    *("power_source", "power_note", "part", "s", "%", "other kind s", "more s"),
    *("slow_training_seconds", "note", *PUBLISHED, "published_group", *_ERROR_COLUMNS),
)
"""Columns of all tables."""


@dataclass(frozen=True)
class FurtherTable:
    """A table of the details, and the line that stands for it on the short page."""

    name: str
    line: str
    section: Section


def plan_page(answer: PlanAnswer, top: int, *, has_details: bool) -> Page:
    """Return the page of a plan with `top` layouts; its tables are details."""
    run = answer.run
    own_shape = run.request.inputs.keys() & {*run.estimator.shape_columns} - {"seq_len"}
    shape = [shape_in_words(run)] if own_shape or has_details else []
    above = [run_in_words(run, answer.num_gpus + answer.num_idle_gpus), *shape, *doubts(run)]
    tables = _tables(answer, top)
    sections = [
        Section(lines=[*above, ""], entries=words.answer_entries(answer)),
        Section(
            lines=[""],
            entries=[*words.alternative_entries(answer), *words.batch_entries(answer)],
        ),
    ]
    if has_details:
        sections += [table.section for table in tables]
    else:
        listed = [(table.name, table.line) for table in tables]
        lines = ["", f"further tables, with --details ({reference_in_words()}):"]
        sections.append(Section(lines=lines, entries=listed))
    return Page(document(answer, top), Section("", *table_of(_ranked(answer, top))), sections)


def _ranked(answer: PlanAnswer, top: int) -> list[dict[str, Any]]:
    return [{"rank": rank, **line} for rank, line in enumerate(answer.layouts[:top], start=1)]


def _tables(answer: PlanAnswer, top: int) -> list[FurtherTable]:
    """Return the tables of the details that have rows."""
    layouts = _ranked(answer, top)
    best_of = "layout" if top == 1 else f"{top:,} layouts"
    dropped = _COST_DROPPED - (_OF_SITE if answer.run.terms.has_sites else frozenset())
    tables = [
        FurtherTable(
            "layouts",
            f"the best {best_of}, column by column; --top N has more",
            _section(
                f"The best {best_of} on {answer.num_gpus:,} GPUs",
                layouts,
                _LAYOUT_DROPPED | _needless(layouts),
            ),
        )
    ]
    if rows := expert_rows(answer):
        degrees = ", ".join(f"{line['expert_parallel']:,}" for line in rows)
        heading = "The best layout of each degree of expert parallelism (EP)"
        tables.append(
            FurtherTable(
                "experts",
                f"the best layout of expert parallelism {degrees}",
                _section(heading, rows),
            )
        )
    tables += [
        FurtherTable(
            "prices",
            _prices(answer),
            _section(
                "Cost of the best layout",
                _with_options(answer.costs, "price_note"),
                dropped,
                below=[
                    *filter(None, [price_vendors(answer.costs)]),
                    "published prices of rented hours include electricity; owned adds it",
                ],
            ),
        ),
        FurtherTable(
            "grids",
            _grids(answer),
            _section(
                "Energy and carbon of the best layout",
                _with_options(answer.energies, "power_note"),
                dropped,
                below=_grid_lines(answer),
            ),
        ),
        FurtherTable(
            "parts",
            "each part of the step, and of the best layout of another kind",
            parts_section(answer),
        ),
        FurtherTable(
            "GPUs",
            _counts(answer) or "the only count that was tried",
            _section("Other GPU counts", words.count_rows(answer)),
        ),
    ]
    if published := [{name: line[name] for name in PUBLISHED} for line in answer.published_runs]:
        below = list(published_lines(answer))
        names = ", ".join(dict.fromkeys(str(line["model"]) for line in published))
        tables.append(
            FurtherTable(
                "published",
                f"GPU-hours of {names}",
                _section("Published runs of this model", published, below=below),
            )
        )
    tables.append(FurtherTable("errors", _errors_line(answer), _uncertainty(answer)))
    return tables


def _prices(answer: PlanAnswer) -> str:
    known = sorted((line["cost_usd"], line["basis"]) for line in answer.costs if line["cost_usd"])
    ends = known[:1] + known[1:][-1:]
    ends_in_words = [
        f"{words.dollars_in_words(cost)} ({basis.replace('_', ' ')})" for cost, basis in ends
    ]
    return " to ".join(ends_in_words) or "none is published"


def _grids(answer: PlanAnswer) -> str:
    known = sorted((line["kg_co2e"], line["grid"]) for line in answer.energies if line["kg_co2e"])
    ends = known[:1] + known[1:][-1:]
    return (
        " to ".join(f"{with_digits(kg / 1e3, 2)} t CO2e ({grid})" for kg, grid in ends)
        or "no emissions without a published power"
    )


def _counts(answer: PlanAnswer) -> str:
    rows = words.count_rows(answer)
    at = [line["num_gpus"] for line in rows].index(answer.num_gpus)
    lines = [*rows[max(at - 2, 0) : at], *rows[at + 1 : at + 3]]
    return "; ".join(
        f"{line['num_gpus']:,} take {run_time_in_words(line['training_seconds'])}"
        if line["training_seconds"] is not None
        else f"{line['num_gpus']:,}: {line['note']}"
        for line in lines
    )


def _section(
    heading: str,
    records: Sequence[Line],
    drop: Collection[str] = (),
    below: Sequence[str] = (),
) -> Section:
    return Section(heading, *table_of(records), drop, below=below, lines=[] if records else ["-"])


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
    grids = dict.fromkeys(str(line["grid"]) for line in answer.energies)
    rows = [row for grid in grids if (row := table.get(grid))]
    return grids_in_words((row["grid"], row["kind"], row["year"]) for row in rows)


def parts_section(answer: PlanAnswer) -> Section:
    """Return the parts of the best layout's step, next to those of the best of another kind."""
    best, other = answer.best, answer.other_kind
    step = best["step_seconds"]
    columns = ["part", "s", "%"] + (["other kind s", "%", "more s"] if other else [])
    rows = []
    for name in (*STEP_PARTS, "step_seconds"):
        if best[name] is None:
            continue
        figures = [
            with_digits(unless_rounding(best[name], step), 4),
            f"{100 * best[name] / step:.1f}",
        ]
        if other:
            more = unless_rounding(other[name] - best[name], step)
            figures += [
                with_digits(unless_rounding(other[name], step), 4),
                f"{100 * other[name] / other['step_seconds']:.1f}",
                with_digits(more, 3, "+"),
            ]
        rows.append([name.removesuffix("_seconds"), *map(Figure, figures)])
    below = [words.largest_parts(best)]
    if other:
        below.append(
            "the best of another kind (degrees, recomputation or ZeRO stage) takes "
            f"{words.longer_in_words(other, best)}: {answer.in_words(other)}"
        )
    return Section("Parts of the step", columns, rows, below=below, is_text=True)


def interval_lines(answer: PlanAnswer) -> list[str]:
    """Return both intervals of the run's time, and which limits hold for its median."""
    sure, best = answer.uncertainty, answer.best
    if not (sure.likely and sure.extreme):
        return []
    steps = best["training_seconds"] / best["step_seconds"]
    return [
        *(
            f"{run_times_in_words(low * steps, high * steps)}{condition}"
            for (low, high), condition in (
                (
                    sure.likely,
                    f": {words.RANGE}, nine times in ten if errors of constants are independent",
                ),
                (sure.extreme, " with all constants at one end of their ranges"),
            )
        ),
        *words.limits_in_words(answer),
    ]


def _errors_line(answer: PlanAnswer) -> str:
    record = answer.uncertainty.record
    groups = "" if record is None else f" of {record.num_groups:,} groups of published steps"
    return f"both ranges of the time, and errors{groups}"


def _uncertainty(answer: PlanAnswer) -> Section:
    sure, lines = answer.uncertainty, interval_lines(answer)
    if lines:
        lines.append(f"explained by: {sure.explain_command}")
    lines += [*words.memory_lines(answer), *sure.unlike, reference_in_words()]
    groups: Sequence[Line] = []
    if (record := sure.record) is not None:
        groups = record.groups
        if record.inside_fraction is not None and record.all_inside_fraction is not None:
            lines.append(
                f"{100 * record.inside_fraction:.0f} % of the published steps like it lie in "
                f"their ranges, {100 * record.all_inside_fraction:.0f} % of all {record.num_all:,}"
            )
        lines.append("errors of the time on the published steps like it (-: too fast):")
    return Section("Uncertainty", *table_of(groups), lines=lines)
