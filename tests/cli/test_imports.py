"""What commands import: start-up is the time of imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli.commands import COMMANDS

ASK = """if True:
    import sys
    before = set(sys.modules)
    from warehouse.cli.main import run
    code = run(sys.argv[1:])
    names = {name.partition(".")[0] for name in set(sys.modules) - before}
    print(code, *names - sys.stdlib_module_names)
    print(*(name for name in sys.modules if name.startswith(("warehouse.cli.", "estimators."))))
"""

ASK_EACH = """if True:
    import os
    import sys
    before = set(sys.modules)
    from warehouse.cli.main import run
    sys.stdout = open(os.devnull, "w")
    for name in sys.argv[1:]:
        code = run([name, "--help"])
        names = {each.partition(".")[0] for each in set(sys.modules) - before}
        print(name, code, *names - sys.stdlib_module_names, file=sys.__stdout__)
        before = set(sys.modules)
"""
"""What each command imports that no command before it did."""

COMMAND_LINE = {"warehouse", "estimators", "typer", "annotated_doc", "shellingham"}


def imported(*arguments: object, **environment: str) -> tuple[set[str], set[str]]:
    """Packages, and modules of command line and estimators, that a fresh process imports."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    packages, modules = done.stdout.splitlines()[-2:]
    code, *names = packages.split()
    assert code == "0", done.stderr
    return set(names), set(modules.split())


def test_help_imports_typer_and_no_command() -> None:
    packages, modules = imported("--help")
    assert packages <= COMMAND_LINE
    assert "estimators.columns" not in modules  # it reads the data dictionary
    assert not modules & {f"warehouse.cli.{entry.module or entry.name}" for entry in COMMANDS}


@pytest.mark.long
def test_the_help_of_a_command_imports_no_library_but_typer() -> None:
    names = [entry.name for entry in COMMANDS]
    command = [sys.executable, "-c", ASK_EACH, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {name: rest for name, *rest in map(str.split, done.stdout.splitlines())}
    assert list(found) == names
    for name, (code, *packages) in found.items():
        assert (name, code, {*packages} - COMMAND_LINE) == (name, "0", set())


def test_a_query_imports_duckdb_and_neither_arrays_nor_estimators(empty_warehouse: Path) -> None:
    packages, _ = imported("sql", "select 1", "--db", empty_warehouse)
    assert packages <= {*COMMAND_LINE, "duckdb", "_duckdb"}


def test_a_new_database_is_made_without_duckdb(empty_warehouse: Path, tmp_path: Path) -> None:
    assert empty_warehouse.exists()  # so that the cache has what a new one is copied from
    packages, _ = imported("init", "--db", tmp_path / "new.duckdb")
    assert packages <= COMMAND_LINE


@pytest.mark.parametrize(
    "arguments",
    [("rank", "--model", "gpt3_1T"), ("cost", "--tokens", "1e12"), ("energy", "--tokens", "1e12")],
    ids=" ".join,
)
def test_stored_rows_are_read_without_arrays(
    warehouse: Command, quickstart: Quickstart, arguments: tuple[str, ...]
) -> None:
    warehouse(*arguments, "--db", quickstart.database)  # fills the cache of this version
    packages, _ = imported(*arguments, "--db", quickstart.database)
    assert packages <= {*COMMAND_LINE, "duckdb", "_duckdb"}
