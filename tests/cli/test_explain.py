"""`warehouse explain`: the parts of a step, and the constants that it depends on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.shared import Command, Document

CONFIGURATION = (
    *("model=llama3_70B", "accelerator=H100 SXM 80GB", "num_gpus=64", "tensor_parallel=8"),
    *("pipeline_parallel=4", "global_batch_size=256"),
)


@pytest.fixture
def explained(warehouse: Command) -> Document:
    def run(*pairs: object) -> Any:
        code, out, err = warehouse("explain", *CONFIGURATION, *pairs, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def test_the_parts_add_up_to_the_step_and_have_a_formula_and_a_source(explained: Document) -> None:
    found = explained()
    assert math.fsum(p["seconds"] for p in found["parts"]) == pytest.approx(found["step_seconds"])
    assert math.fsum(p["step_fraction"] for p in found["parts"]) == pytest.approx(1)
    assert all(p["formula"] and p["source"] for p in found["parts"])
    assert {p["part"] for p in found["parts"]} < set(found["results"])


def test_an_elasticity_is_the_change_of_the_step_when_the_constant_is_given(
    explained: Document,
) -> None:
    constants = {one["name"]: one for one in explained()["constants"]}
    one = constants["product_rate_factor"]
    low, high = (
        explained(f"product_rate_factor={one['value'] * factor!r}")["step_seconds"]
        for factor in (0.99, 1.01)
    )
    assert one["elasticity"] == pytest.approx(math.log(high / low) / math.log(1.01 / 0.99))
    at_lowest = explained(f"product_rate_factor={one['lowest']!r}")["step_seconds"]
    assert one["at_lowest"] == pytest.approx(at_lowest)
    rate = constants["matrix_flops_per_second"]
    assert -1 < rate["elasticity"] < -0.4
    assert rate["lowest"] is None


def test_the_ranges_hold_the_step_and_the_extreme_one_holds_the_likely_one(
    explained: Document,
) -> None:
    found = explained()
    step, likely, extreme = (found[f"{name}step_seconds"] for name in ("", "likely_", "extreme_"))
    assert extreme[0] < likely[0] < step < likely[1] < extreme[1]
    every = [
        end for one in found["constants"] for end in (one["at_lowest"], one["at_highest"]) if end
    ]
    assert extreme[0] <= min(every)
    assert max(every) <= extreme[1]


def test_the_interval_is_that_of_evaluate_and_show(explained: Document) -> None:
    found = explained()
    ends = [found["results"][f"{end}_step_seconds"] for end in ("low", "high")]
    assert ends == pytest.approx(found["likely_step_seconds"], rel=1e-9)


def test_a_choice_of_the_program_says_how_often_it_is_another(explained: Document) -> None:
    constants = {one["name"]: one for one in explained()["constants"]}
    assert 0 < constants["uses_dropout"]["other_share"] < 0.5
    assert constants["gemm_efficiency"]["other_share"] is None
    assert constants["gemm_efficiency"]["cause"] == constants["fp8_gemm_efficiency"]["cause"]


def test_a_constant_that_is_given_has_no_range(explained: Document) -> None:
    constants = {one["name"]: one for one in explained("product_rate_factor=0.7")["constants"]}
    assert constants["product_rate_factor"]["lowest"] is None
    assert constants["product_rate_factor"]["source"] == "given"


def test_the_report_names_step_parts_and_constants(warehouse: Command) -> None:
    code, out, err = warehouse("explain", *CONFIGURATION)
    assert code == 0
    assert " s is the range of a steady step of a tuned program, " in err
    assert "memory 52.0 GB, which fits (over 99 % likely)" in err
    assert "which fits" in err
    lines = out.splitlines()
    assert lines[0].startswith("part")
    assert any(line.startswith("gemm ") for line in lines)
    assert any(line.startswith("step ") for line in lines)
    assert any(line.startswith("product_rate_factor ") for line in lines)


@pytest.mark.long
def test_the_fastest_stored_layout_is_explained(warehouse: Command, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "one"\nestimator = "training_step"\n[space]\nmodel = "llama3_8B"\n'
        'accelerator = "H100 SXM 80GB"\nnum_gpus = [16, 32]\nglobal_batch_size = 64\n'
    )
    database = tmp_path / "w.duckdb"
    assert warehouse("sweep", study, "--db", database)[0] == 0
    code, out, err = warehouse(
        "explain", "model=llama3_8B", "num_gpus=16", "--best", "--json", "--db", database
    )
    assert (code, err) == (0, "")
    # stored constants that equal the defaults have the ranges of the defaults
    best = json.loads(out)
    constants = {one["name"]: one for one in best["constants"]}
    assert "given" not in {one["source"] for one in constants.values()}
    assert constants["hbm_efficiency"]["lowest"] < constants["hbm_efficiency"]["highest"]
    low, high = best["likely_step_seconds"]
    assert low < 0.98 * best["step_seconds"] < 1.05 * best["step_seconds"] < high
    assert [best["results"][f"{end}_step_seconds"] for end in ("low", "high")] == [low, high]
    pinned = ("hbm_efficiency=0.86", "--best", "--json", "--db", database)
    code, known, _ = warehouse("explain", "model=llama3_8B", "num_gpus=16", *pinned)
    constants = {one["name"]: one for one in json.loads(known)["constants"]}
    assert constants["hbm_efficiency"]["source"] == "given"
    query = "select step_seconds as least from configuration_rank where rank_by_time = 1"
    query += " and num_gpus = 16"
    code, least, _ = warehouse("sql", query, "--format", "json", "--db", database)
    assert json.loads(out)["step_seconds"] == pytest.approx(json.loads(least)[0]["least"])
    spelt = warehouse(
        "explain", "model=LLAMA3 8b", "num_gpus=16", "--best", "--json", "--db", database
    )
    assert spelt == (0, out, "")
    code, out, err = warehouse("explain", "model=llama3_8B", "--best", "--db", database)
    assert (code, "stored problems differ in num_gpus; this one has" in err) == (0, True)
    assert best["differing_columns"] == []
    code, out, _ = warehouse("explain", "model=llama3_8B", "--best", "--json", "--db", database)
    assert json.loads(out)["differing_columns"] == ["num_gpus"]
    assert "num_gpus 32" in err
    code, out, err = warehouse(
        "explain", "model=llama3_8B", "num_gpus=16", "--best", "--db", database
    )
    assert (code, "stored problems differ" in err) == (0, False)
    code, out, err = warehouse("explain", "model=gpt3", "--best", "--db", database)
    assert (code, out) == (3, "")
    assert "no stored configuration" in err


def test_faults_are_refused(warehouse: Command) -> None:
    code, out, err = warehouse("explain", *CONFIGURATION, "tensor_parallel=7")
    assert (code, out) == (3, "")
    assert "given twice" in err
    code, out, err = warehouse("explain", "model=llama3_70B", "tensor_parallel=7")
    assert (code, out) == (3, "")


def test_a_default_batch_is_marked_as_default(warehouse: Command) -> None:
    named = ("model=llama3_8B", "accelerator=H100 SXM 80GB", "num_gpus=8")
    code, _, err = warehouse("explain", *named)
    assert code == 0
    assert "as `plan` takes for" in err
    assert "as `plan` takes for" not in warehouse("explain", *named, "global_batch_size=64")[2]
    same = warehouse("explain", "--model", "llama3_8B", "--accelerator", "H100", "--gpus", 8)
    assert same == (code, *warehouse("explain", *named)[1:])
