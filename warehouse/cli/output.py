"""Where a result goes and in which format: options of every command that prints rows."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.errors import UsageError
from warehouse.options import text_option
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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

    def expect(self, tables: Sequence[str], csv: Sequence[str] | None = None) -> None:
        """Refuse chosen columns that no table of the answer can have, before any work.

        `tables` has the columns of all tables that people read. An answer whose JSON is a document
        has one table in CSV, with the columns `csv`.
        """
        if csv is not None:
            refuse_choice(self)
        if self.chosen:
            from warehouse.show.units import names_of_column

            columns = tables if csv is None or self.is_for_people else csv
            headings = (text for name in columns for text in names_of_column(name))
            refuse_missing(self.chosen, columns, headings)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the block write as the user chose, to stdout or to `--out`, whole or not at all."""
        token = _CURRENT.set(self)
        try:
            with ExitStack() as files:
                if self.out is not None:
                    from warehouse.files import written_whole

                    sys.stdout.flush()
                    partial = files.enter_context(written_whole(self.out))
                    file = files.enter_context(partial.open("w", encoding="utf-8", newline=""))
                    files.enter_context(redirect_stdout(file))
                yield
        finally:
            _CURRENT.reset(token)


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


_MANY = 200
"""Columns that a hint does not list: those of the data dictionary."""


def refuse_missing(names: Sequence[str], columns: Sequence[str], headings: Iterable[str]) -> None:
    """Refuse a chosen name that is neither a column nor a heading."""
    known = {text.casefold() for text in (*columns, *headings)}
    missing = [name for name in names if not spellings_of(name) & known]
    if missing:
        from estimators.names import did_you_mean, nearest_columns

        near = did_you_mean(nearest_columns(missing[0], dict.fromkeys(columns)))
        listed = f"use {', '.join(dict.fromkeys(columns))}"
        raise UsageError(
            f"`--columns` {', '.join(missing)}: the result has no such column",
            near or (listed if len(columns) < _MANY else "leave --columns out to see all"),
        )


def spellings_of(name: str) -> set[str]:
    """Return the spellings of a chosen column: as given, and its name if that is a heading."""
    from warehouse.show.units import column_headed

    return {name.casefold(), (column_headed(name) or name).casefold()}
