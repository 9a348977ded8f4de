"""`warehouse explain`: a step as the sum of its parts, and the constants that it hangs on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, put, say
from warehouse.show.formats import Format, json_value

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.ask.explain import Explanation

ESTIMATOR = "training_step"
SHOWN = 12
"""Constants in the table unless --all is asked for."""


def explain(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="The configuration, or with --best a filter."),
    ],
    best: Annotated[
        bool, typer.Option("--best", help="The fastest stored layout that these pairs leave.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every constant, not only those that matter most.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON in base units instead of the report.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show why a training step takes as long as it does.

    The step is shown as the sum of its parts with their formulas, then the constants by how far
    their stated ranges move it, with their sources. The first range takes their errors as
    independent, the second all of them at their worst together. Keys are the columns that
    `evaluate training_step` reads.
    """
    from estimators import registry
    from estimators.contract import PUBLISHED
    from warehouse.ask.explain import explain as explained
    from warehouse.database.catalog import packaged_catalog
    from warehouse.errors import InputError
    from warehouse.evaluate.one import read_pairs, show_configuration

    model = registry.get(ESTIMATOR)
    relation = model.relations[0]
    given = read_pairs(model, relation, pairs)
    if given.pop("profile", "default") != "default":
        hint = "`warehouse show training_step ... --profile NAME` shows a calibrated step"
        raise InputError("`profile`: an explanation is of the constants with their sources", hint)
    catalog = packaged_catalog()
    if best:
        given = _best(db, given)
    found = explained(show_configuration(model, relation, given, PUBLISHED, catalog), catalog)
    if as_json:
        sys.stdout.write(json.dumps(_document(found), indent=2) + "\n")
        return
    for line in _headline(found):
        say(line)
    _put_parts(found)
    sys.stdout.write("\n")
    _put_constants(found, every=every)


def _best(db: Path, given: dict[str, str]) -> dict[str, str]:
    """Return the fastest stored configuration that has the values given, as texts."""
    from estimators import registry
    from warehouse.ask.explain import best_configuration
    from warehouse.database.connection import open_for_read

    with open_for_read(db) as connection:
        return best_configuration(connection, registry.get(ESTIMATOR), given)


def _headline(found: Explanation) -> list[str]:
    from warehouse.show.units import in_words

    values, results = found.shown.problem, found.shown.results
    names = ("model", "accelerator", "num_gpus", "global_batch_size", "framework")
    asked = {n: values[n] for n in names if values[n] is not None}
    layout = {n: v for n, v in found.shown.layout.items() if v not in (1, 0, False)}
    told = {**asked, **layout, "activation_recompute": values["activation_recompute"]}
    likely, extreme = (" to ".join(f"{s:.4g}" for s in r) for r in (found.likely, found.extreme))
    memory = in_words("memory_bytes", results["memory_bytes"])
    fits = "fits" if results["fits_memory"] else "does not fit"
    return [
        ", ".join(f"{name} {value}" for name, value in told.items()),
        f"step {found.step_seconds:.4g} s; {likely} s by independent errors of the constants; "
        f"{extreme} s with all of them at their worst",
        f"MFU {100 * float(results['mfu'] or 0):.1f} %, "
        f"HFU {100 * float(results['hfu'] or 0):.1f} %, memory {memory}, which {fits}",
    ]


def _put_parts(found: Explanation) -> None:
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
    put(("part", "seconds", "%", "formula"), [rows], Format.TABLE)


def _put_constants(found: Explanation, *, every: bool) -> None:
    chosen = found.sensitivities if every else found.sensitivities[:SHOWN]
    rows = [
        (
            one.name,
            f"{one.value:.4g}",
            "" if one.lowest is None else f"{one.lowest:.4g} to {one.highest:.4g}",
            "" if one.elasticity is None else f"{one.elasticity:+.3f}",
            "" if one.at_lowest is None else f"{one.at_lowest:.4g} to {one.at_highest:.4g}",
            ("assumed; " if one.is_assumed else "") + one.source,
        )
        for one in chosen
    ]
    header = ("constant", "value", "range", "elasticity", "step over the range", "source")
    put(header, [rows], Format.TABLE)


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
