"""A plan as people read it: the question, the answer in short, tables, and how sure they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from warehouse.ask.terms import grids_in_words, price_vendors
from warehouse.calibrate.references import OWN
from warehouse.cli.common import put, put_for_people
from warehouse.cli.display import fitted, terminal_width
from warehouse.cli.plan_published import published_lines, published_rows
from warehouse.cli.plan_question import question_lines
from warehouse.cli.plan_summary import (
    accuracy_lines,
    exceeded_limits,
    percent_in_words,
    summary_lines,
)
from warehouse.plan.compare import time_in_words
from warehouse.plan.count_table import count_lines, count_rows
from warehouse.plan.expert_table import expert_rows
from warehouse.plan.queries import STEP_PARTS
from warehouse.show.formats import Format, count
from warehouse.show.units import in_words, run_times_in_words, unless_rounding, with_digits
from warehouse.show.values import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warehouse.plan.answer import PlanAnswer

    Line = Mapping[str, Any]

_LAYOUT_DROPPED = frozenset({*STEP_PARTS, "hbm_bytes", "num_microbatches", "tokens_per_second"})
_COST_DROPPED = frozenset(
    {
        *("price_source", "quote_vendors", "power_source", "pue", "usd_per_kwh", "power_basis"),
        "option",
    }
)
_ERROR_COLUMNS = (
    *("time_mean_absolute_relative_error", "time_max_absolute_relative_error", "time_bias"),
    *("num_rows", "num_published"),
)


def put_report(answer: PlanAnswer, top: int, form: Format = Format.TABLE) -> None:
    """Print the report to stdout; CSV has the best layouts alone, in base units."""
    rows = [{"rank": place, **line} for place, line in enumerate(answer.layouts[:top], start=1)]
    if form is Format.CSV:
        put(tuple(rows[0]), [[list(row.values()) for row in rows]], form)
        return
    report = _Report(form)
    for line in question_lines(answer.run):
        report.line(line)
    report.heading(f"The best layout on {answer.num_gpus:,} GPUs")
    report.listed([*summary_lines(answer), *accuracy_lines(answer)])
    report.heading(f"The best layouts on {answer.num_gpus:,} GPUs")
    report.table(rows, _LAYOUT_DROPPED | _same(rows, ("strategy", "attention")) | _unknown(rows))
    for line in layout_lines(answer):
        report.line(line)
    if answer.expert_degrees:
        report.heading("The best layout of each degree of expert parallelism (EP)")
        report.table(expert_rows(answer))
    report.heading("Cost of the best layout")
    report.table(_with_options(answer.costs, "price_note"), _COST_DROPPED)
    if words := price_vendors(answer.costs):
        report.line(words)
    report.line("published prices of rented hours include electricity; owned adds it")
    report.heading("Energy and carbon of the best layout")
    report.table(_with_options(answer.energies, "power_note"), _COST_DROPPED)
    for line in grid_lines(answer):
        report.line(line)
    report.heading("Parts of the step")
    _put_parts(report, answer)
    report.heading("Other GPU counts")
    report.table(count_rows(answer))
    for line in count_lines(answer):
        report.line(line)
    if answer.published_runs:
        report.heading("Published runs of this model")
        report.table(published_rows(answer))
        for line in published_lines(answer):
            report.line(line)
    report.heading("Uncertainty")
    _put_uncertainty(report, answer)


class _Report:
    """Writes headings, lines and tables to stdout, as plain text or Markdown."""

    def __init__(self, form: Format) -> None:
        self.form = form
        self._is_markdown = form is Format.MARKDOWN

    def heading(self, text: str) -> None:
        sys.stdout.write(f"\n{'## ' if self._is_markdown else ''}{text}\n\n")

    def line(self, text: str) -> None:
        """Write a line; in Markdown a paragraph of its own."""
        ends = "\n\n" if self._is_markdown else "\n"
        shown = text if self._is_markdown else fitted(text, terminal_width())
        sys.stdout.write("".join(f"{each}{ends}" for each in shown.splitlines()))

    def listed(self, lines: Sequence[str]) -> None:
        """Write lines of a list; Markdown needs a mark for each."""
        for line in lines:
            plain = "\n".join(fitted(each, terminal_width()) for each in line.splitlines())
            sys.stdout.write(f"- {' '.join(line.split())}\n" if self._is_markdown else f"{plain}\n")

    def table(self, rows: Sequence[Line], drop: frozenset[str] = frozenset()) -> None:
        """Write rows in the units and headings of people."""
        if not rows:
            self.line("-")
            return
        columns = tuple(name for name in rows[0] if name not in drop)
        put_for_people(columns, [[row[name] for name in columns] for row in rows], self.form)
        self._end_table()

    def figures(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write rows of a name and figures that are texts already."""
        put(header, [[[row[0], *map(Figure, row[1:])] for row in rows]], self.form)
        self._end_table()

    def _end_table(self) -> None:
        if self._is_markdown:
            sys.stdout.write("\n")


def layout_lines(answer: PlanAnswer) -> Iterator[str]:
    """Yield time and memory of the best layout, and the chance that it fits."""
    best, room = answer.best, answer.uncertainty.room
    likely = "" if room is None else f"; the chance that it fits is {percent_in_words(room)}"
    yield (
        f"{time_in_words(best)}, {in_words('gpu_hours', best['gpu_hours'])}; "
        f"{_gb(best['memory_bytes'])} of {_gb(best['hbm_bytes'])} used, "
        f"{_gb(best['headroom_bytes'])} free{likely}"
    )


