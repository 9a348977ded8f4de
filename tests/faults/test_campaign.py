"""A short campaign: kills, limits and odd input, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def campaign(out: Path, *arguments: object) -> list[dict[str, Any]]:
    """Run the program; return what each trial showed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--out", out, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.mark.long
def test_a_killed_shard_loses_no_finished_cell(tmp_path: Path) -> None:
    trials = campaign(tmp_path / "out", "--trials", 2, "--seed", 1, "--phase", "shard")
    assert [trial["lost"] for trial in trials] == [[], []]
    assert all(trial["is_hit"] for trial in trials)


@pytest.mark.long
def test_a_killed_sweep_loses_no_committed_group(tmp_path: Path) -> None:
    [trial] = campaign(tmp_path / "out", "--trials", 1, "--seed", 1, "--phase", "sweep")
    assert trial["is_hit"] and not trial["lost"]
