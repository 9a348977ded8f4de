"""Where a result goes and in which format: options of every command that prints rows."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from warehouse.errors import UsageError
from warehouse.options import text_option
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENDINGS = {
    ".txt": Format.TABLE,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
}
"""Ending of a file -> the format that `--out` writes to it."""

FormatName = Annotated[
    Format | None,
    typer.Option(
        "--format",
        case_sensitive=False,
        help="Format of the result.",
        show_default="table, or by the ending of --out",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        readable=False,
        help="Write the result to this file; an existing one is replaced.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json: base units.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show every column, however narrow the terminal is.")
]
Columns = Annotated[
    str | None,
    text_option("--columns", "NAME,...", "Show these columns alone, by name or heading."),
]
IdsAsText = Annotated[
    bool,
    typer.Option(
        "--ids-as-text",
        help="With JSON alone: write ids and whole numbers beyond 2^53 as texts, since jq and "
        "JavaScript round such numbers.",
    ),
]


@dataclass(frozen=True)
class Output:
    """Where a result goes, and in which format; options that contradict are refused."""

    named: FormatName = None
    out: Out = None
    as_json: Json = False
    wide: Wide = False
    columns: Columns = None
    ids_as_text: IdsAsText = False

    has_known_columns: ClassVar[bool] = True
    """Whether the package names all columns of the answer."""

    def __post_init__(self) -> None:
        if self.as_json and self.named not in (None, Format.JSON):
            raise UsageError(f"`--json` contradicts `--format` {self.named}", "give one of them")
        if self.out is not None:
            from warehouse.files import check_target

            check_target(self.out)
        if not self.is_json and self.ids_as_text:
            raise UsageError(
                f"`--ids-as-text` is for JSON, and the format is {self.form}",
                "add --json, or leave it out: other formats keep every digit of an id",
            )
        if self.columns is not None and not self.chosen:
            raise UsageError('`--columns` "" names no column', "leave --columns out to show all")
        if self.chosen and self.has_known_columns:
            refuse_unknown_columns(self.chosen)

    @property
    def form(self) -> Format:
        """The format: as it was named, or by the ending of the file."""
        if self.as_json:
            return Format.JSON
        if self.named is not None:
            return self.named
        if self.out is None:
            return Format.TABLE
        if self.out.suffix.lower() not in ENDINGS:
            raise UsageError(
                f"`--out` {self.out} does not say which format to write",
                f"end it in {', '.join(ENDINGS)}, or give --format",
            )
        return ENDINGS[self.out.suffix.lower()]

    @property
    def chosen(self) -> list[str]:
        """The columns that the user chose, by name or heading; none: all."""
        return [name.strip() for name in (self.columns or "").split(",") if name.strip()]

    @property
    def is_json(self) -> bool:
        """Whether the result is written as JSON."""
        return self.form is Format.JSON

    @property
    def is_for_people(self) -> bool:
        """Whether the result is a text that people read: a table or Markdown."""
        return self.form in (Format.TABLE, Format.MARKDOWN)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the block write as the user chose, to stdout or to `--out`, whole or not at all."""
        token = _CURRENT.set(self)
        try:
            with self._redirected():
                yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def _redirected(self) -> Iterator[None]:
        if self.out is None:
            yield
            return
        from warehouse.files import written_whole

        sys.stdout.flush()
        with (
            written_whole(self.out) as partial,
            partial.open("w", encoding="utf-8", newline="") as file,
            redirect_stdout(file),
        ):
            yield


class OutputOfAnyColumns(Output):
    """The output of a command whose columns the user or the source of an estimator names."""

    has_known_columns = False


_CURRENT: ContextVar[Output] = ContextVar("output")


def current_output() -> Output:
    """Return the output that is open, else the usual one."""
    return _CURRENT.get(Output())


def refuse_choice(output: Output) -> None:
    """Refuse chosen columns of an answer whose JSON is a document."""
    if output.is_json and output.chosen:
        raise UsageError(
            "`--columns` chooses columns of tables, and this JSON is a document",
            "leave --columns out",
        )


_ANSWER_COLUMNS = (
    *("stage", "action", "option", "layout", "figures", "planned_gpu_hours", "more_time_fraction"),
    *("more s", "other kind s", "s", "%", "kind", "setting", "value", "origin", "of the study"),
    *("default", "estimate", "fitted", "takes_fitted", "at_bound"),
    *("highest_without_one_row", "lowest_without_one_row", "untuned", "left_out", "rows_left_out"),
    *("measured row", "measured step s", "kernels", "half_from", "half_to", "times_as_long", "why"),
    *("measured", "mean", "median", "bias", "worst", "inside", "missed", "width", "clusters"),
    *("by chance", "score", "places", "memory", "seq", "zero"),
    *("% of the best step", "best s", "best_seconds", "difference_seconds", "seconds", "step s"),
    *("memory GB", "broken", "rule", "hint", "values", "change", "from", "to"),
    *("formula", "range", "step over the range", "plot", "summary", "filled_by"),
    *("name", "column", "role", "layer", "what", "grain", "key", "type", "unit", "meaning"),
    *("rows", "total_rows", "cells", "total_cells", "rows_per_second", "sweep_seconds"),
    *("missing_cells", "missing_rows", "stored_bytes", "is_sampled", "share", "folder"),
)
"""Columns that only answers of commands have; the data dictionary has the others."""


def refuse_unknown_columns(names: Sequence[str]) -> None:
    """Refuse a name that is no column and no heading of any answer, before anything is done."""
    from estimators.columns import COLUMNS
    from estimators.names import did_you_mean, nearest_columns
    from warehouse.database.meanings import OTHER_COLUMNS
    from warehouse.show.units import names_of_column

    columns = (*COLUMNS, *OTHER_COLUMNS, *_ANSWER_COLUMNS)
    known = {name.casefold() for column in columns for name in names_of_column(column)}
    for name in names:
        if not {name.casefold(), re.sub("^(best|slow)[_ ]", "", name.casefold())} & known:
            near = did_you_mean(nearest_columns(name, COLUMNS))
            raise UsageError(
                f"`--columns` {name}: no result has such a column",
                near or "leave --columns out to see all",
            )
