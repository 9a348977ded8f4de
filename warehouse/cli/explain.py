"""`warehouse explain`: a step as the sum of its parts, and the constants that it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put_page
from warehouse.cli.options import DEFAULT_DATABASE, Best, Mending, ReadDatabase
from warehouse.cli.output import Output
from warehouse.options import ConfigurationOptions, EstimatorName
from warehouse.show.page import Page, Section
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from warehouse.ask.explain import Explanation

DEFAULT_ESTIMATOR = registry.default("explain")

_PARTS = ("part", "seconds", "%", "formula")
_CONSTANTS = ("constant", "value", "range", "elasticity", "step over the range", "source")
ROWS = ("part", "seconds", "step_fraction", "formula", "source")
"""Columns of the parts in CSV."""

SHOWN = 12
"""Constants in the table without --all."""


def explain(
    *,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="The configuration, or filters for --best."),
    ] = None,
    problem: ConfigurationOptions,
    mending: Mending,
    output: Output,
    best: Best = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show every constant, not only the strongest.")
    ] = False,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show why a training step takes as long as it does.

    The first table has the parts of the step with their formulas; they add up to the step. The
    second table has the constants with their sources, ordered by how much their range changes the
    step. Of the two ranges of the step, the first holds nine steps in ten, with independent errors
    of different causes. The second takes every constant at its fast (slow) end at once. The layout
    and the defaults are those of `why`; KEY is any input column of `evaluate`.
    """
    from warehouse.ask.explain import explain_pairs
    from warehouse.plan.question_words import batch_in_words

    output.expect((*_PARTS, *_CONSTANTS), csv=ROWS)
    found = explain_pairs(
        *(db, pairs or (), problem),
        best=best,
        estimator=estimator,
        variant=mending.variant,
        mend=mending.mend,
    )
    remarks = [] if found.launch is None else found.launch.every_line()
    remarks += _headline(found)
    if found.batch_rule:
        batch = int(found.shown.problem["global_batch_size"] or 0)
        remarks.append(batch_in_words(batch, found.shown.problem) + found.batch_rule)
    table = Section("the parts of the step", ROWS, _rows(found))
    sections = [_parts(found), _constants(found, every=every)]
    document = _document(found)
    remarks.append(f"reference data {document['reference_data']}")
    with output.opened():
        put_page(Page(document, table, sections, remarks, indent=2))


def _headline(found: Explanation) -> list[str]:
    from warehouse.ask.defaults import note_on_model
    from warehouse.plan.words import RANGE
    from warehouse.show.units import in_words

    values, results = found.shown.problem, found.shown.results
    names = ("model", "accelerator", "num_gpus", "global_batch_size", "framework")
    problem = {n: values[n] for n in names if values.get(n) is not None}
    layout = {n: v for n, v in found.shown.layout.items() if v not in (1, 0, False)}
    choice = {n: values[n] for n in ("activation_recompute",) if n in values}
    likely, extreme = (" to ".join(f"{s:.4g}" for s in r) for r in (found.likely, found.extreme))
    figures = [
        f"{name.upper()} {100 * float(results[name] or 0):.1f} %"
        for name in ("mfu", "hfu")
        if name in results
    ]
    if "memory_bytes" in results:
        memory = in_words("memory_bytes", results["memory_bytes"])
        figures.append(f"memory {memory}, which {_fits(found)}")
    lines = [
        ", ".join(f"{name} {value}" for name, value in {**problem, **layout, **choice}.items()),
        f"step {found.step_seconds:.4g} s; {likely} s is {RANGE}, {extreme} s with all constants "
        "at one end of their ranges",
        ", ".join(figures),
        note_on_model(found.shown.catalog, values.get("model")),
        f"stored problems differ in {', '.join(found.differing)}; this one has the shortest step"
        if found.differing
        else "",
    ]
    return [line for line in lines if line]


def _fits(found: Explanation) -> str:
    from warehouse.plan.words import probability_in_words

    results = found.shown.results
    words = "fits" if results.get("fits_memory", True) else "does not fit"
    chance = results.get("fit_probability")
    if chance is None:
        return words
    return f"{words} ({probability_in_words(float(chance))} likely)"


def _parts(found: Explanation) -> Section:
    rows = [
        (
            part.name.removesuffix("_seconds"),
            f"{part.seconds:.4g}",
            f"{100 * part.share:.1f}",
            part.formula.text,
        )
        for part in found.parts
        if part.seconds
    ]
    rows.append(("step", f"{found.step_seconds:.4g}", "100.0", "sum of the parts"))
    return Section(columns=_PARTS, rows=rows, is_text=True, below=[""])


def _rows(found: Explanation) -> list[tuple[Any, ...]]:
    return [(part.name, part.seconds, part.share, *part.formula) for part in found.parts]


def _constants(found: Explanation, *, every: bool) -> Section:
    rows = [
        (
            constant.name,
            f"{constant.value:.4g}",
            _ends(constant.lowest, constant.highest),
            "" if constant.elasticity is None else f"{constant.elasticity:+.3f}",
            ""
            if constant.lowest == constant.highest
            else _ends(constant.at_lowest, constant.at_highest),
            ("assumed; " if constant.is_assumed else "") + constant.source,
        )
        for constant in found.sensitivities[: None if every else SHOWN]
    ]
    return Section(columns=_CONSTANTS, rows=rows, is_text=True)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or low == high else f"{low:.4g} to {high:.4g}"


def _document(found: Explanation) -> dict[str, Any]:
    from warehouse.database.stamp import reference_version

    return {
        "reference_data": reference_version(),
        "inputs": json_value({**found.shown.problem, **found.shown.layout}),
        "results": json_value(dict(found.shown.results)),
        "step_seconds": found.step_seconds,
        "likely_step_seconds": found.likely,
        "extreme_step_seconds": found.extreme,
        "differing_columns": list(found.differing),
        "parts": [dict(zip(ROWS, row, strict=True)) for row in _rows(found)],
        "constants": [vars(constant) for constant in found.sensitivities],
    }
