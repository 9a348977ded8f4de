"""``warehouse show``: one configuration with its estimate, or a table of the source."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from estimators.columns import COLUMNS
from estimators.registry import all_estimators, default, get
from warehouse.cli.common import put, put_document, say
from warehouse.cli.options import (
    DEFAULT_DATABASE,
    Mending,
    ReadDatabase,
    Relation,
    UsualEstimator,
    refuse_given,
)
from warehouse.cli.output import Output
from warehouse.errors import UsageError
from warehouse.options import ConfigurationOptions
from warehouse.show.formats import Format
from warehouse.show.units import STEP_PARTS, in_words, stages_in_words
from warehouse.show.values import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from estimators.contract import Catalog, Mends, Scalar, Values
    from estimators.contract import Relation as Grain
    from estimators.estimator import Estimator
    from warehouse.evaluate.one import Evaluation
    from warehouse.show.values import Row

_PARTS = (*STEP_PARTS, "steady_seconds", "gradient_reduction_seconds")
"""Parts of a step, shown with their share of it."""


def show(
    problem: ConfigurationOptions,
    mending: Mending,
    output: Output,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...",
            help="The configuration, or a layout as it is printed; the rest are defaults.",
        ),
    ] = None,
    estimator: UsualEstimator = None,
    relation: Relation = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show this table of the estimator, such as compute or gpu_counts; an unknown name "
            "lists them.",
        ),
    ] = None,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show the estimate of one configuration.

    Keys are the columns that `evaluate` reads, or their names in the estimator's source (d_model,
    p_pipe). Numbers may be written 13e12 or 1_000_000, flags true or false. The batch and the
    NVLink domain are those of `plan` by default; formulas as published keep the defaults of their
    source. The report marks default values, and shows published figures next to corrected ones
    that differ. Nothing is stored; the database is read only for the constants of a profile and for
    systems of studies. The first word may be the estimator.

    --table prints a table as the source's notebook prints it, over the batches of the notebook, or
    the fastest degrees of a budget of FLOPs on each number of devices (gpu_counts). Given values
    hold in all of its rows.
    """
    from warehouse.ask.configuration import read_configuration
    from warehouse.evaluate.file import find_relation
    from warehouse.evaluate.one import show_configuration
    from warehouse.evaluate.profiles import profiled_catalog
    from warehouse.studies.definitions import every_definition

    first, *others = pairs or [""]
    named = first if first.replace("-", "_") in {each.name for each in all_estimators()} else None
    if named is not None and estimator is not None:
        given_twice = f"the estimator is given twice: {named}, {estimator}"
        raise UsageError(given_twice, f"leave {named} out")
    chosen = get(estimator or named or default("measure"))
    pairs = others if named else pairs or []
    mends = mending.mends(chosen)
    if table is not None:
        hint = "leave --relation out: the table decides it"
        refuse_given({"--from": problem.launch}, "and `--table` exclude each other", "leave it out")
        refuse_given({"--relation": relation}, "and `--table` exclude each other", hint)
        defined = every_definition(db, problem.catalog, [problem.model])
        known = profiled_catalog(db, chosen, problem.profile, defined)
        _put_table(chosen, table, [*problem.pairs(), *pairs], mends, known, output)
        return
    if output.chosen and output.form is Format.TABLE:
        raise UsageError(
            f"`--columns` {', '.join(output.chosen)}: the report has no such column",
            "--format csv shows the names of all columns",
        )
    grain = find_relation(chosen, relation)
    query, given, known = read_configuration(db, chosen, pairs, problem, mends, grain)
    for line in () if query.launch is None else query.launch.every_line():
        say(line)
    shown = show_configuration(chosen, grain, query.given, mends, known, given)
    shown = replace(shown, given=frozenset(given))
    is_default = mending == Mending()
    published = _published(shown, query.given, known) if mends and is_default else None
    with output.opened():
        _put_configuration(shown, published, output.form)


def _published(shown: Evaluation, given: Mapping[str, str], catalog: Catalog) -> Evaluation | None:
    """Return the configuration by the published formulas; None if their rules refuse it."""
    from estimators.contract import PUBLISHED, RefusedError
    from warehouse.evaluate.one import show_configuration

    try:
        return show_configuration(shown.estimator, shown.relation, given, PUBLISHED, catalog)
    except RefusedError:
        return None


