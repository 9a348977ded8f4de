"""`warehouse export` and `warehouse import`: rows as files, and facts from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Overwrite, ReadDatabase
from warehouse.cli.output import IdsAsText
from warehouse.cli.waiting import working
from warehouse.show.formats import count


def export(
    *,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="VIEW|QUERY",
            help="A table or view, or one SELECT; - reads it from stdin.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            readable=False,
            help="Write the rows to this file: .parquet, .csv, .json, .xlsx or .md.",
        ),
    ] = None,
    facts: Annotated[
        Path | None,
        typer.Option(
            "--facts",
            metavar="FOLDER",
            readable=False,
            help="Copy studies, measured runs, profiles and evaluated inputs to a new folder.",
        ),
    ] = None,
    force: Overwrite = False,
    ids_as_text: IdsAsText = False,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Write a query to a file, or all facts to a folder.

    A name of a view or table is its query. Numbers are in base units. The query can read the
    database and nothing else. Excel files need the extra `excel`. Facts are what
    nothing can evaluate again; `warehouse import` stores them in another database and evaluates
    the rest.
    """
    from warehouse.errors import UsageError

    is_half = (query is None) == (facts is None) or (query is None) != (out is None)
    if is_half or (ids_as_text and query is None):
        raise UsageError(
            "give a view or a query with `--out`, or `--facts` alone",
            "warehouse export configuration_rank --out ranks.parquet",
        )
    if out is not None:
        _export_query(db, str(query), out, force=force, ids_as_text=ids_as_text)
    elif facts is not None:
        _export_facts(db, facts, force=force)


def _export_query(db: Path, query: str, out: Path, *, force: bool, ids_as_text: bool) -> None:
    from warehouse.cli.query import query_text
    from warehouse.files import refuse_existing
    from warehouse.transfer.query_file import export_query, format_of

    format_of(out, ids_as_text=ids_as_text)
    refuse_existing(out, force=force)
    with working("writing the file"):
        rows = export_query(
            *(db, query_text(query), out),
            ids_as_text=ids_as_text,
            warn=lambda text: say(f"warning: {text}"),
        )
    say(f"{out}: {count(rows, 'row')}, {out.stat().st_size / 1e6:,.1f} MB")


def _export_facts(db: Path, folder: Path, *, force: bool) -> None:
    from warehouse.errors import UsageError
    from warehouse.rebuild.exchange import export_facts

    if force:
        raise UsageError("`--force` replaces a file, not a folder", "name a new folder")
    with working("writing the folder"):
        done = export_facts(db, folder)
    say(f"{folder}: {count(done.num_facts, 'fact')}, {done.num_bytes / 1e6:,.1f} MB")


def import_(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A folder of facts: FILE.facts, or what `export --facts` wrote.",
            readable=False,
        ),
    ],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Take a folder of facts into the database.

    Facts that the database lacks are stored, and what follows from them is evaluated. A fact of
    the same name must be the same; otherwise nothing is stored. After an interruption the same
    command stores the rest.
    """
    from warehouse.cli.rebuild import say_replayed, sweep_aloud
    from warehouse.errors import CheckError
    from warehouse.rebuild.exchange import import_facts

    done = import_facts(db, folder, sweep_aloud)
    say_replayed(done.replayed)
    new = sum(len(names) for names in done.replayed.names.values())
    say(f"{db}: {count(new, 'new fact')}; {count(done.num_known, 'fact')} stored before")
    if done.replayed.lost:
        raise CheckError(
            f"{folder}: {count(len(done.replayed.lost), 'fact')} could not be stored",
            "the reasons are above; all others are stored",
        )
