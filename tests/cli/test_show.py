"""`warehouse show` prints one configuration, in the source's own form where it has one."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.shared import Command
from warehouse.cli.main import run

DATAFLOW = (
    "show --estimator dataflow cluster_flop_rate=156e12 num_experts=8 batch_size=8192 seq_len=8192 "
    "dataset_size=13e12 num_layers=120 d_model=15360 p_pipe=15 p_data=16 p_seq=1 p_exp=8 "
    "p_tensor_int=8 p_tensor_ext=1"
)
DATAFLOW_README = """\
N: 2.267e+12 (2.834e+11 effective)
D: 1.300e+13
b: 8192 (microbatch size must be in [16, 32, 64, 128] to be efficient)
P: 15360 = {TENSOR_EXT: 1, DATA: 16, TENSOR_INT: 8, SEQ: 1, EXP: 8, PIPE: 15}


FULL TRAINING RUN COST
    Metric            Fwd            Bwd          Total
      FLOP      8.198e+24      1.640e+25      2.460e+25
        Tx      1.923e+20      2.308e+20      4.231e+20
        Rx      3.746e+20      3.746e+20      7.492e+20
       net      5.669e+20      6.054e+20      1.172e+21

Cluster FLOP/sec:    1.560e+14
Cluster bytes/sec:   1.487e+10 (5.367e+09 Tx, 9.501e+09 Rx)

Total FLOP/sec:      2.396e+18
Total bytes/sec:     2.284e+14 (8.243e+13 Tx, 1.459e+14 Rx)

Runtime:             118.8 days
"""
PIPELINE = (
    "show --estimator pipeline chip=A100_40GB n_layers=120 d_model=12288 batch_size=30720 "
    "microbatch_size=48 n_experts=16 n_routed_experts=2 pp=15 pipeline_interleaving=8 tp=8 dp=12"
)
PIPELINE_README = """\
Model Shape: 120 x (12288 x 61440) (top 2 of 16 routing)
Parameters: 2.90e+12, Training Tokens: 5.80e+13
23040 A100_40GBs
Pipeline steps: 15 stages x 8 interleaving; boundary interval: 1; bubble layers: 14
FLOP per batch: 1.37e+20
Matmuls per chip per layer: 2 matrices x 1 experts = 2
Matmul shape: 7680 d_int x 12288 d_model x 1024 tokens

BATCH TIME
Pipeline bubble time:    0.0273 secs
Pipeline full time:      9.5150 secs
Gradient reduction:      0.0050 secs
Total batch time:        9.5473 secs

Utilization:             0.9966

