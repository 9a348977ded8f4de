"""`warehouse why`: a layout's rank, where it loses time, or the rules that exclude it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import (
    put,
    put_document,
    put_for_people,
    say,
    title_line,
)
from warehouse.cli.display import fitted, shown_width
from warehouse.cli.options import (
    DEFAULT_DATABASE,
    Accelerator,
    CatalogFile,
    EstimatorName,
    Framework,
    GlobalBatchSize,
    Mending,
    Model,
    NumGpus,
    Precision,
    Profile,
    ReadDatabase,
    SequenceLength,
    Tokens,
)
from warehouse.cli.output import Output
from warehouse.cli.waiting import progress_line
from warehouse.show.formats import Format, count
from warehouse.show.values import Figure, json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.ask.why import Diagnosis, LayoutQuery

DEFAULT_ESTIMATOR = registry.default("why")

SHOWN_NEIGHBOURS = 5


@dataclass(frozen=True)
class ProblemOptions:
    """Options of the problem, as `plan` has them; KEY=VALUE gives the same."""

    model: Model = None
    accelerator: Accelerator = None
    num_gpus: NumGpus = None
    global_batch_size: GlobalBatchSize = None
    seq_len: SequenceLength = None
    framework: Framework = None
    precision: Precision = None

    def pairs(self) -> list[str]:
        """Return the options that were given as KEY=VALUE."""
        return [f"{name}={value}" for name, value in vars(self).items() if value is not None]


def why(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="The layout, as `explain` and `show` take it."),
    ],
    problem: ProblemOptions,
    mending: Mending,
    output: Output,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    tokens: Tokens = None,
    profile: Profile = None,
    catalog: CatalogFile = None,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Say why a layout is not the best.

    Every layout of the same problem is evaluated in memory; nothing is stored. The report has the
    rank, the parts of the step next to those of the best layout, and the single changes that help
    most (data parallelism adapts). If the layout does not fit, it has the excess and the parts of
    the memory. If a rule excludes the layout, it has the rule with the values that it reads.
    Missing inputs take defaults, which are shown; the default batch is that of `plan`, for --tokens
    or for 20 tokens per active parameter. --model, --accelerator, --gpus and --batch are those of
    `plan`, and may be given as KEY=VALUE instead.
    """
    from warehouse.ask.asked import asked_why

    chosen = estimator or DEFAULT_ESTIMATOR
    with progress_line("layouts evaluated") as on_evaluated:
        query, found = asked_why(
            *(db, [*problem.pairs(), *pairs]),
            estimator=chosen,
            variant=mending.variant,
            mend=mending.mend,
            tokens=tokens,
            profile=profile,
            catalog=catalog,
            on_evaluated=on_evaluated,
        )
    with output.opened():
        if output.is_json:
            put_document({"question": _query_document(query), **_document(found)})
        elif output.form is Format.CSV:
            _put_csv(found)
        else:
            say(title_line(chosen))
            _Report(output.form).put(query, found)


