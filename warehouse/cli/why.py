"""`warehouse why`: a layout's rank, where it loses time, or the rules that exclude it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put_page, say, title_line
from warehouse.cli.display import shown_width
from warehouse.cli.options import DEFAULT_DATABASE, Mending, ReadDatabase
from warehouse.cli.output import Output
from warehouse.cli.waiting import progress_line
from warehouse.limits import FIT_PROBABILITY
from warehouse.options import ConfigurationOptions, EstimatorName, FitProbability
from warehouse.show.formats import count
from warehouse.show.page import Page, Section
from warehouse.show.values import Figure, json_value

if TYPE_CHECKING:
    from warehouse.ask.configuration import LayoutQuery
    from warehouse.ask.why import Diagnosis
    from warehouse.show.values import Row

DEFAULT_ESTIMATOR = registry.default("why")

SHOWN_NEIGHBOURS = 5

_MEMORY = ("part", "memory_bytes")
_PARTS = ("part", "s", "best s", "more s", "% of the best step")
_CHANGES = ("change", "from", "to", "step s", "%", "memory GB", "layout")
_RULES = ("rule", "broken", "values", "hint")
_PART_ROWS = ("part", "seconds", "best_seconds", "difference_seconds")
_RULE_ROWS = ("rule", "column", "value", "reason")
"""Columns of the tables that people read, then those of CSV: for an admitted layout, or another."""


def why(
    *,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="The layout: dp32 tp4 pp4 zero1, or tensor_parallel=4 ..."
        ),
    ] = None,
    problem: ConfigurationOptions,
    mending: Mending,
    output: Output,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    fit_probability: FitProbability = FIT_PROBABILITY,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Say why a layout is not the best.

    Every layout of the same problem is evaluated in memory; nothing is stored. The report has the
    rank, the parts of the step next to those of the best layout, and the single changes that help
    most (data parallelism adapts). If the layout does not fit, it has the excess and the parts of
    the memory. If a rule excludes the layout, it has the rule with the values that it reads.
    Missing inputs take defaults, which are shown; the default batch is that of `plan`, for --tokens
    or for 20 tokens per active parameter. The layout may be given as it is printed, or by the names
    that Megatron and torchtitan have for its degrees, or by a launch file with --from.
    """
    from warehouse.ask.why import diagnose_pairs

    tables = (*_MEMORY, *_PARTS, *_CHANGES, *_RULES)
    output.expect(tables, csv=(*_PART_ROWS, *_RULE_ROWS))
    chosen = estimator or DEFAULT_ESTIMATOR
    with progress_line("layouts evaluated") as on_evaluated:
        query, found = diagnose_pairs(
            *(db, pairs or (), problem),
            estimator=chosen,
            variant=mending.variant,
            mend=mending.mend,
            fit_probability=fit_probability,
            on_evaluated=on_evaluated,
        )
    for line in () if query.launch is None else query.launch.silent():
        say(line)
    with output.opened():
        put_page(_page(query, found, title_line(chosen)))


def question_lines(query: LayoutQuery, found: Diagnosis) -> list[str]:
    """Return the problem, the batch with its origin, and the layout, a line each."""
    from warehouse.ask.defaults import CUSTOM_MODEL, CUSTOM_SYSTEM, note_on_model, taken_over
    from warehouse.ask.plausible import questioned_attributes
    from warehouse.database.catalog import packaged_catalog
    from warehouse.plan.question_words import batch_in_words
    from warehouse.show.units import layout_in_words, stages_in_words

    shown = found.shown
    values = query.problem if shown is None else shown.problem
    if not values:
        return []
    num_gpus = query.num_gpus if shown is None else shown.problem["num_gpus"]
    gpus = "" if num_gpus is None else f"{num_gpus:,} x "
    domain = f" in fast domains of {values['nvlink_size']}" if values.get("nvlink_size") else ""
    framework = f", framework {values['framework']}" if values.get("framework") else ""
    lines = [] if query.launch is None else query.launch.remarks()
    lines += [
        f"{values['model'] or CUSTOM_MODEL} on {gpus}"
        f"{values['accelerator'] or CUSTOM_SYSTEM}{domain}, "
        f"sequences of {values['seq_len']:,}{framework}"
    ]
    if query.shape_from:
        lines.append(f"the shape of {values['model']} is that of {query.shape_from}")
    batch = query.batch
    if shown is not None:
        batch = int(shown.problem["global_batch_size"] or 0)
    if batch is not None:
        lines.append(batch_in_words(batch, values) + query.rule)
    if kept := taken_over(values, query.given):
        lines.append(kept)
    catalog = packaged_catalog() if shown is None else shown.catalog
    lines += filter(None, [note_on_model(catalog, values["model"])])
    lines += questioned_attributes(catalog, values, query.given)
    if shown is not None:
        choices = {name: shown.problem[name] for name in shown.estimator.choice_columns}
        lines.append(f"layout {layout_in_words({**shown.layout, **choices})}")
        if words := stages_in_words(shown.estimator.uneven_stages(shown.values)):
            lines.append(f"stages {words}")
    return lines


