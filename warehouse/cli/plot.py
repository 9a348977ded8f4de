"""`warehouse plot`: pictures of stored rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import put_for_people, say
from warehouse.cli.display import shown_width
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase, refuse_given
from warehouse.cli.output import Output
from warehouse.options import (
    EstimatorName,
    ProblemFilters,
    StudyName,
    Tokens,
    Variant,
    given,
    text_option,
)
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.contract import Scalar
    from warehouse.plot.draw import Drawing

LISTED = ("plot", "summary", "filled_by")
"""Columns of the list of plots."""


@dataclass(frozen=True)
class PlotFilters(ProblemFilters):
    """Filters of plots; each plot takes some of them."""

    estimator: EstimatorName = None
    variant: Variant = None
    assumptions: Annotated[
        str | None,
        text_option(
            "--assumptions",
            "TEXT",
            "Problems with these assumptions, such as 'precision fp8'; by default those without "
            "any, or else those with most rows.",
        ),
    ] = None
    study: StudyName = None
    tokens: Tokens = None


@dataclass(frozen=True)
class PictureOrList(Output):
    """Where a picture goes, or the list of plots and in which format."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            readable=False,
            help="The picture, ending in .png, .svg or .html, or without NAME the list; an "
            "existing file is replaced.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check nothing: a picture has other endings."""


def plot(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The plot; without it, they are listed.")
    ] = None,
    filters: PlotFilters,
    output: PictureOrList,
    dark: Annotated[bool, typer.Option("--dark", help="Draw it for a dark page.")] = False,
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the query behind the picture.")
    ] = False,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Draw a picture of stored rows, or list the plots.

    Without NAME all plots are listed, each with the commands that store its rows. A picture answers
    one question: if stored rows answer several, the one with most rows is drawn, and a message
    names the others. --show-sql prints the query with its values; `warehouse sql` and the DuckDB
    shell run it. An .html file needs no network. Plots need the extra `plots`.
    """
    from warehouse.errors import UsageError
    from warehouse.plot.files import ENDINGS, check_ending, save
    from warehouse.plot.registry import plot_named

    out = output.out
    if name is None:
        is_picture = out is not None and out.suffix.lower() in ENDINGS
        if is_picture or show_sql or given(filters):
            raise UsageError("`NAME` is missing: which plot?", "`warehouse plot` lists them")
        _list(Output(**vars(output)))
        return
    of_list = {"--format": output.named, "--json": output.as_json, "--wide": output.wide}
    refuse_given(
        {**of_list, "--columns": output.columns},
        "is for the list of plots, not for a picture",
        "leave it out; the ending of --out says the kind of picture",
    )
    chosen = plot_named(name)
    if out is not None:
        check_ending(out)
    elif not show_sql:
        raise UsageError(
            f"`--out` is missing: plot {chosen.name} needs a file",
            f"give --out {chosen.name}.svg, .png or .html, or --show-sql",
        )
    from warehouse.database.connection import open_for_read
    from warehouse.plot.draw import draw
    from warehouse.plot.theme import DARK, LIGHT

    with open_for_read(db) as connection:
        drawing = draw(connection, chosen.name, given(filters), DARK if dark else LIGHT)
    for column, (taken, others) in drawing.chosen.items():
        say(_choice(column, taken, others))
    if show_sql:
        sys.stdout.write(drawing.sql)
    if out is not None:
        save(drawing.chart, out)
        say(f"{out}: {drawing.title}{_tokens(drawing)}")


def _choice(column: str, taken: Scalar, others: Sequence[Scalar]) -> str:
    """Return which value of a column is drawn, and which others are stored."""
    # a set of assumptions has commas
    shown = [repr(other) if column == "assumptions" else str(other) for other in others[:5]]
    also = f"; also stored: {', '.join(shown)}{' ...' if len(others) > 5 else ''}" if others else ""
    if column == "assumptions":
        also += "; --assumptions draws them" if others else "; nothing is stored without them"
    return f"{column} {taken or 'none'}{also}"


def _tokens(drawing: Drawing) -> str:
    """Return the tokens of the runs that a picture shows, if they share one number."""
    from warehouse.show.units import in_words

    if "dataset_tokens" not in drawing.frame.columns:
        return ""
    tokens = set(drawing.frame["dataset_tokens"].drop_nulls().to_list())
    return f", for {in_words('dataset_tokens', tokens.pop())}" if len(tokens) == 1 else ""


def _list(output: Output) -> None:
    """Print every plot: its name, what it shows, and the commands that fill it."""
    from warehouse.plot.registry import PLOTS

    output.expect(LISTED)
    with output.opened():
        if output.form is not Format.TABLE or output.chosen:
            rows = [(p.name, p.summary, " or ".join(p.filled_by)) for p in PLOTS.values()]
            put_for_people(LISTED, rows)
            return
        width, line = max(map(len, PLOTS)), shown_width()
        for plot in PLOTS.values():
            lines = wrapped_entry(f"{plot.name:<{width}}  ", plot.summary, plot.filled_by, line)
            sys.stdout.write("\n".join(lines) + "\n")


def wrapped_entry(
    label: str, summary: str, commands: Sequence[str], columns: int | None
) -> list[str]:
    """Return the lines of a plot in the list. A command stays whole, so that it can be copied.

    The label is as wide as all names; without a number of columns, no line is broken.
    """
    from warehouse.show.formats import wrapped

    indent = " " * len(label)
    filled = f"{indent}filled by {' or '.join(commands)}"
    if columns is None:
        return [label + summary, filled]
    lines = wrapped(label + summary, columns, further=indent)
    if len(filled) <= columns:
        return [*lines, filled]
    words = [
        f"{'or' if index else 'filled by':<9} {command}" for index, command in enumerate(commands)
    ]
    # a long command takes the room under the names
    room = max(columns - max(map(len, words)), 2)
    return [*lines, *(" " * min(len(label), room) + line for line in words)]
