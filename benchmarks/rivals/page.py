"""docs/rivals.md: its tables, its picture, and the answers that they are made of.

The answers of other programs are kept in a file beside this one, so that the page can be made anew
from them when the estimator changes, on a machine that has none of the programs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.rivals import table
from benchmarks.rivals.calculon import CALCULON
from benchmarks.rivals.llm_analysis import AT_HALF, LLM_ANALYSIS
from benchmarks.rivals.ours import OWN, PAPER, own, paper
from benchmarks.rivals.rows import Row, published
from benchmarks.rivals.simumax import SIMUMAX
from benchmarks.rivals.table import Match, Program

if TYPE_CHECKING:
    from altair.typing import ChartType

RIVALS = (CALCULON, LLM_ANALYSIS, AT_HALF, SIMUMAX)

INFERENCE = (
    *("aiconfigurator", "ai-dynamo/aiconfigurator", "0.12.0", ""),
    "not run: it models inference alone. Its engine runs prefill and decoding (modes static, "
    "static_ctx, static_gen); it has no backward pass, optimizer or exchange of gradients",
)
"""A program that can answer no row: name, source, version, no date, and the reason."""

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rivals.md"
PICTURE = ROOT / "docs" / "pictures" / "rivals.svg"
ANSWERS = Path(__file__).with_name("answers.csv")
VERSIONS = Path(__file__).with_name("versions.csv")
MADE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
"""A part of the page between two comments that name it."""

NOT_ASKED = "not asked"
"""The answer of a program to a row that is newer than its answers."""

EDGE = 1.0
"""Errors beyond it are drawn at it."""


def match_of(rows: Sequence[Row], others: Sequence[Program]) -> Match:
    """Return the programs of others beside what this project says itself."""
    ours = [Program(OWN, "this one", own(rows)), Program(PAPER, "this one", paper(rows))]
    return Match(rows, [*ours, *others])


# ---- stored answers ----


def stored(rows: Sequence[Row]) -> list[Program]:
    """Return the answers that are kept, for these rows."""
    if not ANSWERS.exists():
        return []
    with ANSWERS.open(encoding="utf-8", newline="") as file:
        lines = {(line["reference"], line["published_row"]): line for line in csv.DictReader(file)}
    with VERSIONS.open(encoding="utf-8", newline="") as file:
        return [
            Program(
                each["program"],
                each["version"],
                [
                    _answer(lines.get((row.reference, row.name), {}).get(each["program"]))
                    for row in rows
                ],
                each["date"],
            )
            for each in csv.DictReader(file)
        ]


def _answer(text: str | None) -> float | str:
    if not text:
        return NOT_ASKED
    try:
        return float(text)
    except ValueError:
        return text


def store(rows: Sequence[Row], programs: Sequence[Program]) -> None:
    """Keep the answers of programs."""
    with ANSWERS.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("reference", "published_row", *(each.title for each in programs)))
        for number, row in enumerate(rows):
            answers = (each.answers[number] for each in programs)
            texts = (a if isinstance(a, str) else f"{a:.6g}" for a in answers)
            lines.writerow((row.reference, row.name, *texts))
    with VERSIONS.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("program", "version", "date"))
        lines.writerows((each.title, each.version, each.date) for each in programs)


# ---- the page ----

TABLES: Mapping[str, Callable[[Match], str]] = {
    "wins": table.wins_table,
    "programs": table.programs_table,
    "shared": table.shared_table,
    "sets": table.sets_table,
    "refusals": table.refusals_table,
    "settings": lambda match: settings_table(match.programs),
}
"""Parts of the page that are made from the answers."""


def settings_table(programs: Sequence[Program]) -> str:
    """Return how the programs of others were run, as Markdown."""
    by_title = {rival.title: rival for rival in RIVALS}
    lines = [
        (each.title, by_title[each.title].source, each.version, each.date, rival.settings)
        for each in programs
        if (rival := by_title.get(each.title))
    ]
    header = ("program", "source", "version", "run", "its own defaults that are used")
    return table.table(header, [*lines, INFERENCE], left=5)


def filled(text: str, match: Match) -> str:
    """Return the page with its tables."""
    return MADE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]](match)}\n\n{found[3]}", text)


def picture(match: Match) -> ChartType:
    """Return a line of marks for each program, one for each row that it answers."""
    import altair as alt

    from warehouse.plot import parts
    from warehouse.plot.theme import BLUE, RED

    frame = pl.concat(
        pl.DataFrame({"program": title, "error": match.errors(title, chosen)})
        for title in match.titles
        if (chosen := match.answered(title, match.all))
    ).with_columns(pl.col("error").clip(-EDGE, EDGE))
    middle = frame.group_by("program", maintain_order=True).agg(
        low=pl.col("error").quantile(0.25),
        high=pl.col("error").quantile(0.75),
        median=pl.col("error").median(),
    )
    scale = alt.Scale(domain=[-EDGE, EDGE], nice=False)
    axis = parts.change_axis(
        "Error of the step time; errors beyond 100% are drawn there",
        values=[tick / 5 for tick in range(-5, 6)],
    )
    x = alt.X("error:Q", scale=scale, axis=axis)
    y = alt.Y("program:N", sort=middle["program"].to_list(), title=None)
    zero = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(strokeWidth=1.4)
    half = alt.Chart(middle).mark_bar(height=22, color=BLUE, opacity=0.28)
    marks = alt.Chart(frame).mark_tick(thickness=1, size=18, opacity=0.3)
    best = alt.Chart(middle).mark_point(filled=True, size=90, color=RED, opacity=1)
    return alt.layer(
        half.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y),
        zero.encode(x=alt.X("zero:Q", scale=scale)),
        marks.encode(x=x, y=y),
        best.encode(x=alt.X("median:Q", scale=scale), y=y),
    ).properties(width=560, height=alt.Step(34))


def make_anew() -> None:
    """Write the page from the answers that are kept, and this project's of today."""
    rows = published()
    write(match_of(rows, stored(rows)))


def write(match: Match) -> None:
    """Write the page and its picture."""
    from warehouse.plot.files import save
    from warehouse.plot.theme import LIGHT

    page = filled(PAGE.read_text("utf-8"), match)
    PAGE.write_text(page, encoding="utf-8")
    chart = picture(match)
    # words for each of thousands of marks would double the file
    save(chart.configure(**{**LIGHT.config, "aria": False}), PICTURE)
