"""``warehouse show``: one configuration, its estimate as a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, ProfileOption
from warehouse.show.formats import Format, json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Catalog, Estimator, Mends, Relation, Values


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
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A table of the cluster estimator's source instead: critical_batch, compute, "
            "communication, latency or electricity.",
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", case_sensitive=False, help="How to write --table."),
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
    profile: ProfileOption = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show the estimate of one configuration.

    Keys are the columns that `evaluate` reads, or the names that the estimator's source has
    for them (d_model, p_pipe). Numbers may be written 13e12 or 1_000_000, flags true or false.
    Values that were not given are marked. Nothing is stored; the database is read for the
    constants of a profile only.

    With --table the table is printed as the source's notebook prints it, over the batches that it
    goes through; values that are given hold in all of its rows.
    """
    from estimators import registry
    from estimators.contract import PUBLISHED, RefusedError
    from warehouse.database.catalog import packaged_catalog
    from warehouse.evaluate.file import find_relation
    from warehouse.evaluate.one import read_pairs, show_configuration
    from warehouse.evaluate.profiles import load_profiles, with_profiles
    from warehouse.show.configuration import report
    from warehouse.studies.definitions import Definitions, load_definitions
    from warehouse.studies.variants import mends_of_options

    model = registry.get(estimator)
    mends = mends_of_options(model, variant, mend)
    defined = load_definitions(catalog) if catalog else Definitions()
    known = defined.added_to(packaged_catalog())
    known = with_profiles(known, lambda: load_profiles(db), model, profile)
    if table is not None or form is not None:
        _refuse_mixtures(table, relation, as_json)
        _show_table(model, table or "", pairs or [], mends, known, form or Format.TABLE)
        return
    grain = find_relation(model, relation)
    given = read_pairs(model, grain, pairs or [])
    if profile is not None:
        given.setdefault("profile", profile)
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


def _refuse_mixtures(table: str | None, relation: str | None, as_json: bool) -> None:
    from warehouse.errors import UsageError

    if table is None:
        raise UsageError("`--format` needs `--table`", "for one configuration there is --json")
    if relation is not None:
        raise UsageError("`--relation` cannot stand beside `--table`", "a table has its own")
    if as_json:
        raise UsageError("`--json` cannot stand beside `--table`", "use --format json")


def _show_table(
    model: Estimator,
    table: str,
    pairs: list[str],
    mends: Mends,
    catalog: Catalog,
    form: Format,
) -> None:
    """Print a table of the estimator's source, whatever its relations read of what was given."""
    from estimators.contract import Refusal, RefusedError
    from estimators.registry import with_capability
    from estimators.source_tables import source_table
    from warehouse.cli.common import put, say
    from warehouse.evaluate.one import read_pairs, show_configuration

    if not model.source_tables:
        hint = f"use {' or '.join(with_capability('source_tables'))}, or leave --table out"
        raise RefusedError([Refusal("table", table, f"is not one of {model.name}", hint)])
    given = read_pairs(model, None, pairs)

    def evaluate(relation: Relation, texts: Mapping[str, str]) -> Values:
        return show_configuration(model, relation, texts, mends, catalog).values

    rows = source_table(model, table, given, mends, evaluate)
    note = model.source_tables[table].note_as_published
    if note and not mends:
        say(note)
    put(tuple(rows[0]), [[tuple(row.values()) for row in rows]], form)
