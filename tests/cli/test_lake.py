"""`sweep --lake` and `collect` as commands: what they print, and options that contradict."""

from __future__ import annotations

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


def test_two_shards_are_collected(warehouse: Command, study: Path, tmp_path: Path) -> None:
    lake, db = tmp_path / "lake", tmp_path / "a.duckdb"
    code, out, err = warehouse("sweep", study, "--lake", lake, "--shard", "1/2")
    assert (code, out) == (0, "")
    assert err.startswith("small, shard 1/2: ")
    assert not db.exists()
    code, _, err = warehouse("collect", lake, "--db", db)
    assert code == 0
    assert f"run it again with --lake {lake} --shard 2/2\n" in err
    assert warehouse("sweep", study, "--lake", lake, "--shard", "2/2")[0] == 0
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