def _put_configuration(shown: Evaluation, published: Evaluation | None, form: Format) -> None:
    """Print one configuration: a report, a JSON object, or a row for each column."""
    if form is Format.TABLE:
        sys.stdout.write("\n".join(_report(shown, published)) + "\n")
        return
    inputs = {**shown.problem, **shown.layout}
    if form is Format.JSON:
        from warehouse.database.stamp import reference_version

        document = {
            "reference_data": reference_version(),
            "estimator": shown.estimator.name,
            "relation": shown.relation.name,
            "mends": _mends(shown),
            "given": sorted(shown.given),
            "inputs": json_value(inputs),
            "results": json_value(dict(shown.results)),
        }
        put_document(document, indent=2)
        return
    sources = {name: "given" if name in shown.given else "default" for name in inputs}
    rows: list[Row] = [(name, value, sources[name]) for name, value in inputs.items()]
    rows += [(name, value, "result") for name, value in shown.results.items()]
    put(("column", "value", "source"), [rows])


def _report(shown: Evaluation, published: Evaluation | None = None) -> list[str]:
    """Return the lines of the report; results that differ from the published formulas have both."""
    source = shown.estimator.source.reports.get(shown.relation.name)
    lines = [] if source is None else [*source(shown.values), ""]
    lines.append(f"{shown.estimator.name}: {shown.estimator.title}")
    if shown.estimator.mends:
        lines.append(f"mends: {', '.join(_mends(shown)) or 'none, as published'}")
    lines += _section("Problem", shown.problem, shown.given)
    lines += _section("Layout", shown.layout, shown.given)
    if stages := stages_in_words(shown.estimator.uneven_stages(shown.values)):
        lines.append(f"  stages {stages}")
    lines += ["", "Results"]
    width = max(len(name) for name in shown.results)
    for name, value in shown.results.items():
        words = in_words(name, value) + _share(name, shown.results)
        before = published.results[name] if published else value
        if _differs(value, before):
            words += f"  (as published: {_distinct(name, value, before)})"
        lines.append(f"  {name:{width}}  {words}")
    return lines


def _mends(shown: Evaluation) -> list[str]:
    return [mend for mend in shown.estimator.mends if mend in shown.mends]


def _section(title: str, values: Mapping[str, Scalar], given: frozenset[str]) -> list[str]:
    present = {name: value for name, value in values.items() if value is not None}
    if not present:
        return []
    width = max(len(name) for name in present)
    marks = {name: "" if name in given else " *" for name in present}
    rows = [
        f"  {name:{width}}  {in_words(name, value)}{marks[name]}" for name, value in present.items()
    ]
    note = " (* not given: a default, or looked up)" if any(marks.values()) else ""
    return ["", title + note, *rows]


def _share(name: str, results: Mapping[str, Any]) -> str:
    step = results.get("step_seconds")
    if name not in _PARTS or not step or results[name] is None:
        return ""
    return f"  {results[name] / step * 100:.1f} %"


def _distinct(name: str, value: Any, before: Any) -> str:
    """Return `before` in words; with all digits if fewer would make it look like `value`."""
    words = in_words(name, before)
    if words != in_words(name, value):
        return words
    unit = COLUMNS[name].unit if name in COLUMNS else ""
    return f"{before!r} {unit}".strip()


def _differs(value: Any, before: Any) -> bool:
    if isinstance(value, float) and isinstance(before, float):
        return abs(value - before) > 1e-12 * max(abs(value), abs(before))
    return bool(value != before)


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
    from estimators.estimator import source_table
    from estimators.registry import with_capability
    from warehouse.evaluate.one import read_pairs, show_configuration

    if not estimator.source.tables:
        hint = f"use {' or '.join(with_capability('source.tables'))}, or leave --table out"
        raise RefusedError(
            [Refusal("table", table, f"is unknown: {estimator.name} has no tables", hint)]
        )
    table = table.lower() if table.lower() in estimator.source.tables else table
    given = read_pairs(estimator, None, pairs)

    def evaluate(relation: Grain, texts: Mapping[str, str]) -> Values:
        return show_configuration(estimator, relation, texts, mends, catalog).values

    rows = source_table(estimator, table, given, mends, evaluate)
    note = estimator.source.tables[table].note_as_published
    if note and not mends:
        say(note)
    with output.opened():
        put(tuple(rows[0]), [[tuple(row.values()) for row in rows]])
