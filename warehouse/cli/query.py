"""`warehouse sql`: one SELECT, in a sandbox."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import put
from warehouse.cli.display import terminal_width
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.options import number_option

if TYPE_CHECKING:
    from collections.abc import Sequence


def sql(
    *,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it from stdin.")
    ],
    output: Output,
    timeout: Annotated[
        float,
        number_option(
            "--timeout",
            "Stop the query and the printing of its rows after this time; in a pipe, the time of a "
            "slow reader does not count. Rows that go to --out FILE are written to the last.",
            metavar="SECONDS",
            is_usage=True,
        ),
    ] = 60.0,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory that the query may take.")
    ] = "2GB",
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Run one SELECT over the tables and views.

    The query can read the database and nothing else: no files, no network, no writing. FROM, WITH,
    VALUES, DESCRIBE, SUMMARIZE and SHOW TABLES count as SELECT. In JSON, NaN and infinities are
    null.
    """
    from warehouse.database.sandbox import Limits, select

    text = query_text(query)
    limits = Limits(seconds=timeout, memory=memory)
    # a pager keeps a pipe waiting until its reader turns the page
    clock = time.monotonic if terminal_width() is not None else time.process_time
    printing = None if output.out is not None else clock
    with (
        select(db, text, limits, bound_process=True, printing=printing) as result,
        output.opened(),
    ):
        put(result.columns, result.blocks, named_columns(text, result.columns))


_ALL = re.compile(r"(?:\bselect(?:\s+distinct)?|,|\.)\s*\*", re.IGNORECASE)


def named_columns(query: str, columns: Sequence[str]) -> Sequence[str]:
    """Return the columns of a result that its query names: all, or with * those in its text."""
    if re.search(r"\bselect\b", query, re.IGNORECASE) and not _ALL.search(query):
        return columns
    words = {word.lower() for word in re.findall(r"\w+", query)}
    return [name for name in columns if name.lower() in words]


def query_text(query: str) -> str:
    """Return the query that an argument gives; - is the one on stdin."""
    from warehouse.errors import InputError
    from warehouse.limits import LINE_MARKS, control_character

    if query != "-":
        return query  # the command line is checked already
    try:  # whatever the terminal's encoding is
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeError:
        raise InputError("the query is not UTF-8 text") from None
    if reason := control_character(text, LINE_MARKS):
        raise InputError(f"the query {reason}", "remove it")
    return text
