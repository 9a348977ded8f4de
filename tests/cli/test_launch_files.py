"""Launch files and logs in the commands that take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_json_schemas import faults
from tests.shared import Command
from warehouse.api.warehouse import Warehouse

FLAGS = (
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 "
    "--seq-length 1024 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 16 --bf16 "
    "--tensor-model-parallel-size 2 --swiglu --untie-embeddings-and-output-weights "
    "--disable-bias-linear --use-distributed-optimizer --overlap-grad-reduce --sequence-parallel "
    "--overlap-param-gather --tp-comm-overlap --hidden-dropout 0 --attention-dropout 0 "
    "--cross-entropy-loss-fusion"
)
SCRIPT = f"torchrun --nproc_per_node 4 pretrain_gpt.py {FLAGS} --save /x --bogus 1\n"
PAIRS = (
    *("num_layers=4", "hidden_size=512", "ffn_hidden_size=2048", "num_heads=8", "seq_len=1024"),
    *("vocab_size=32000", "uses_glu=true", "num_gpus=4", "global_batch_size=16"),
    *("tensor_parallel=2", "microbatch_size=1", "zero_stage=1", "uses_sequence_parallel=true"),
    *("uses_linear_bias=false", "ties_embedding=false"),
)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("run.sh")
    path.write_text(SCRIPT)
    return path


def log_of(path: Path, seconds: float) -> Path:
    path.write_text(
        "".join(
            f" iteration {n:8d}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): "
            f"{1000 * seconds:.1f} | global batch size: 16 |\n"
            for n in range(1, 30)
        )
    )
    return path


def test_why_has_the_layout_of_a_launch_file(
    script: Path, warehouse: Command, database: Path
) -> None:
    common = ("--accelerator", "H100", "--json", "--db", database)
    code, out, said = warehouse("why", "--from", script, *common)
    assert code == 0, said
    found = json.loads(out)
    assert faults("why", found) == []
    by_hand = json.loads(warehouse("why", *PAIRS, *common)[1])
    assert found["results"]["step_seconds"] == by_hand["results"]["step_seconds"]
    launch = found["question"]["launch"]
    assert launch["program"] == "Megatron-LM"
    assert launch["unknown"] == ["--bogus"]
    assert "--save" in said


def test_people_see_what_was_read(script: Path, warehouse: Command, database: Path) -> None:
    code, out, _ = warehouse("why", "--from", script, "--accelerator", "H100", "--db", database)
    assert code == 0
    assert out.startswith("read from run.sh (Megatron-LM): ")
    assert "unknown: --bogus" in out
    assert "layout dp2 tp2 seq pp1 micro1 zero1" in out


def test_what_is_given_besides_counts_first(
    script: Path, warehouse: Command, database: Path
) -> None:
    code, out, said = warehouse(
        *("why", "--from", script, "--accelerator", "H100", "--gpus", 8, "tensor_parallel=4"),
        *("--db", database),
    )
    assert code == 0, said
    assert "layout dp2 tp4 seq pp1 micro1 zero1" in out


@pytest.mark.parametrize("command", ["why", "explain", "show", "operations"])
def test_commands_of_a_configuration_take_a_launch_file(
    command: str, script: Path, warehouse: Command, database: Path
) -> None:
    code, out, said = warehouse(
        command, "--from", script, "--accelerator", "H100", "--db", database
    )
    assert code == 0, said
    both = out + said
    assert "read from run.sh (Megatron-LM): " in both
    assert "unknown: --bogus" in both
    assert "--save" in both


@pytest.mark.parametrize(
    "other", [("operations", "--best"), ("show", "--table", "compute", "--estimator", "cluster")]
)
def test_what_has_no_one_configuration_takes_no_launch_file(
    other: tuple[str, ...], script: Path, warehouse: Command, database: Path
) -> None:
    code, _, said = warehouse(*other, "--from", script, "--db", database)
    assert code == 2
    assert "`--from` and `--" in said


def test_plan_has_the_run_of_a_launch_file_and_leaves_its_layout_free(
    script: Path, warehouse: Command, database: Path
) -> None:
    common = ("--accelerator", "H100", "--tokens", "1G", "--json", "--db", database)
    code, out, said = warehouse("plan", "--from", script, *common)
    assert code == 0, said
    question = json.loads(out)["question"]
    assert (question["global_batch_size"], question["shape"]["num_layers"]) == (16, 4)
    assert json.loads(out)["num_gpus"] + json.loads(out)["num_idle_gpus"] == 4
    assert "tensor_parallel" not in question["held"]
    assert "--save" in said
    assert "the layout of the file is left free" in said


def test_plan_within_limits_leaves_the_gpus_free(
    script: Path, warehouse: Command, database: Path
) -> None:
    code, out, said = warehouse(
        *("plan", "--from", script, "--accelerator", "H100", "--tokens", "1G", "--days", 30),
        *("--max-gpus", 8, "--batch", 32, "--json", "--db", database),
    )
    assert code == 0, said
    assert json.loads(out)["question"]["global_batch_size"] == 32


def test_a_run_is_measured_by_its_launch_file(
    script: Path, warehouse: Command, database: Path
) -> None:
    code, out, said = warehouse(
        *("measure", "--from", script, "--seconds", 0.5, "--accelerator", "H100"),
        *("--name", "mine", "--json", "--db", database),
    )
    assert code == 0, said
    [row] = json.loads(out)
    assert (row["measured_step_seconds"], row["tensor_parallel"]) == (0.5, 2)


def test_a_log_has_the_seconds(script: Path, warehouse: Command, database: Path) -> None:
    log = log_of(Path("first.log"), 0.4)
    code, out, said = warehouse(
        *("measure", log, "--from", script, "--accelerator", "H100", "--json", "--db", database),
    )
    assert code == 0, said
    [row] = json.loads(out)
    assert (row["measured_row"], row["measured_step_seconds"]) == ("first", 0.4)
    assert "first.log: 29 lines of iterations; 5 within the first 5 iterations dropped" in said
    query = "select source, note from measurement"
    code, out, _ = warehouse("sql", query, "--json", "--db", database)
    [stored] = json.loads(out)
    assert stored["source"] == "first.log"
    assert "0.4 s is the median of 24" in stored["note"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--from", "run.sh"), "a launch file has no speed"),
        (("first.log", "--from", "none.sh"), "none.sh: there is no such file"),
        (("none.log", "--from", "run.sh", "--accelerator", "H100"), "there is no such file"),
        (("--from", "run.sh", "--seconds", 1, "--accelerator", "H100"), "Missing option '--name'"),
        (("first.csv", "--from", "run.sh", "--seconds", 1), "first.csv and a speed"),
    ],
)
def test_wrong_use_is_refused_and_nothing_is_stored(
    arguments: tuple[object, ...], reason: str, script: Path, warehouse: Command, database: Path
) -> None:
    assert script.exists()
    log_of(Path("first.log"), 0.4)
    code, _, said = warehouse("measure", *arguments, "--db", database)
    assert code in (2, 3)
    assert reason in said
    assert not database.exists()


def test_methods_take_a_launch_file(script: Path, warehouse: Command, database: Path) -> None:
    assert warehouse("init", "--db", database)[0] == 0
    asked = Warehouse(database)
    assert asked.why(launch=script, accelerator="H100").inputs["tensor_parallel"] == 2
    assert asked.explain(launch=str(script), accelerator="H100").inputs["tensor_parallel"] == 2
    planned = asked.plan(launch=script, accelerator="H100", tokens="1G")
    assert planned.num_gpus == 4
