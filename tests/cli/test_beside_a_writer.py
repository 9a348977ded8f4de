"""Commands beside a process that writes: they read what it published, and wait only to write."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.planning import QUESTION
from tests.shared import TINY_STUDY, Command, held_and_published
from warehouse import Warehouse
from warehouse.database.snapshot import snapshot_path

READING = {
    "status": ("status",),
    "status of a study": ("status", "tiny"),
    "sql": ("sql", "select count(*) from cell"),
    "rank": ("rank", "--model", "gpt3"),
    "cost": ("cost", "--model", "gpt3", "--tokens", "1T"),
    "energy": ("energy", "--model", "gpt3", "--tokens", "1T"),
    "schema": ("schema", "cell"),
    "profiles": ("profiles",),
    "plot": ("plot", "training_days", "--show-sql"),
    "export": ("export", "cell", "--out", "cells.csv"),
    "facts": ("export", "--facts", "facts"),
    "validate": ("validate",),
    "sweep --dry-run": ("sweep", "tiny.toml", "--dry-run"),
    "sweep": ("sweep", "tiny.toml"),
}
"""Commands that have nothing to write where the tiny study is stored."""


def age(database: Path) -> None:
    """Let the snapshot of a database be one of two minutes ago; each snapshot is named once."""
    os.utime(snapshot_path(database), (time.time() - 130,) * 2)


@pytest.fixture
def beside(tiny_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database that another process writes to since two minutes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY_STUDY, encoding="utf-8")
    with held_and_published(tiny_database) as pid:
        age(tiny_database)
        monkeypatch.setenv("HOLDER", str(pid))
        yield tiny_database


def test_a_command_that_only_reads_answers_from_the_snapshot(
    warehouse: Command, beside: Path, subtests: pytest.Subtests
) -> None:
    for name, command in READING.items():
        age(beside)
        with subtests.test(name):
            code, _, err = warehouse(*command, "--wait", 0, "--db", beside)
            assert code == 0, err
            [line] = re.findall("^(.*) writes to it; these are its rows of 2 min.* ago$", err, re.M)
            assert line.startswith(f"{beside}: `python")
            assert line.endswith(f"(process {os.environ['HOLDER']})")
            assert "no sweep is running" not in err


def test_a_command_that_has_to_write_waits(warehouse: Command, beside: Path) -> None:
    (beside.parent / "other.toml").write_text(
        TINY_STUDY.replace('"tiny"', '"other"'), encoding="utf-8"
    )
    for command in (("sweep", "other.toml"), ("drop", "tiny"), ("drop", "unknown")):
        code, _, err = warehouse(*command, "--wait", 0, "--db", beside)
        assert code == 5
        assert "is in use by process" in err


def test_a_plan_whose_layouts_are_stored_answers_from_the_snapshot(
    warehouse: Command, planned_database: Path
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--json", "--db", planned_database)
    wanted = json.loads(warehouse(*asked)[1])
    with held_and_published(planned_database) as pid:
        code, out, err = warehouse(*asked, "--wait", 0)
        assert code == 0, err
        assert f"(process {pid}) writes to it; these are its rows of " in err
        assert json.loads(out) == wanted
        more = ("plan", *QUESTION, "--gpus", 16, "--wait", 0, "--db", planned_database)
        code, out, err = warehouse(*more)
    assert (code, out) == (5, "")
    assert f"is in use by process {pid}" in err


def test_python_reads_the_snapshot_with_a_warning(beside: Path) -> None:
    with pytest.warns(UserWarning, match="these are its rows of 2 minutes ago"):
        assert Warehouse(beside).sql("select count(*) from cell").rows() == [(2,)]
