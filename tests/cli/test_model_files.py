"""A model from a Hugging Face config.json, in every command that takes a model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.shared import Command
from warehouse.api.warehouse import Warehouse
from warehouse.rebuild.rebuild import rebuild

CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32000,
    "tie_word_embeddings": True,
    "max_position_embeddings": 1024,
}
SHAPE = {
    "num_layers": 4,
    "hidden_size": 512,
    "ffn_hidden_size": 2048,
    "uses_glu": "true",
    "num_heads": 8,
    "num_kv_heads": 4,
    "head_size": 128,
    "vocab_size": 32000,
    "ties_embedding": "true",
    "seq_len": 1024,
    "uses_qk_norm": "true",
}
SYSTEM = ("--accelerator", "H100", "--gpus", 4, "--batch", 16)
LAYOUT = ("dp2", "tp2", "micro1", "zero1")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a file in a folder with the model's name."""
    folder = tmp_path / "Small-32M"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    return Path("Small-32M/config.json")


@pytest.mark.parametrize("command", ["why", "explain"])
def test_a_step_is_that_of_the_same_shape(
    command: str, config: Path, warehouse: Command, database: Path
) -> None:
    question = (command, *LAYOUT, *SYSTEM, "--format", "json", "--db", database)
    code, of_file, said = warehouse(*question, "--model", config)
    assert code == 0, said
    shape = [f"{name}={value}" for name, value in SHAPE.items()]
    code, of_shape, _ = warehouse(*question, "model=Small-32M", *shape)
    assert code == 0
    assert json.loads(of_file) == json.loads(of_shape)
    assert not database.exists()


def test_a_folder_is_its_config_and_the_answer_says_what_the_class_gave(
    config: Path, warehouse: Command, database: Path
) -> None:
    question = ("why", *LAYOUT, *SYSTEM, "--db", database)
    code, out, said = warehouse(*question, "--model", config.parent)
    assert code == 0
    assert "Small-32M: of its class, as the file has none: use_sliding_window false" in out + said


def test_rows_may_name_the_file(
    config: Path, warehouse: Command, tmp_path: Path, database: Path
) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    header = "model,accelerator,num_gpus,global_batch_size,seq_len"
    rows.write_text(f"{header}\n{config},H100,4,16,\n{config},H100,4,16,512\n")
    arguments = ("evaluate", rows, "--out", out, "--db", database)
    assert warehouse(*arguments, "--into-db")[0] == 0
    with out.open() as file:
        first, second = csv.DictReader(file)
    assert float(first["mfu"]) > float(second["mfu"]) > 0
    query = "select distinct model from problem"
    assert warehouse("sql", query, "--format", "csv", "--db", database)[1].split()[1:] == [
        "Small-32M"
    ]
    # the file is no longer needed
    config.unlink()
    found = rebuild(database)
    assert not found.replayed.lost
    assert warehouse("sql", query, "--format", "csv", "--db", database)[1].split()[1:] == [
        "Small-32M"
    ]


def test_a_plan_takes_the_file_and_keeps_its_shape(config: Path, database: Path) -> None:
    asked = Warehouse(database)
    plan = asked.plan(
        model=config, accelerator="H100", num_gpus=2, tokens="1G", global_batch_size=8, seq_len=512
    )
    stored = asked.sql("select distinct model, num_layers, uses_qk_norm from problem")
    assert stored.rows() == [("Small-32M", 4, True)]
    config.unlink()
    again = asked.rank(model="Small-32M", num_gpus=2)
    assert again["model"].unique().to_list() == ["Small-32M"]
    assert plan.layouts["step_seconds"][0] > 0


@pytest.mark.parametrize("command", ["plan", "why", "explain", "report", "evaluate"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": -4}, "`num_hidden_layers` -4 must be"),
        ({"model_type": "qwen3_next"}, "linear attention"),
    ],
)
def test_a_faulty_file_is_refused_and_leaves_nothing(
    command: str,
    changes: dict[str, object],
    words: str,
    config: Path,
    warehouse: Command,
    database: Path,
) -> None:
    config.write_text(json.dumps({**CONFIG, **changes}))
    before = {*Path().rglob("*")}
    if command == "evaluate":
        Path("rows.csv").write_text(f"model,accelerator,num_gpus\n{config},H100,4\n")
        before.add(Path("rows.csv"))
        question = ["rows.csv", "--out", "out.csv", "--into-db"]
    else:
        question = ["--model", str(config), "--accelerator", "H100", "--gpus", "4"]
    if command in ("plan", "report"):
        question += ["--tokens", "1G"]
    if command == "report":
        question += ["--out", "page.html"]
    code, out, said = warehouse(command, *question, "--db", database)
    assert (code, out) == (3, "")
    assert f"{config}: " in said
    assert words in said
    assert "hint: " in said
    assert {*Path().rglob("*")} - before <= {database.relative_to(Path.cwd())}


def test_a_name_of_hugging_face_is_that_of_the_catalog(warehouse: Command, database: Path) -> None:
    question = ("why", "tp8", "micro1", "--accelerator", "H100", "--gpus", 8, "--db", database)
    code, out, said = warehouse(*question, "--model", "Qwen/Qwen3-0.6B", "--format", "json")
    assert code == 0, said
    assert json.loads(out)["question"]["model"] == "qwen3_0.6B"
    code, _, said = warehouse(*question, "--model", "Qwen/Qwen9-32B")
    assert code == 3
    assert "config.json" in said