def _page(query: LayoutQuery, found: Diagnosis, title: str) -> Page:
    """Return the page of a diagnosis."""
    document = _document(query, found)
    lines = question_lines(query, found)
    if found.shown is None:
        rules = [(each.rule, each.column, each.value, each.reason) for each in found.broken]
        return Page(document, Section("", _RULE_ROWS, rules), _rules(found, lines), [title])
    parts = [(p.name, p.seconds, p.best_seconds, p.difference_seconds) for p in found.parts]
    remarks = [
        title,
        f"{count(found.num_layouts, 'layout')} of the same problem, {found.num_fitting:,} fit; "
        f"reference data {document['reference_data']}",
    ]
    if not found.is_searched:
        remarks.append("a search leaves this layout out: another one does the same, or is as good")
    table = Section("the parts of the step", _PART_ROWS, parts)
    return Page(document, table, _comparison(found, lines), remarks)


def _rules(found: Diagnosis, lines: list[str]) -> list[Section]:
    """Return the broken rules; a terminal has lines, as a table of sentences is wider."""
    from warehouse.show.units import plain_value

    lines = [*lines, f"excluded by {count(len(found.broken), 'rule')}", ""]
    rows = [
        (
            broken.rule,
            " ".join(filter(None, (broken.column, plain_value(broken.value), broken.reason))),
            ", ".join(f"{name} {plain_value(value)}" for name, value in broken.values.items()),
            broken.hint,
        )
        for broken in found.broken
    ]
    if shown_width() is None:
        return [Section(columns=_RULES, rows=rows, lines=lines, is_text=True)]
    for rule, words, values, hint in rows:
        lines += [rule, f"  {words}", f"  values: {values}", f"  hint: {hint}", ""]
    return [Section(lines=lines[:-1])]


def _comparison(found: Diagnosis, lines: list[str]) -> list[Section]:
    """Return rank or excess, the parts of the step next to the best ones, and single changes."""
    from warehouse.plan.words import probability_in_words
    from warehouse.show.units import layout_in_words, stages_in_words, unless_rounding

    assert found.shown is not None
    seconds = float(found.shown.results["step_seconds"] or 0)
    sections = []
    if found.rank is None:
        lines = [
            *lines,
            f"does not fit: {found.excess_bytes / 1e9:,.1f} GB too much; {seconds:.4g} s",
        ]
        if found.memory:
            memory = [(part.removesuffix("_bytes"), size) for part, size in found.memory]
            sections = [Section(columns=_MEMORY, rows=memory, lines=lines)]
            lines = [""]
    else:
        spare = f", {-found.excess_bytes / 1e9:,.1f} GB of memory are left"
        rank = f"rank {found.rank:,} of {found.num_fitting:,}: {seconds:.4g} s"
        lines = [*lines, rank + (spare if found.memory else "")]
        if found.fit_probability is not None:
            likely = "likely" if found.is_likely_to_fit else "unlikely"
            chance = probability_in_words(found.fit_probability)
            lines.append(f"{likely} to fit: a chance of {chance}")
    if found.best is None:
        from warehouse.ask.defaults import besides_gpus

        others = besides_gpus(found.shown.estimator)
        lines = [
            *lines,
            f"no layout of this problem fits: ask for more GPUs or a shorter `seq_len`; {others}",
        ]
        return [*sections, Section(lines=lines)]
    best = float(str(found.best["step_seconds"]))
    lines = [*lines, f"the best takes {best:.4g} s, {layout_in_words(found.best)}"]
    stages = found.shown.estimator.uneven_stages({**found.shown.problem, **found.best})
    if words := stages_in_words(stages):
        lines.append(f"its stages {words}")
    if unless_rounding(seconds - best, best) > 0:
        loss = 100 * (seconds / best - 1)
        lines.append(f"it loses {seconds - best:.4g} s, {loss:.1f} % of the best")
    lines.append("")
    rows = _part_rows(found, seconds, best)
    return [
        *sections,
        Section(columns=_PARTS, rows=rows, lines=lines, is_text=True, below=[""]),
        _changes(found, seconds),
    ]


