"""A named cluster has a price and a power of its own in rows and views."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command

pytestmark = pytest.mark.long

NAMES = ("p5", "H100 SXM 80GB", "a3-mega", "a4", "Leonardo", "JUPITER", "GH200 96GB", "MI355X")


@pytest.fixture(scope="module")
def stored(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copyfile(empty_warehouse, tmp_path_factory.mktemp("own") / "rows.duckdb"))


def test_rows_of_clusters_are_published_systems_with_their_own_prices(
    warehouse: Command, stored: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    lines = [f"{name},gpt3_1.3B,16,2" for name in NAMES]
    rows.write_text("\n".join(["accelerator,model,num_gpus,tensor_parallel", *lines]))
    options = ("--into-db", "--no-interval", "--db", stored)
    out = tmp_path / "out.csv"
    code, _, err = warehouse(
        "evaluate", "--estimator", "training_step", rows, "--out", out, *options
    )
    assert code == 0, err
    with duckdb.connect(str(stored), read_only=True) as connection:
        facts = connection.execute(
            "select problem_group.accelerator, stored_problem.product,"
            " problem_group.is_published_system, problem_group.assumptions,"
            " stored_problem.num_changed_constants"
            " from problem_group inner join stored_problem using (problem_id)"
        ).fetchall()
        rates = dict(
            connection.execute(
                "select accelerator, usd_per_gpu_hour from gpu_hour_rate"
                " where basis = 'on_demand' and coalesce(year, 2026) = 2026"
            ).fetchall()
        )
        power = dict(
            connection.execute(
                "select accelerator, watts_per_gpu from gpu_power"
                " where power_basis = 'accelerator_alone'"
            ).fetchall()
        )
    products = {name: product for name, product, *_ in facts}
    assert products == {
        **{name: name for name in NAMES},
        "p5": "H100 SXM 80GB",
        "a3-mega": "H100 SXM 80GB",
        "a4": "B200 SXM 180GB",
        "Leonardo": "A100 SXM 40GB",
        "JUPITER": "GH200 96GB",
    }
    assert {tuple(others) for _, _, *others in facts} == {(True, None, 0)}
    assert (rates["p5"], rates["a3-mega"]) == (6.88, 11.6751)
    # the quote of a3-mega is none of H100: of ten vendors the middle one is Nebius
    assert rates["H100 SXM 80GB"] == 4.5
    # not sold on demand, and not sold at all
    assert (rates["a4"], rates["Leonardo"]) == (None, None)
    assert (power["p5"], power["JUPITER"], power["GH200 96GB"]) == (700, 580, 700)


def test_a_budget_is_spent_at_the_price_of_the_cluster(warehouse: Command, tmp_path: Path) -> None:
    run = ("plan", "--model", "gpt3_1.3B", "--tokens", "20G", "--batch", 64, "--max-gpus", 8)
    database = tmp_path / "plan.duckdb"
    limits = ("--budget-usd", 200, "--dry-run", "--db", database)
    # 40.7 GPU-hours of an H100 at its peak rate (test_plan_limits), at 6.88 and at 4.5 USD
    code, _, err = warehouse(*run, "--accelerator", "p5", *limits)
    assert code == 3
    assert "cost at least 280 USD at 6.88 USD/GPU-hour" in err
    assert warehouse(*run, "--accelerator", "H100", *limits)[0] == 0
    code, _, err = warehouse(*run, "--accelerator", "Leonardo", *limits)
    assert code == 3
    assert "no price of an hour of Leonardo is published" in err


def test_an_answer_for_a_chip_without_measurements_says_so_and_has_a_wide_range(
    warehouse: Command, stored: Path
) -> None:
    def planned(name: str) -> tuple[float, str]:
        run = ("--model", "gpt3_1.3B", "--tokens", "20G", "--batch", 64, "--gpus", 8)
        place = ("--accelerator", name, "--db", stored)
        code, out, err = warehouse("plan", *run, *place, "--json")
        assert code == 0, err
        low, high = json.loads(out)["likely_training_seconds"]
        text = " ".join(warehouse("plan", *run, *place)[1].split())
        return high / low, text[text.index("basis ") : text.index("assumes ")]

    widths, words = zip(*(planned(name) for name in ("p5", "H20", "MI355X")), strict=True)
    formula = "no kernels of {} were measured: its matmuls follow a formula of a wide range"
    for name, text in zip(("H20 SXM 96GB", "MI355X"), words[1:], strict=True):
        assert formula.format(name) in text
    assert "none on MI355X" in words[2]
    assert "were measured" not in words[0]
    assert min(widths[1:]) > 1.3 * widths[0]
