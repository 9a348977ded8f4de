"""Options of commands alone: the database, the figures and what a command does with them.

`warehouse.options` declares the options of questions. A command takes a group of options as one
parameter, of which `groups.expanded` gives typer the fields::

    def rank(*, problem: RankFilters, top: Top = None, output: Output) -> None: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from estimators import registry
from warehouse import settings
from warehouse.database.access import READER_SECONDS, WRITER_SECONDS
from warehouse.errors import UsageError
from warehouse.options import Variant, number_option, text_option, whole_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Mends
    from estimators.estimator import Estimator

DEFAULT_DATABASE = settings.usual_database()
"""The database where neither an option nor a setting names another."""


def _remember(context: typer.Context, database: Path) -> Path:
    """Take the settings' database if none was given, and note it for errors that do not name it."""
    source = context.get_parameter_source("db")
    if source is not None and source.name == "DEFAULT" and not context.resilient_parsing:
        database = settings.database()
    if isinstance(context.obj, dict):
        context.obj["database"] = database
    return database


_DATABASE = typer.Option(
    "--db",
    envvar="WAREHOUSE_DB",
    metavar="PATH",
    help="The database file.",
    readable=False,  # typer would call a file that may not be read wrong usage
    callback=_remember,
)


class Opened(NamedTuple):
    """Marks a database that a command opens: `groups.expanded` adds option --wait."""

    writes: bool = False


DatabasePath = Annotated[Path, _DATABASE]
"""A database that is named, but not opened."""
Database = Annotated[Path, _DATABASE, Opened(writes=True)]
"""A database that the command writes to, or may write to."""
ReadDatabase = Annotated[Path, _DATABASE, Opened()]
"""A database that the command only reads."""

Wait = Annotated[
    float | None,
    number_option(
        "--wait",
        "Wait this long for a database that another process has open.",
        metavar="SECONDS",
        show_default=f"{WRITER_SECONDS:g} to write, {READER_SECONDS:g} to read",
        envvar="WAREHOUSE_WAIT",
        least=0,
    ),
]
Mend = Annotated[
    str | None,
    text_option("--mend", "R1,R2", "Mend these errata only; the same as --variant R1,R2."),
]
UsualEstimator = Annotated[
    str | None,
    text_option(
        "--estimator", "NAME", "Use this estimator.", show_default=registry.default("measure")
    ),
]
Relation = Annotated[
    str | None,
    text_option(
        "--relation", "NAME", "The grain of the results.", show_default="the estimator's first"
    ),
]

Top = Annotated[int | None, whole_option("--top", "Rows to show at most.")]
Best = Annotated[
    bool, typer.Option("--best", help="Take the fastest stored layout that passes the filters.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be evaluated; write nothing.")
]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Sweep more than 50 million rows, or more than the disk has free."),
]
IntoDatabase = Annotated[
    bool, typer.Option("--into-db", help="Store the rows in the database as well.")
]
WithInterval = Annotated[
    bool,
    typer.Option(
        "--interval/--no-interval",
        help="Add both ends of the interval of the step: two evaluations a constant.",
    ),
]
Name = Annotated[str | None, text_option("--name", "NAME", "Store the result under this name.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the one stored under that name.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Drop = Annotated[
    str | None,
    text_option("--drop", "NAME", "Remove what is stored under this name; show nothing."),
]


@dataclass(frozen=True)
class Mending:
    """Which errata are mended."""

    variant: Variant = None
    mend: Mend = None

    def mends(self, estimator: Estimator) -> Mends:
        """Return the mends of one variant; by default all."""
        from warehouse.studies.variants import mends_of_options

        return mends_of_options(estimator, self.variant, self.mend)


def refuse_given(options: Mapping[str, object], reason: str, hint: str) -> None:
    """Raise `UsageError` for the first of the options that was given."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(f"`{name}` {reason}", hint)


def chosen_estimator(named: str | None, former: str | None) -> Estimator:
    """Return the estimator of `--estimator`, or of the first argument, its `former` place."""
    if former is not None:
        from warehouse.cli.common import say

        if named is not None:
            given = f"the estimator is given twice: {former}, {named}"
            raise UsageError(given, f"leave {former} out")
        say("deprecated: use --estimator")
    return registry.get(named or former or registry.default("measure"))
