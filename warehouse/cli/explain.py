"""`warehouse explain`: a step as the sum of its parts, and the constants that it depends on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put, put_document, say
from warehouse.cli.options import DEFAULT_DATABASE, Best, Mending, ReadDatabase
from warehouse.cli.output import Output
from warehouse.options import CatalogFile, EstimatorName, Profile
from warehouse.show.formats import Format
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.ask.explain import Explanation

DEFAULT_ESTIMATOR = registry.default("explain")

SHOWN = 12
"""Constants in the table without --all."""


def explain(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="The configuration, or filters for --best."),
    ],
    mending: Mending,
    output: Output,
    best: Best = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show every constant, not only the strongest.")
    ] = False,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    profile: Profile = None,
    catalog: CatalogFile = None,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show why a training step takes as long as it does.

    The first table has the parts of the step with their formulas; they add up to the step. The
    second table has the constants with their sources, ordered by how much their range changes the
    step. Of the two ranges of the step, the first holds nine steps in ten, with independent errors
    of different causes. The second has all constants at their fast ends, or at their slow ends.
    Keys are the columns that `evaluate` reads.
    """
    from warehouse.ask.explain import explain_pairs

    found = explain_pairs(
        *(db, pairs),
        best=best,
        estimator=estimator,
        variant=mending.variant,
        mend=mending.mend,
        profile=profile,
        catalog=catalog,
    )
    with output.opened():
        if output.is_json:
            put_document(_document(found), indent=2)
        elif output.form is Format.CSV:
            say("CSV has the parts of the step alone; --json has everything")
            rows = [(p.name, p.seconds, p.share, *p.formula) for p in found.parts]
            put(("part", "seconds", "step_fraction", "formula", "source"), [rows], Format.CSV)
        else:
            for line in _headline(found):
                say(line)
            if not best and (line := _default_batch(found, pairs)):
                say(line)
            _put_parts(found, output.form)
            sys.stdout.write("\n")
            _put_constants(found, output.form, every=every)


def _headline(found: Explanation) -> list[str]:
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
        f"step {found.step_seconds:.4g} s; {likely} s nine times in ten, by independent errors of "
        f"the constants; {extreme} s with all of them at their fast or all at their slow ends",
        ", ".join(figures),
        f"stored problems differ in {', '.join(found.differing)}; this one has the shortest step"
        if found.differing
        else "",
    ]
    return [line for line in lines if line]


def _default_batch(found: Explanation, pairs: Sequence[str]) -> str:
    """Return a remark that the batch is a default, if no input sets it."""
    given = {pair.partition("=")[0].strip().lower() for pair in pairs}
    batch = found.shown.problem.get("global_batch_size")
    if batch is None or given & {"global_batch_size", "num_microbatches"}:
        return ""
    return (
        f"global_batch_size {batch} is the default, one microbatch a replica; "
        "`why` and `plan` have another default; global_batch_size=N sets it"
    )


def _fits(found: Explanation) -> str:
    results = found.shown.results
    words = "fits" if results.get("fits_memory", True) else "does not fit"
    room = results.get("fit_probability")
    return words if room is None else f"{words} (room for it: {100 * float(room):.0f} %)"


def _put_parts(found: Explanation, form: Format) -> None:
    rows = [
        (
            p.name.removesuffix("_seconds"),
            f"{p.seconds:.4g}",
            f"{100 * p.share:.1f}",
            p.formula.text,
        )
        for p in found.parts
        if p.seconds
    ]
    rows.append(("step", f"{found.step_seconds:.4g}", "100.0", "sum of the parts"))
    put(("part", "seconds", "%", "formula"), [rows], form)


def _put_constants(found: Explanation, form: Format, *, every: bool) -> None:
    chosen = found.sensitivities if every else found.sensitivities[:SHOWN]
    rows = [
        (
            one.name,
            f"{one.value:.4g}",
            _ends(one.lowest, one.highest),
            "" if one.elasticity is None else f"{one.elasticity:+.3f}",
            "" if one.lowest == one.highest else _ends(one.at_lowest, one.at_highest),
            ("assumed; " if one.is_assumed else "") + one.source,
        )
        for one in chosen
    ]
    header = ("constant", "value", "range", "elasticity", "step over the range", "source")
    put(header, [rows], form)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or low == high else f"{low:.4g} to {high:.4g}"


def _document(found: Explanation) -> dict[str, Any]:
    return {
        "inputs": {
            name: json_value(value)
            for name, value in {**found.shown.problem, **found.shown.layout}.items()
        },
        "results": {name: json_value(value) for name, value in found.shown.results.items()},
        "step_seconds": found.step_seconds,
        "likely_step_seconds": found.likely,
        "extreme_step_seconds": found.extreme,
        "differing_columns": list(found.differing),
        "parts": [
            {
                "part": part.name,
                "seconds": part.seconds,
                "step_fraction": part.share,
                "formula": part.formula.text,
                "source": part.formula.source,
            }
            for part in found.parts
        ],
        "constants": [vars(one) for one in found.sensitivities],
    }
