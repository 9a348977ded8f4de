"""`warehouse explore`: the program that it starts, and refusals before that."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.shared import Command
from warehouse.database.resources import examples_directory

Started = list[list[str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The processes that would have been started."""
    commands: Started = []

    def call(command: list[str]) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    return commands


def test_the_notebook_runs_on_the_database(
    warehouse: Command, empty_warehouse: Path, started: Started
) -> None:
    assert warehouse("explore", "--headless", "--port", 2800, "--db", empty_warehouse)[0] == 0
    ((program, *command),) = started
    notebook = str(examples_directory() / "explore.py")
    assert program == sys.executable
    assert command[:4] == ["-m", "marimo", "run", notebook]
    assert command[4:] == ["--headless", "--port", "2800", "--", "--db", str(empty_warehouse)]


def test_a_copy_is_edited_and_kept(
    warehouse: Command,
    empty_warehouse: Path,
    started: Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "explore.py"
    assert warehouse("explore", "--edit", "--db", empty_warehouse)[0] == 0
    assert copy.read_bytes() == (examples_directory() / "explore.py").read_bytes()
    copy.write_text("mine", encoding="utf-8")
    code, _, err = warehouse("explore", "--edit", "--db", empty_warehouse)
    assert (code, copy.read_text("utf-8")) == (0, "mine")
    assert "stays as it is" in err
    for command in started:
        assert command[1:5] == ["-m", "marimo", "edit", str(copy)]


def test_nothing_is_started_without_a_database(
    warehouse: Command, tmp_path: Path, started: Started
) -> None:
    code, _, err = warehouse("explore", "--edit", "--db", tmp_path / "missing.duckdb")
    assert code == 5
    assert "missing.duckdb" in err
    assert not started
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_hint_installs_it(
    warehouse: Command,
    empty_warehouse: Path,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec

    def without_marimo(name: str, package: str | None = None) -> object:
        return None if name == "marimo" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_marimo)
    code, _, err = warehouse("explore", "--db", empty_warehouse)
    assert code == 3
    assert "pip install 'training-warehouse[explore]'" in err
    assert not started


def test_the_exit_code_is_that_of_the_page(
    warehouse: Command, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "call", lambda _: 2)
    assert warehouse("explore", "--db", empty_warehouse)[0] == 2


@pytest.mark.long
def test_the_page_is_served(empty_warehouse: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "warehouse.cli.main", "explore", "--headless"]
    options = ["--port", str(port), "--db", str(empty_warehouse)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        page = ""
        while not page and process.poll() is None:
            try:
                with urlopen(f"http://127.0.0.1:{port}") as answer:
                    page = answer.read().decode()
            except OSError:
                time.sleep(0.2)
        process.send_signal(2)
    assert "Explore a training warehouse" in page