def _put_parts(report: _Report, answer: PlanAnswer) -> None:
    """Write the parts of the best layout's step, next to those of the best of another kind."""
    best, other = answer.best, answer.other_kind
    step = best["step_seconds"]
    header = ["part", "s", "%"] + (["other kind s", "%", "more s"] if other else [])
    rows = []
    for name in (*STEP_PARTS, "step_seconds"):
        if best[name] is None:
            continue
        row = [
            name.removesuffix("_seconds"),
            with_digits(unless_rounding(best[name], step), 4),
            _share(best, name),
        ]
        if other:
            seconds = unless_rounding(other[name], step)
            more = unless_rounding(other[name] - best[name], step)
            row += [with_digits(seconds, 4), _share(other, name), with_digits(more, 3, "+")]
        rows.append(row)
    report.figures(header, rows)
    report.line(bound_by(best))
    second = answer.runner_up
    if second and second != other:
        report.line(f"rank 2 takes {_longer(second, best)}; it is of the same kind as the best")
    if other:
        report.line(
            f"the best of another kind (degrees, recomputation or ZeRO stage) takes "
            f"{_longer(other, best)}: {answer.in_words(other)}"
        )


def bound_by(layout: Line) -> str:
    """Return the two largest parts of a layout's step."""
    parts = {name: layout[name] for name in STEP_PARTS if layout[name] is not None}
    first = max(parts, key=lambda name: parts[name])
    rest = {name: value for name, value in parts.items() if name != first and value > 0}
    words = f"bound by {first.removesuffix('_seconds')}: {_share(layout, first)} % of the step"
    if rest:
        second = max(rest, key=lambda name: rest[name])
        words += f"; next {second.removesuffix('_seconds')}: {_share(layout, second)} %"
    return words


def grid_lines(answer: PlanAnswer) -> list[str]:
    """Return the year and the kind of each grid's figure, and whether the years differ."""
    table = answer.run.catalog.tables.get("grid_carbon", {})
    rows = [row for line in answer.energies if (row := table.get(str(line["grid"])))]
    return grids_in_words((row["grid"], row["kind"], row["year"]) for row in rows)


def _put_uncertainty(report: _Report, answer: PlanAnswer) -> None:
    sure, best = answer.uncertainty, answer.best
    if sure.likely and sure.extreme:
        steps = best["training_seconds"] / best["step_seconds"]
        for (low, high), condition in (
            (sure.likely, "nine times in ten (errors of different constants taken as independent)"),
            (sure.extreme, "with all constants at one end of their ranges"),
        ):
            report.line(f"{run_times_in_words(low * steps, high * steps)} {condition}")
        for line in exceeded_limits(answer):
            report.line(f"the slow end of the first interval {line}")
        report.line(f"explained by: {sure.explain_command}")
    for line in (*memory_lines(answer), *sure.unlike):
        report.line(line)
    if sure.record is not None:
        report.line("the published steps on which the line `accuracy` rests (-: too fast):")
        report.table(sure.record.groups)
    if sure.errors:
        report.line("error of the time on published steps (-: too fast, the time is too short):")
        report.table(
            [
                {
                    "published_group": _group_in_words(line),
                    **{name: line[name] for name in _ERROR_COLUMNS},
                    "figures": "stored" if line["is_stored"] else "evaluated now",
                }
                for line in sure.errors
            ]
        )
    if sure.note:
        report.line(sure.note)


def _group_in_words(line: Line) -> str:
    """Return a group of published steps: its name, or that of its table."""
    table = str(line["reference"]).removeprefix("published_")
    if table == "measurement":
        return str(line["published_group"])
    return table if line["published_group"] == OWN else f"{table}, {line['published_group']}"


def memory_lines(answer: PlanAnswer) -> list[str]:
    """Return the errors of the memory on measured runs, or a remark that there are none."""
    if not answer.uncertainty.memory:
        return [
            "memory: no published figure of this accelerator checks it; `warehouse measure` "
            "compares it with your own runs"
        ]
    return [
        f"memory on {count(line['num_rows'], 'run')} of {line['reference']} (+: too large): "
        f"mean |error| {100 * line['memory_mean_absolute_relative_error']:.1f} %, "
        f"max {100 * line['memory_max_absolute_relative_error']:.1f} %, "
        f"bias {100 * line['memory_bias']:+.1f} %"
        for line in answer.uncertainty.memory
    ]


def _with_options(lines: Sequence[Line], note: str) -> list[dict[str, Any]]:
    """Return the lines, each note followed by the option that gives the missing figure."""
    return [
        {**line, note: f"{line[note]}: {line['option']}" if line["option"] else line[note]}
        for line in lines
    ]


def _longer(layout: Line, best: Line) -> str:
    percent = f"{100 * (layout['step_seconds'] / best['step_seconds'] - 1):.2f}"
    return "as long" if percent == "0.00" else f"{percent} % longer"


def _same(rows: Sequence[Line], names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if len({row[name] for row in rows}) == 1)


def _unknown(rows: Sequence[Line]) -> frozenset[str]:
    """Return the columns without a value: choices that the estimator does not have."""
    return frozenset(name for name in rows[0] if all(row[name] is None for row in rows))


def _gb(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:,.1f} GB"


def _share(layout: Line, name: str) -> str:
    return f"{100 * layout[name] / layout['step_seconds']:.1f}"
