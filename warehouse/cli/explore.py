"""`warehouse explore`: stored runs in a notebook with sliders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.options import whole_option

NOTEBOOK = "explore.py"


def explore(
    *,
    edit: Annotated[
        bool, typer.Option("--edit", help=f"Edit a copy, {NOTEBOOK} in the working directory.")
    ] = False,
    headless: Annotated[
        bool, typer.Option("--headless", help="Print the address and open no browser.")
    ] = False,
    port: Annotated[
        int | None,
        whole_option("--port", "The port of the page.", show_default="2718 or the next free one"),
    ] = None,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Open stored runs in a notebook: sliders, charts and SQL.

    Choose a model and an accelerator, and set the price of a GPU-hour, PUE, goodput, the price of
    electricity, bounds of MFU and the number of GPUs. Tables, charts and queries follow. It is a
    marimo notebook, examples/explore.py; the page is served on this machine alone until ^C. It only
    reads the database, and keeps it open only during a query. --edit copies the notebook and opens
    the copy; an existing copy is kept. Needs the extra `explore`.
    """
    from importlib.util import find_spec

    from warehouse.database.connection import open_for_read
    from warehouse.database.resources import examples_directory
    from warehouse.errors import InputError
    from warehouse.plot.draw import require_packages

    if find_spec("marimo") is None:
        raise InputError(
            "the notebook needs the package marimo",
            "install it with `pip install 'training-warehouse[explore]'`",
        )
    require_packages()
    # Errors appear before the page opens. The notebook cannot bring an old database up to date.
    open_for_read(db).close()
    notebook = examples_directory() / NOTEBOOK
    if edit:
        copy = Path(NOTEBOOK).resolve()
        if copy.exists():
            say(f"{copy}: is there already, and stays as it is")
        else:
            shutil.copyfile(notebook, copy)
            say(f"{copy}: a copy of the notebook")
        notebook = copy
    options = [*(["--headless"] if headless else []), *(["--port", str(port)] if port else [])]
    command = [sys.executable, "-m", "marimo", "edit" if edit else "run", str(notebook), *options]
    code = subprocess.call([*command, "--", "--db", str(db.resolve())])
    if code:
        raise typer.Exit(code)