def _part_rows(found: Diagnosis, seconds: float, best: float) -> list[Row]:
    from warehouse.show.units import unless_rounding

    figures = [
        *((part.name, part.seconds, part.best_seconds) for part in found.parts),
        ("step", seconds, best),
    ]
    rows: list[Row] = []
    for name, own, other in figures:
        more = unless_rounding(own - other, best)
        numbers = (
            f"{unless_rounding(own, best):.4g}",
            f"{unless_rounding(other, best):.4g}",
            f"{more:+.3g}",
            f"{100 * more / best:+.1f}",
        )
        rows.append((name.removesuffix("_seconds"), *map(Figure, numbers)))
    return rows


def _changes(found: Diagnosis, seconds: float) -> Section:
    """Return the changes of one choice that help most."""
    from warehouse.show.units import layout_in_words, plain_value

    if not found.neighbours and found.shown is not None:
        gpus = count(int(found.shown.problem["num_gpus"] or 0), "GPU")
        none = "no single change makes it faster: the way to the best takes several"
        if found.rank is None:
            none = "no single change makes it fit"
        elif found.rank == 1:
            none = f"no layout of {gpus} is faster"
        return Section(lines=[none])
    rows = [
        (
            change.changed,
            plain_value(change.old),
            plain_value(change.new),
            Figure(f"{change.step_seconds:.4g}"),
            Figure(f"{100 * (change.step_seconds / seconds - 1):+.1f}"),
            Figure(f"{change.memory_bytes / 1e9:,.1f}"),
            layout_in_words(change.layout),
        )
        for change in found.neighbours[:SHOWN_NEIGHBOURS]
    ]
    aim = "fit" if found.rank is None else "faster"
    lines = [f"changes of one choice that make it {aim}"]
    return Section(columns=_CHANGES, rows=rows, lines=lines, is_text=True)


def _query_document(query: LayoutQuery) -> dict[str, Any]:
    return {
        **{name: json_value(value) for name, value in query.problem.items()},
        "num_gpus": query.num_gpus,
        "global_batch_size": query.batch,
        "is_default_batch": query.is_default_batch,
        "dataset_tokens": query.dataset_tokens,
        **({} if query.launch is None else {"launch": query.launch.document()}),
    }


def _document(query: LayoutQuery, found: Diagnosis) -> dict[str, Any]:
    from warehouse.database.stamp import reference_version

    question, version = _query_document(query), reference_version()
    if found.shown is None:
        return {
            "question": question,
            "reference_data": version,
            "is_admitted": False,
            "rules": [json_value(vars(broken)) for broken in found.broken],
        }
    shown = found.shown
    seconds = float(shown.results["step_seconds"] or 0)
    best = None if found.best is None else float(str(found.best["step_seconds"]))
    return {
        "question": question,
        "reference_data": version,
        "is_admitted": True,
        "inputs": json_value({**shown.problem, **shown.layout}),
        "results": json_value(dict(shown.results)),
        "is_searched": found.is_searched,
        "rank": found.rank,
        "num_layouts": found.num_layouts,
        "num_fitting_layouts": found.num_fitting,
        "fits_memory": found.rank is not None,
        "excess_bytes": found.excess_bytes,
        "memory": dict(found.memory),
        "best": None if found.best is None else json_value(dict(found.best)),
        "loss_seconds": None if best is None else seconds - best,
        "loss_fraction": None if best is None else seconds / best - 1,
        "parts": [
            {**vars(part), "difference_seconds": part.difference_seconds} for part in found.parts
        ],
        "neighbours": [json_value(vars(change)) for change in found.neighbours],
    }
