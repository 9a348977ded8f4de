"""``warehouse show``: one configuration with its estimate, or a table of the source."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli import completion
from warehouse.cli.common import put, put_document, say
from warehouse.cli.options import DEFAULT_DATABASE, Mending, ReadDatabase, Relation
from warehouse.cli.output import Output
from warehouse.errors import UsageError
from warehouse.options import CatalogFile, Profile
from warehouse.show.formats import Format
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Catalog, Estimator, Mends, Values
    from estimators.contract import Relation as Grain
    from warehouse.evaluate.one import Shown
    from warehouse.show.values import Row


def show(
    estimator: Annotated[
        str,
        typer.Argument(
            metavar="ESTIMATOR",
            help="Such as roofline.",
            autocompletion=completion.estimators,
        ),
    ],
    mending: Mending,
    output: Output,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="The configuration; the rest are defaults."),
    ] = None,
    relation: Relation = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show this table of the estimator's source: of cluster critical_batch, compute, "
            "communication, latency or electricity.",
        ),
    ] = None,
    catalog: CatalogFile = None,
    profile: Profile = None,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show the estimate of one configuration.

    Keys are the columns that `evaluate` reads, or their names in the estimator's source (d_model,
    p_pipe). Numbers may be written 13e12 or 1_000_000, flags true or false. The report marks
    default values, and shows published figures next to corrected ones that differ. Nothing is
    stored; the database is read only for the constants of a profile and for systems of studies.

    --table prints a table as the source's notebook prints it, over the batches of the notebook.
    Given values hold in all of its rows.
    """
    from estimators import registry
    from warehouse.database.catalog import packaged_catalog
    from warehouse.evaluate.file import find_relation
    from warehouse.evaluate.one import read_pairs, show_configuration
    from warehouse.evaluate.profiles import load_profiles, with_profiles
    from warehouse.studies.definitions import every_definition

    chosen = registry.get(estimator)
    mends = mending.mends(chosen)
    defined = every_definition(db, catalog)
    known = defined.added_to(packaged_catalog())
    known = with_profiles(known, lambda: load_profiles(db), chosen, profile)
    if table is not None:
        if relation is not None:
            raise UsageError(
                "`--relation` and `--table` exclude each other",
                "leave --relation out: the table decides it",
            )
        _put_table(chosen, table, pairs or [], mends, known, output)
        return
    grain = find_relation(chosen, relation)
    given = read_pairs(chosen, grain, pairs or [])
    if profile is not None:
        given.setdefault("profile", profile)
    shown = show_configuration(chosen, grain, given, mends, known)
    is_default = mending == Mending()
    published = _published(shown, given, known) if mends and is_default else None
    with output.opened():
        _put_configuration(shown, published, output.form)


def _published(shown: Shown, given: Mapping[str, str], catalog: Catalog) -> Shown | None:
    """Return the configuration by the published formulas; None if their rules refuse it."""
    from estimators.contract import PUBLISHED, RefusedError
    from warehouse.evaluate.one import show_configuration

    try:
        return show_configuration(shown.estimator, shown.relation, given, PUBLISHED, catalog)
    except RefusedError:
        return None


def _put_configuration(shown: Shown, published: Shown | None, form: Format) -> None:
    """Print one configuration: a report, a JSON object, or a row for each column."""
    from warehouse.show.configuration import report

    if form is Format.TABLE:
        sys.stdout.write("\n".join(report(shown, published)) + "\n")
        return
    inputs = {**shown.problem, **shown.layout}
    if form is Format.JSON:
        document = {
            "estimator": shown.estimator.name,
            "relation": shown.relation.name,
            "mends": [mend for mend in shown.estimator.mends if mend in shown.mends],
            "given": sorted(shown.given),
            "inputs": json_value(inputs),
            "results": json_value(dict(shown.results)),
        }
        put_document(document, indent=2)
        return
    sources = {name: "given" if name in shown.given else "default" for name in inputs}
    rows: list[Row] = [(name, value, sources[name]) for name, value in inputs.items()]
    rows += [(name, value, "result") for name, value in shown.results.items()]
    put(("column", "value", "source"), [rows], form)


def _put_table(
    estimator: Estimator,
    table: str,
    pairs: list[str],
    mends: Mends,
    catalog: Catalog,
    output: Output,
) -> None:
    """Print a table of the estimator's source; inputs of every relation may be given."""
    from estimators.contract import Refusal, RefusedError
    from estimators.registry import with_capability
    from estimators.source_tables import source_table
    from warehouse.evaluate.one import read_pairs, show_configuration

    if not estimator.source_tables:
        hint = f"use {' or '.join(with_capability('source_tables'))}, or leave --table out"
        raise RefusedError(
            [Refusal("table", table, f"is unknown: {estimator.name} has no tables", hint)]
        )
    table = table.lower() if table.lower() in estimator.source_tables else table
    given = read_pairs(estimator, None, pairs)

    def evaluate(relation: Grain, texts: Mapping[str, str]) -> Values:
        return show_configuration(estimator, relation, texts, mends, catalog).values

    rows = source_table(estimator, table, given, mends, evaluate)
    note = estimator.source_tables[table].note_as_published
    if note and not mends:
        say(note)
    with output.opened():
        put(tuple(rows[0]), [[tuple(row.values()) for row in rows]], output.form)
