"""`warehouse catalog`: writes an entry of a user's own catalog file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, DatabasePath
from warehouse.options import CatalogFile, text_option


def catalog(
    base: Annotated[
        str, text_option("--from", "NAME", "The accelerator, named cluster or model to start from.")
    ],
    name: Annotated[str, text_option("--name", "NAME", "The name of the new one.")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="What differs, such as nvlink_size=4."),
    ] = None,
    target: Annotated[  # not `out`: nothing is overwritten, so --catalog may name the same file
        Path | None,
        typer.Option(
            "--out", metavar="TOML", readable=False, help="Add the entry to the end of this file."
        ),
    ] = None,
    catalog: CatalogFile = None,
    db: DatabasePath = DEFAULT_DATABASE,
) -> None:
    """Write a cluster or model of your own, as --catalog reads it.

    The entry is based on a known system or model and states what differs, in base units; its other
    values follow in comments. It goes to stdout, or with --out to the end of a file, which keeps
    its entries. `--catalog FILE`, or the setting `catalog`, makes the names of a file known to
    every command: `plan --accelerator H100 --accelerator ours --catalog own.toml` compares two
    clusters. --from takes the names of --catalog and of stored studies, too, and the path of a
    config.json, whose values the entry then states.
    """
    from warehouse.errors import InputError, UsageError
    from warehouse.files import check_target, written_whole
    from warehouse.studies.definitions import (
        Definitions,
        catalog_file,
        known_definitions,
        load_definitions,
    )
    from warehouse.studies.hugging_face import is_model_file
    from warehouse.studies.new_definition import new_definition

    of_catalog, before = catalog_file(catalog), ""
    known = of_catalog.before(known_definitions(db, (base,), catalog))
    if target is not None:
        check_target(target)
        if is_model_file(str(target)):
            raise UsageError(f"`--out` {target}: a catalog is a TOML file", "end its name in .toml")
        own = load_definitions(target) if target.exists() else Definitions()
        before = target.read_text("utf-8").rstrip() + "\n\n" if target.exists() else ""
        known = own.before(known)
        if of_catalog.has(base) and not own.has(base):
            reason = f"{target} has no entry of this name, and could not be read without the other"
            raise InputError(f"`--from` {base}: {reason}", f"give --out {of_catalog.file}")
    text = new_definition(base, name, pairs or (), known, str(target or f"`--name` {name}"))
    if target is None:
        sys.stdout.write(text)
        return
    with written_whole(target) as partial:
        partial.write_text(before + text, encoding="utf-8")
    say(f"{target}: `--catalog {target}` makes {name} known to a command")
