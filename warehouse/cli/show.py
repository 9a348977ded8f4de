"""``warehouse show``: one configuration, its estimate as a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from warehouse.formats import json_value


def show(
    estimator: Annotated[str, typer.Argument(metavar="ESTIMATOR", help="Such as roofline.")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="The configuration; the rest are defaults."),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="published|corrected",
            help="Which figures; default: corrected, the published ones beside them.",
        ),
    ] = None,
    mend: Annotated[
        str | None, typer.Option(metavar="R1,R2", help="Mend these errata only.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="The grain to show; default: the estimator's first.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON in base units instead of the report.")
    ] = False,
    catalog: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", readable=False, help="Define models and systems, as a study does."
        ),
    ] = None,
) -> None:
    """Show the estimate of one configuration.

    Keys are the columns that `evaluate` reads, or the names that the estimator's source has
    for them (d_model, p_pipe). Numbers may be written 13e12 or 1_000_000, flags true or false.
    Values that were not given are marked. Nothing is stored.
    """
    from estimators import registry
    from estimators.contract import PUBLISHED, RefusedError
    from warehouse.batch import find_relation
    from warehouse.catalog import packaged_catalog
    from warehouse.cli.evaluate import asked_mends
    from warehouse.definitions import Definitions, load_definitions
    from warehouse.show_report import report
    from warehouse.showing import read_pairs, show_configuration

    model = registry.get(estimator)
    mends = asked_mends(model, variant, mend)
    grain = find_relation(model, relation)
    given = read_pairs(model, grain, pairs or [])
    defined = load_definitions(catalog) if catalog else Definitions()
    known = defined.added_to(packaged_catalog())
    shown = show_configuration(model, grain, given, mends, known)
    if as_json:
        inputs = {**shown.problem, **shown.layout}
        document = {
            "estimator": model.name,
            "relation": grain.name,
            "mends": [one for one in model.mends if one in mends],
            "given": sorted(shown.given),
            "inputs": {name: json_value(value) for name, value in inputs.items()},
            "results": {name: json_value(value) for name, value in shown.results.items()},
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    published = None
    if mends and variant is None and mend is None:
        try:
            published = show_configuration(model, grain, given, PUBLISHED, known)
        except RefusedError:  # a layout that only mended rules admit
            published = None
    sys.stdout.write("\n".join(report(shown, published)) + "\n")