TOTAL RUN TIME
101.8 days
"""


def show(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert run(command.split()) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 3) -> str:
    assert run(["show", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_the_dataflow_example_of_the_source_prints_as_in_its_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert show(capsys, DATAFLOW).startswith(DATAFLOW_README + "\n")


def test_the_pipeline_example_of_the_source_prints_as_in_its_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = show(capsys, f"{PIPELINE} source_version=readme")
    assert out.startswith(PIPELINE_README + "\n")


def test_times_of_runs_are_in_hours_minutes_or_seconds_by_length(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = []
    for rate in ("156e12", "156e14", "156e17", "156e19"):
        out = show(capsys, DATAFLOW.replace("156e12", rate))
        [line] = [line for line in out.splitlines() if line.startswith("Runtime:")]
        times.append(line.removeprefix("Runtime:").strip())
    assert times == ["118.8 days", "1.2 days", "1.7 minutes", "1.0 seconds"]


def test_corrected_figures_are_next_to_published_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both, published = show(capsys, PIPELINE), show(capsys, f"{PIPELINE} --variant published")
    assert "mends: P1, P2, P3, P4" in both
    assert "(as published: 169.7 days)" in both
    assert "as published:" not in published
    assert "mends: none, as published" in published
    one = show(capsys, f"{PIPELINE} --mend P2")
    assert "mends: P2" in one


def test_what_was_not_given_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show(capsys, PIPELINE).splitlines()
    marked = {line.split()[0] for line in lines if line.endswith(" *")}
    assert {"base_utilization", "internal_size", "dataset_tokens"} <= marked
    assert not {"num_layers", "hidden_size", "accelerator"} & marked


@pytest.mark.parametrize(
    ("command", "name", "value"),
    [
        (DATAFLOW, "training_seconds", 10266890.442985239),
        (PIPELINE + " --variant published", "step_seconds", 15.907947705895387),
        (
            "show --estimator linear_layer flop_per_sec_8bit=1979e12 global_Bps=3352e9 "
            "net_Bps=900e9 d_in=16384 d_out=81920 tp_in=8 tp_out=40 dp=32 b=32_768",
            "forward_backward_seconds",
            3.2554072481051035e-05,
        ),
        (
            "show --estimator run_optimizer accelerator=A100",
            "training_seconds",
            1603334936668.2705,
        ),
        (
            "show --estimator roofline model=gpt3_1T accelerator=A100 num_gpus=1024 "
            "tensor_parallel=8 pipeline_parallel=32",
            "step_seconds",
            None,
        ),
    ],
)
def test_json_has_base_units_for_every_estimator(
    capsys: pytest.CaptureFixture[str], command: str, name: str, value: float | None
) -> None:
    found = json.loads(show(capsys, command + " --json"))
    assert found["estimator"] == command.split()[2]
    if value is not None:
        assert found["results"][name] == pytest.approx(value, rel=1e-6)
    assert found["results"][name] > 0
    assert set(found["given"]) <= set(found["inputs"])


def test_csv_has_the_values_of_json_a_row_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = json.loads(show(capsys, f"{PIPELINE} --json"))
    target = tmp_path / "one.csv"
    assert show(capsys, f"{PIPELINE} --out {target}") == ""
    rows = {
        row["column"]: row
        for row in csv.DictReader(target.read_text(encoding="utf-8").splitlines())
    }
    assert set(rows) == {*found["inputs"], *found["results"]}
    assert {name for name, row in rows.items() if row["source"] == "given"} == set(found["given"])
    for name, value in found["results"].items():
        assert rows[name]["source"] == "result"
        assert value is None or float(rows[name]["value"]) == value


def test_markdown_of_one_configuration_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show(capsys, f"{PIPELINE} --format markdown").splitlines()
    assert lines[0].split("|")[1:4] == [" column ", " value ", " source "]
    assert any("data_parallel" in line and "| given" in line for line in lines)


def test_an_own_system_may_be_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[systems.fast]\nbased_on = "H200"\nnetwork_bytes_per_second = 400e9\n')
    out = show(
        capsys,
        "show --estimator roofline model=gpt3_1T accelerator=fast num_gpus=64 --json "
        f"--catalog {own}",
    )
    assert json.loads(out)["inputs"]["network_bytes_per_second"] == 400e9


def test_every_wrong_key_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(
        capsys, "pipeline", "step_seconds=3", "hiden_size=4", "n_layers=3", "num_layers=3"
    )
    assert '`step_seconds` "3" is computed, not given' in error
    assert '`hiden_size` "4" is not an input of pipeline\nhint: did you mean hidden_size' in error
    assert '`num_layers` "3" is given twice' in error


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("num_layers=many", "must be a whole number"),
        ("num_layers=-3", "must be at least 1"),
        ("num_layers=1e400", "is not a finite number"),
        ("num_layers=2.5", "must be a whole number"),
        ("accelerator=H1000", "is not in the `device` table"),
        ("source_version=old", "is not known"),
    ],
)
def test_a_wrong_value_is_refused_with_its_reason(
    capsys: pytest.CaptureFixture[str], pair: str, words: str
) -> None:
    given = [p for p in PIPELINE.split()[3:] if "n_layers" not in p and "chip" not in p]
    base = [] if pair.startswith("num_layers") else ["num_layers=120"]
    error = refused(capsys, "--estimator", "pipeline", *given, *base, pair)
    assert words in error
    assert error.count(words) == 1


def test_a_pair_without_an_equals_sign_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "--estimator", "pipeline", "a=b", "num_layers", code=2)
    assert "is not of the form key=value" in error


def test_without_input_the_missing_columns_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "--estimator", "pipeline")
    assert "`num_layers` is missing" in error


def test_the_first_argument_may_name_the_estimator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(PIPELINE.split()) == 0
    new = capsys.readouterr()
    assert run(PIPELINE.replace("--estimator ", "").split()) == 0
    old = capsys.readouterr()
    assert old == new
    assert run([*PIPELINE.split()[:3], "roofline", "model=gpt3"]) == 2
    assert "the estimator is given twice: roofline, pipeline" in capsys.readouterr().err


def test_the_report_has_no_columns_to_choose(warehouse: Command) -> None:
    asked = ("show", "--estimator", "pipeline", "chip=A100_40GB", "num_layers=120")
    code, out, err = warehouse(*asked, "hidden_size=12288", "--columns", "value,column")
    assert (code, out) == (2, "")
    assert "`--columns` value, column: the report has no such column" in err
    assert "hint: --format csv shows the names" in err
    code, out, err = warehouse(*asked, "hidden_size=12288", "--columns", "value", "--format", "csv")
    assert (code, out.splitlines()[0]) == (0, "value"), err