def question_lines(query: LayoutQuery, found: Diagnosis) -> list[str]:
    """Return the problem, the batch with its origin, and the layout, a line each."""
    from warehouse.ask.defaults import CUSTOM_MODEL, CUSTOM_SYSTEM, taken_over
    from warehouse.ask.plausible import questioned_attributes
    from warehouse.database.catalog import packaged_catalog
    from warehouse.plan.question_words import batch_in_words
    from warehouse.show.units import layout_in_words

    shown = found.shown
    values = query.problem if shown is None else shown.problem
    if not values:
        return []
    num_gpus = query.num_gpus if shown is None else shown.problem["num_gpus"]
    gpus = "" if num_gpus is None else f"{num_gpus:,} x "
    domain = f" in NVLink domains of {values['nvlink_size']}" if values.get("nvlink_size") else ""
    framework = f", framework {values['framework']}" if values.get("framework") else ""
    lines = [
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
        lines.append(batch_in_words(batch, values) + _rule(query))
    if kept := taken_over(values, query.given):
        lines.append(kept)
    catalog = packaged_catalog() if shown is None else shown.catalog
    lines += questioned_attributes(catalog, values, query.given)
    if shown is not None:
        choices = {name: shown.problem[name] for name in shown.estimator.choice_columns}
        lines.append(f"layout {layout_in_words({**shown.layout, **choices})}")
    return lines


def _rule(query: LayoutQuery) -> str:
    if not query.is_default_batch:
        return ""
    from warehouse.ask.why import TOKENS_PER_PARAMETER
    from warehouse.show.units import in_words

    tokens = in_words("dataset_tokens", query.dataset_tokens or 0)
    words = f", as `plan` takes for {tokens}"
    if query.is_default_tokens:
        words += f" ({TOKENS_PER_PARAMETER} per active parameter, as no --tokens is given)"
    if query.multiple is not None:
        words += f", rounded to a multiple of {query.multiple:,}, which the layout takes at once"
    return f"{words}; --batch or --tokens gives another"


class _Report:
    """The report on a diagnosis, as text for people."""

    def __init__(self, form: Format) -> None:
        self.form = form

    def put(self, query: LayoutQuery, found: Diagnosis) -> None:
        """Print the whole report."""
        for line in question_lines(query, found):
            self.line(line)
        if found.shown is None:
            self.put_broken(found)
        else:
            self.put_compared(found)

    def line(self, text: str) -> None:
        """Print a line; Markdown needs an empty one after it."""
        width = None if self.form is Format.MARKDOWN else shown_width()
        sys.stdout.write(fitted(text, width) + ("\n\n" if self.form is Format.MARKDOWN else "\n"))

    def gap(self) -> None:
        """Print an empty line before a table."""
        if self.form is not Format.MARKDOWN:
            sys.stdout.write("\n")

    def put_broken(self, found: Diagnosis) -> None:
        self.line(f"excluded by {count(len(found.broken), 'rule')}")
        if self.form is not Format.MARKDOWN and shown_width() is not None:
            self.put_rules(found)
            return
        self.gap()
        rows = [
            (
                each.rule,
                f"{each.column} {each.value} {each.reason}",
                ", ".join(f"{name} {value}" for name, value in each.values.items()),
                each.hint,
            )
            for each in found.broken
        ]
        put(("rule", "broken", "values", "hint"), [rows], self.form)

    def put_rules(self, found: Diagnosis) -> None:
        """Print each rule in a few lines: a table of sentences is wider than terminals are."""
        for each in found.broken:
            self.gap()
            self.line(each.rule)
            self.line(f"  {each.column} {each.value} {each.reason}")
            values = ", ".join(f"{name} {value}" for name, value in each.values.items())
            self.line(f"  values: {values}")
            self.line(f"  hint: {each.hint}")

    def put_compared(self, found: Diagnosis) -> None:
        from warehouse.show.units import layout_in_words, unless_rounding

        assert found.shown is not None
        seconds = float(found.shown.results["step_seconds"] or 0)
        say(f"{count(found.num_layouts, 'layout')} of the same problem, {found.num_fitting:,} fit")
        if not found.is_searched:
            say("a search leaves this layout out: another one does the same, or is as good")
        if found.rank is None:
            self.put_excess(found, seconds)
        else:
            room = f", {-found.excess_bytes / 1e9:,.1f} GB of memory are left"
            self.line(
                f"rank {found.rank:,} of {found.num_fitting:,}: {seconds:.4g} s"
                + (room if found.memory else "")
            )
        if found.best is None:
            self.line("no layout of this problem fits: ask for more GPUs")
            return
        best = float(str(found.best["step_seconds"]))
        self.line(f"the best takes {best:.4g} s, {layout_in_words(found.best)}")
        if unless_rounding(seconds - best, best) > 0:
            loss = 100 * (seconds / best - 1)
            self.line(f"it loses {seconds - best:.4g} s, {loss:.1f} % of the best")
        self.put_parts(found, seconds, best)
        self.put_neighbours(found, seconds)

    def put_excess(self, found: Diagnosis, seconds: float) -> None:
        self.line(f"does not fit: {found.excess_bytes / 1e9:,.1f} GB too much; {seconds:.4g} s")
        rows = [(part.removesuffix("_bytes"), size) for part, size in found.memory]
        if rows:
            put_for_people(("part", "memory_bytes"), rows, self.form)
            self.line("")

    def put_parts(self, found: Diagnosis, seconds: float, best: float) -> None:
        from warehouse.show.units import unless_rounding

        rows: list[tuple[str, ...]] = [
            (
                part.name.removesuffix("_seconds"),
                Figure(f"{unless_rounding(part.seconds, best):.4g}"),
                Figure(f"{unless_rounding(part.best_seconds, best):.4g}"),
                Figure(f"{unless_rounding(part.difference_seconds, best):+.3g}"),
                Figure(f"{100 * unless_rounding(part.difference_seconds, best) / best:+.1f}"),
            )
            for part in found.parts
        ]
        more = unless_rounding(seconds - best, best)
        rows.append(
            (
                "step",
                Figure(f"{seconds:.4g}"),
                Figure(f"{best:.4g}"),
                Figure(f"{more:+.3g}"),
                Figure(f"{100 * more / best:+.1f}"),
            )
        )
        self.gap()
        put(("part", "s", "best s", "more s", "% of the best step"), [rows], self.form)

    def put_neighbours(self, found: Diagnosis, seconds: float) -> None:
        from warehouse.show.units import layout_in_words

        self.line("")
        if not found.neighbours:
            if found.rank == 1:
                self.line("no layout is faster")
            elif found.rank is None:
                self.line("no single change makes it fit")
            else:
                self.line("no single change makes it faster: the way to the best takes several")
            return
        aim = "fit" if found.rank is None else "faster"
        self.line(f"changes of one choice that make it {aim}")
        rows = [
            (
                one.changed,
                str(one.old),
                str(one.new),
                Figure(f"{one.step_seconds:.4g}"),
                Figure(f"{100 * (one.step_seconds / seconds - 1):+.1f}"),
                Figure(f"{one.memory_bytes / 1e9:,.1f}"),
                layout_in_words(one.layout),
            )
            for one in found.neighbours[:SHOWN_NEIGHBOURS]
        ]
        put(("change", "from", "to", "step s", "%", "memory GB", "layout"), [rows], self.form)


def _put_csv(found: Diagnosis) -> None:
    """Print the parts of the step, or the broken rules, in base units."""
    if found.shown is None:
        rules = [(each.rule, each.column, each.value, each.reason) for each in found.broken]
        put(("rule", "column", "value", "reason"), [rules], Format.CSV)
        return
    say("CSV has the parts of the step alone; --json has everything")
    parts = [(p.name, p.seconds, p.best_seconds, p.difference_seconds) for p in found.parts]
    put(("part", "seconds", "best_seconds", "difference_seconds"), [parts], Format.CSV)


def _query_document(query: LayoutQuery) -> dict[str, Any]:
    return {
        **{name: json_value(value) for name, value in query.problem.items()},
        "num_gpus": query.num_gpus,
        "global_batch_size": query.batch,
        "is_default_batch": query.is_default_batch,
        "dataset_tokens": query.dataset_tokens,
    }


def _document(found: Diagnosis) -> dict[str, Any]:
    if found.shown is None:
        return {"is_admitted": False, "rules": [_plain(vars(each)) for each in found.broken]}
    shown = found.shown
    seconds = float(shown.results["step_seconds"] or 0)
    best = None if found.best is None else float(str(found.best["step_seconds"]))
    return {
        "is_admitted": True,
        "inputs": _plain({**shown.problem, **shown.layout}),
        "results": _plain(shown.results),
        "is_searched": found.is_searched,
        "rank": found.rank,
        "num_layouts": found.num_layouts,
        "num_fitting_layouts": found.num_fitting,
        "fits_memory": found.rank is not None,
        "excess_bytes": found.excess_bytes,
        "memory": dict(found.memory),
        "best": None if found.best is None else _plain(found.best),
        "loss_seconds": None if best is None else seconds - best,
        "loss_fraction": None if best is None else seconds / best - 1,
        "parts": [
            {**vars(part), "difference_seconds": part.difference_seconds} for part in found.parts
        ],
        "neighbours": [_plain(vars(one)) for one in found.neighbours],
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, dict) else json_value(value)
        for name, value in values.items()
    }
