"""`warehouse plan` of every estimator: a plan, or a refusal with a reason; formats and files."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest

from estimators import registry
from tests.shared import Command
from tests.toy_estimator import TOY
from warehouse.database.catalog import packaged_catalog

RUN = ("--model", "gpt3_1.3B", "--tokens", "1e9", "--batch", 64)
H100 = ("--accelerator", "H100 SXM 80GB")
TOY_RUN = ("plan", *RUN, "--accelerator", "H200", "--estimator", "toy")
PARAMETERS = 12 * 24 * 2048**2
STEP_TOKENS = 64 * 2048


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_every_estimator_plans_or_refuses_with_a_reason(
    warehouse: Command, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "none.duckdb"
    question = ("plan", *RUN, *H100, "--gpus", 4, "--estimator", name)
    code, out, err = warehouse(*question, "--dry-run", "--db", path)
    assert not path.exists()
    if registry.get(name).can_plan:
        assert code == 0, err
        assert out.startswith("1. sweep 4 GPUs: ")
        return
    assert (code, out) == (2, "")
    assert f"`--estimator` {name} cannot plan a run: it does not search" in err
    assert f"hint: use {' or '.join(registry.with_capability('can_plan'))}\n" in err


def step_seconds(num_gpus: int) -> float:
    """Return the toy's step without an all-reduce: 6 FLOPs a parameter and token at the peak."""
    peak = packaged_catalog().find("system", "H200")["matrix_flops_per_second"]
    return 6 * PARAMETERS * STEP_TOKENS / (num_gpus * float(peak or 0))


@pytest.mark.usefixtures("toy", "same_answers")
@pytest.mark.long
def test_the_toy_estimator_is_planned(warehouse: Command, tmp_path: Path) -> None:
    path = tmp_path / "toy.duckdb"
    code, out, err = warehouse(*TOY_RUN, "--gpus", 4, "--json", "--db", path)
    assert code == 0, err
    found = json.loads(out)
    best = found["layouts"][0]
    assert (best["data_parallel"], best["tensor_parallel"]) == (1, 4)
    assert best["step_seconds"] == pytest.approx(step_seconds(4))
    # 1e9 tokens are 7,629.4 steps of 131,072
    assert found["training_seconds"] == pytest.approx(7_630 * step_seconds(4))
    assert found["question"]["shape"] == {"num_layers": 24, "hidden_size": 2048, "seq_len": 2048}
    assert found["question"]["variant"] == "corrected"
    assert found["likely_training_seconds"] is None
    assert found["track_record"] is None

    code, out, err = warehouse(*TOY_RUN, "--gpus", 4, "--details", "--db", path)
    assert code == 0, err
    assert out.startswith(
        "gpt3_1.3B, 1 B tokens on 4 H200\n24 layers of 2,048, sequences of 2,048;"
    )
    assert "  basis    no published step checks it; `warehouse measure` takes yours\n" in out
    # choices that it does not have are no columns
    layouts = re.split(r"The best \d+ layouts on 4 GPUs\n\n", out)[1].split("\n\n")[0]
    assert "  TP  " in layouts
    assert "NULL" not in layouts
    held = ("--gpus", 4, "tensor_parallel=2", "--dry-run", "--db", path)
    assert "every layout has tensor_parallel 2\n" in warehouse(*TOY_RUN, *held)[2]


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_the_toy_estimator_is_planned_within_limits(warehouse: Command, tmp_path: Path) -> None:
    # the time of 5 GPUs and a bit: 4 GPUs are too slow, and 5 do not divide anything
    days = 7_630 * step_seconds(5) * 1.01 / 86400
    question = (*TOY_RUN, "--days", days, "--max-gpus", 16, "--db", tmp_path / "toy.duckdb")
    code, out, err = warehouse(*question, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["training_seconds"] <= days * 86400
    assert found["num_gpus"] == 8
    assert {line["num_gpus"] for line in found["counts"]} >= {4, 8, 16}


@pytest.mark.long
@pytest.mark.usefixtures("toy")
def test_without_a_default_a_batch_must_be_given(
    warehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TOY), "layer_parameters", lambda *_: (math.nan, math.nan))
    path = tmp_path / "none.duckdb"
    batch = RUN.index("--batch")
    question = ("plan", *RUN[:batch], *TOY_RUN[-4:], "--gpus", 4, "--dry-run", "--db", path)
    code, _, err = warehouse(*question)
    assert code == 2
    assert "no batch is given, and toy has no default\nhint: give --batch" in err
    code, _, err = warehouse(*question, "--batch", 64)
    assert code == 0, err
    assert "24 layers of 2,048, sequences of 2,048\n" in err


# ---- formats and numbers ----


def test_numbers_are_read_as_people_write_them(warehouse: Command, tmp_path: Path) -> None:
    said = set()
    for tokens in ("1e9", "1B", "1_000_000_000", "1,000,000,000"):
        arguments = ("plan", "--model", "gpt3_1.3B", *H100, "--tokens", tokens, "--num-gpus", 4)
        code, out, err = warehouse(*arguments, "--dry-run", "--db", tmp_path / "none.duckdb")
        assert code == 0, err
        assert "1 B tokens" in err
        said.add((out, err))
    assert len(said) == 1


def test_the_stages_of_a_dry_run_are_rows_for_programs(warehouse: Command, tmp_path: Path) -> None:
    question = ("plan", *RUN, *H100, "--days", 3, "--max-gpus", 4, "--dry-run")
    code, out, err = warehouse(*question, "--json", "--db", tmp_path / "none.duckdb")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["stage"] for row in rows] == [1, 2, 3]
    assert [row["action"].split()[0] for row in rows] == ["sweep", "sweep", "read"]


@pytest.mark.long
@pytest.mark.usefixtures("same_answers")
def test_a_plan_is_written_in_every_format(
    warehouse: Command, planned: tuple[Path, dict[str, object], str], tmp_path: Path
) -> None:
    from tests.cli.planning import QUESTION

    path, found, _ = planned
    question = ("plan", *QUESTION, "--gpus", 8, "--details", "--db", path)
    layouts = found["layouts"]
    assert isinstance(layouts, list)
    target = tmp_path / "plan.csv"
    code, out, err = warehouse(*question, "--out", target)
    assert (code, out) == (0, ""), err
    with target.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["step_seconds"]) for row in rows] == [
        layout["step_seconds"] for layout in layouts
    ]
    code, out, err = warehouse(*question, "--format", "markdown", "--show-sql")
    assert code == 0, err
    headings = [line for line in out.splitlines() if line.startswith("## ")]
    assert headings == [
        "## The best 3 layouts on 8 GPUs",
        "## Cost of the best layout",
        "## Energy and carbon of the best layout",
        "## Parts of the step",
        "## Other GPU counts",
        "## Uncertainty",
    ]
    assert out.startswith("gpt3_1.3B, ")
    assert "\n- layout: dp8 " in out
    assert "| rank" in out
    assert "\n```sql\n-- layouts\nselect\n" in out
