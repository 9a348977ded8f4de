"""`warehouse plan --launch`: the file of the best layout, which `why --from` reads as the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.planning import QUESTION
from tests.shared import Command

GPUS = ("--gpus", 16)


@pytest.mark.parametrize(
    ("program", "name"), [("megatron", "run.sh"), ("bridge", "run_config.yaml")]
)
def test_the_launch_has_the_step_of_the_plan(
    program: str, name: str, warehouse: Command, tmp_path: Path
) -> None:
    database, document = tmp_path / "plan.duckdb", tmp_path / "plan.json"
    common = (*QUESTION, *GPUS, "--db", database)
    code, out, err = warehouse("plan", *common, "--launch", program, "--out", document)
    assert code == 0, err
    best = json.loads(document.read_text())["layouts"][0]
    file = tmp_path / name
    file.write_text(out)
    place = ("--accelerator", "H100 SXM 80GB", "--json", "--db", database)
    code, out, err = warehouse("why", "--from", file, *place)
    assert code == 0, err
    found = json.loads(out)
    assert found["results"]["step_seconds"] == pytest.approx(best["step_seconds"], rel=1e-6)
    assert found["question"]["launch"]["unknown"] == []
    assert found["question"]["launch"]["not_modelled"] == {}


def test_stdout_has_the_launch_alone(warehouse: Command, tmp_path: Path) -> None:
    common = (*QUESTION, *GPUS, "--db", tmp_path / "plan.duckdb")
    code, out, err = warehouse("plan", *common, "--launch", "megatron", "--slurm")
    assert code == 0, err
    assert out.startswith("#!/usr/bin/env bash\n#SBATCH ")
    assert "  layout " not in out
    assert "  layout " in err
    assert "--nodes=2\n" in out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--launch", "deepspeed"), "launch files of DeepSpeed are read, not written"),
        (("--launch", "jax"), "is not a program that is known"),
        (("--slurm",), "`--slurm` is for a launch file"),
        (("--launch", "megatron", "--dry-run"), "without --dry-run"),
        (("--launch", "megatron", "--gpus", 8), "starts one layout"),
        (("--launch", "torchtitan"), "`framework`"),
    ],
)
def test_what_cannot_be_launched_is_refused(
    options: tuple[object, ...], reason: str, warehouse: Command, tmp_path: Path
) -> None:
    code, out, err = warehouse("plan", *QUESTION, *GPUS, *options, "--db", tmp_path / "p.duckdb")
    assert code != 0
    assert reason in " ".join(err.split())
    assert out == ""
