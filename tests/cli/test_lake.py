"""`sweep --lake` and `collect` as commands: output, and contradicting options."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.shared import Command

STUDY = """
name = "small"
estimator = "roofline"
variant = "published"
[space]
model = "gpt3"
accelerator = "A100"
num_gpus = [8, 16, 32, 64, 128]
global_batch_size = 512
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    place = tmp_path / "small.toml"
    place.write_text(STUDY)
    return place


@pytest.mark.long
def test_two_shards_are_collected(
    warehouse: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, db = tmp_path / "lake", tmp_path / "a.duckdb"
    code, out, err = warehouse("sweep", study, "--lake", lake, "--shard", "1/2")
    assert (code, out) == (0, "")
    assert err.startswith("small, shard 1/2: ")
    assert not db.exists()
    code, _, err = warehouse("collect", lake, "--db", db)
    assert code == 4
    assert "all others are stored" in err
    [again] = re.findall(r"run it again with `warehouse (.*)`", err)
    assert shlex.split(again) == ["sweep", "small", "--lake", str(lake), "--shard", "2/2"]
    monkeypatch.chdir(tmp_path)
    study.rename(tmp_path / "elsewhere")  # as on a machine that has no such file
    assert warehouse(*shlex.split(again))[0] == 0
    (tmp_path / "elsewhere").rename(study)
    code, _, err = warehouse("collect", lake, "--db", db)
    assert code == 0
    assert "stored before" in err
    assert "run it again" not in err
    code, _, err = warehouse("sweep", study, "--db", db)
    assert "nothing to do, all" in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--shard", "1/2"), "`--shard` needs `--lake DIR`"),
        (("--engine", "local"), "`--engine` needs `--lake DIR`"),
        (("--lake", "lake", "--shards", 2), "`--shards` needs `--engine`"),
        (("--lake", "lake", "--engine-option", "a=b"), "`--engine-option` needs `--engine`"),
        (("--lake", "lake", "--shard", "3/2"), "`--shard` '3/2' must be I/N"),
        (("--lake", "lake", "--workers", 2), "`--workers` cannot be combined with `--lake`"),
        (("--lake", "lake", "--force"), "`--force` cannot be combined with `--lake`"),
        (("--lake", "lake", "--engine", "ray"), "`--engine` ray needs `--shards N`"),
        (("--lake", "lake", "--engine", "local", "--shard", "1/2"), "leave `--shard` out"),
        (
            ("--lake", "lake", "--engine", "local", "--engine-option", "partition"),
            "`--engine-option` 'partition' must be NAME=VALUE",
        ),
    ],
)
def test_options_that_contradict_are_refused(
    options: tuple[str, ...],
    reason: str,
    warehouse: Command,
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = warehouse("sweep", study, *options)
    assert code == 2
    assert reason in err
    assert not (tmp_path / "lake").exists()


def test_slurm_is_refused_where_there_is_none(
    warehouse: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ("sweep", study, "--lake", tmp_path / "lake", "--engine", "slurm", "--shards", 2)
    code, _, err = warehouse(*command)
    assert code == 2
    assert "srun" in err
    assert "--engine local" in err


@pytest.mark.long
def test_a_dry_run_says_what_one_shard_would_do(
    warehouse: Command, study: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    def sizes(*options: str) -> dict[str, int]:
        code, out, err = warehouse("sweep", study, "--lake", lake, *options, "--dry-run", "--json")
        assert code == 0, err
        [found] = json.loads(out)
        return {key: value for key, value in found.items() if key.startswith(("cells", "missing"))}

    parts = [sizes("--shard", f"{number}/2") for number in (1, 2)]
    whole = sizes("--engine", "local")
    assert not lake.exists()
    assert {key: sum(part[key] for part in parts) for key in whole} == whole
    assert whole["missing_cells"] == whole["cells"] == 5
    assert all(part["cells"] for part in parts)

    assert warehouse("sweep", study, "--lake", lake, "--shard", "1/2")[0] == 0
    assert sizes("--shard", "1/2") == {**parts[0], "missing_cells": 0, "missing_rows": 0}
    assert sizes("--shard", "2/2") == parts[1]
    code, _, err = warehouse("sweep", study, "--lake", lake, "--shard", "1/2", "--dry-run")
    assert (code, err.splitlines()[0]) == (
        0,
        f"small, shard 1/2: all {parts[0]['cells']} cells are in {lake} already",
    )


def test_a_study_whose_name_is_too_long_for_a_file_is_refused_by_its_name(
    warehouse: Command, study: Path, tmp_path: Path
) -> None:
    study.write_text(STUDY.replace("small", "é" * 100))
    code, _, err = warehouse("sweep", study, "--lake", tmp_path / "lake")
    assert code == 3
    assert "`name` ééé" in err
    assert " is too long: " in err
    assert "\nhint: take a shorter `name`" in err
    assert not (tmp_path / "lake").exists()
