"""`warehouse catalog` writes an entry that --catalog reads."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command

ASKED = ("--from", "H100", "--name", "ours", "network_bytes_per_second=25e9")


def test_an_entry_states_what_differs_and_shows_the_rest(warehouse: Command) -> None:
    code, out, err = warehouse("catalog", *ASKED)
    assert (code, err) == (0, "")
    assert tomllib.loads(out) == {
        "systems": {"ours": {"based_on": "H100 SXM 80GB", "network_bytes_per_second": 25e9}}
    }
    # the other values can be uncommented
    rest = tomllib.loads(out.replace("# from", "## from").replace("\n# ", "\n"))["systems"]["ours"]
    assert rest["nvlink_size"] == 8
    assert rest["hbm_bytes"] == 85520809984
    assert rest["power_limit_watts"] == 700
    assert rest["nvlink_bytes_per_second"] == 450e9


def test_two_clusters_that_differ_in_one_figure_are_compared_in_one_question(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    code, out, err = warehouse("catalog", *ASKED, "--out", file)
    assert (code, out) == (0, "")
    assert f"`--catalog {file}` makes ours known" in err
    run = ("--model", "gpt3_1.3B", "--tokens", "1G", "--gpus", 16, "--batch", 32)
    both = ("--accelerator", "H100", "--accelerator", "ours", "--catalog", file)
    code, out, err = warehouse("plan", *run, *both, "--db", database)
    assert code == 0, err
    rows = [line for line in out.splitlines() if line.startswith(("H100 SXM", "ours "))]
    assert [row.split()[0] for row in rows] == ["H100", "ours"]
    assert "network GB/s" in out
    assert [" 50.0 " in row for row in rows] == [True, False]
    assert [" 25.0 " in row for row in rows] == [False, True]


def test_entries_are_added_to_a_file_and_may_build_on_each_other(
    warehouse: Command, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('# ours\n[systems.old]\nbased_on = "p4d"\n', encoding="utf-8")
    steps = [
        ("--from", "old", "--name", "my p4", "nvlink_size=4"),
        ("--from", "my p4", "--name", "two", "network_bytes_per_second=1e10"),
        ("--from", "llama3_8B", "--name", "big.8", "num_layers=64", "uses_glu=false"),
    ]
    for step in steps:
        code, _, err = warehouse("catalog", *step, "--out", file)
        assert code == 0, err
    text = file.read_text("utf-8")
    assert text.startswith('# ours\n[systems.old]\nbased_on = "p4d"\n\n[systems."my p4"]\n')
    assert "# network_bytes_per_second = 6.25e+09\n" in text  # of p4d
    found = tomllib.loads(text)
    assert found["systems"]["two"] == {"based_on": "my p4", "network_bytes_per_second": 1e10}
    assert found["models"]["big.8"] == {
        "based_on": "llama3_8B",
        "num_layers": 64,
        "uses_glu": False,
    }
    layout = ("model=big.8", "accelerator=two", "num_gpus=64", "tensor_parallel=8")
    code, out, err = warehouse("explain", *layout, "--catalog", file, "--json")
    assert code == 0, err
    problem = json.loads(out)["inputs"]
    assert (problem["nvlink_size"], problem["num_layers"]) == (4, 64)


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (("--from", "H100", "--name", "p5"), 3, '"p5" is in the `system` table', "another name"),
        (("--from", "H100", "--name", "H200"), 3, '"H200" is in the `system` table', "based_on"),
        (("--from", "TPU v5p", "--name", "x"), 3, "neither a system nor a model", "TPUs are not"),
        (("--from", "H1000", "--name", "x"), 3, "`--from` H1000: is neither", "known: "),
        ((*ASKED[:4], "network=25e9"), 3, "is not a key of", "network_bytes_per_second"),
        ((*ASKED[:4], "nvlink_size=four"), 3, "must be a whole number", ""),
        ((*ASKED[:4], "nvlink_size=0"), 3, "must be at least 1", ""),
        ((*ASKED[:4], "hbm_bytes=1\n[models.x]"), 3, "must be a number", ""),
        ((*ASKED[:4], "nvlink_size"), 2, "not of the form key=value", "nvlink_size=8"),
        ((*ASKED, "--out", "own.json"), 2, "a catalog is a TOML file", ".toml"),
        ((*ASKED, "--out", "none/own.toml"), 3, "the directory none does not exist", "make it"),
    ],
)
def test_what_cannot_be_an_entry_is_refused_and_nothing_is_written(
    warehouse: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, err = warehouse("catalog", *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert hint in err
    assert [*tmp_path.iterdir()] == []


def test_a_name_of_the_file_is_taken_and_the_file_stays_as_it_was(
    warehouse: Command, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    assert warehouse("catalog", *ASKED, "--out", file)[0] == 0
    before = file.read_bytes()
    code, _, err = warehouse("catalog", *ASKED, "--out", file)
    assert code == 3
    assert f'{file}: `systems` "ours" is in the `system` table already' in err
    assert file.read_bytes() == before


def test_an_entry_of_a_config_json_can_be_read_without_that_file(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    config, file = tmp_path / "config.json", tmp_path / "own.toml"
    content = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8}
    content |= {"intermediate_size": 1024, "num_hidden_layers": 4, "vocab_size": 1000}
    config.write_text(json.dumps(content), encoding="utf-8")
    asked = ("catalog", "--from", config, "--name", "small", "num_layers=6", "--out", file)
    assert warehouse(*asked)[0] == 0
    config.unlink()
    entry = tomllib.loads(file.read_text("utf-8"))["models"]["small"]
    assert "based_on" not in entry
    assert (entry["num_layers"], entry["hidden_size"], entry["assumed"]) == (6, 512, "seq_len")
    layout = ("model=small", "accelerator=H100", "num_gpus=2", "global_batch_size=2")
    code, out, err = warehouse("show", *layout, "--catalog", file, "--json", "--db", database)
    assert code == 0, err
    assert json.loads(out)["inputs"]["num_layers"] == 6


def test_the_file_of_the_base_takes_the_entry_and_another_file_does_not(
    warehouse: Command, tmp_path: Path
) -> None:
    file, other = tmp_path / "own.toml", tmp_path / "other.toml"
    assert warehouse("catalog", *ASKED, "--out", file)[0] == 0
    asked = ("catalog", "--from", "ours", "--name", "half", "nvlink_size=4", "--catalog", file)
    code, _, err = warehouse(*asked, "--out", other)
    assert (code, other.exists()) == (3, False)
    assert "`--from` ours: " in err
    assert f"give --out {file}" in err
    assert warehouse(*asked, "--out", file)[0] == 0
    assert tomllib.loads(file.read_text("utf-8"))["systems"]["half"]["based_on"] == "ours"


def test_it_starts_from_a_system_of_a_stored_study(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "own"\nestimator = "training_step"\n[systems.older]\nbased_on = "p4d"\n'
        'nvlink_size = 4\n[space]\nmodel = "gpt3_1.3B"\naccelerator = "older"\nnum_gpus = 2\n'
        "global_batch_size = 8\n",
        encoding="utf-8",
    )
    assert warehouse("sweep", study, "--db", database)[0] == 0
    asked = ("catalog", "--from", "older", "--name", "newer", "network_bytes_per_second=25e9")
    code, out, err = warehouse(*asked, "--db", database)
    assert (code, err) == (0, "")
    assert tomllib.loads(out)["systems"]["newer"]["based_on"] == "older"
    assert "# nvlink_size = 4\n" in out
    code, _, err = warehouse(*asked, "--db", tmp_path / "none.duckdb")
    assert (code, "`--from` older: is neither a system nor a model" in err) == (3, True)


def test_a_study_names_a_system_of_the_file(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    file, study = tmp_path / "own.toml", tmp_path / "study.toml"
    assert warehouse("catalog", *ASKED, "--out", file)[0] == 0
    study.write_text(
        'name = "of a file"\nestimator = "training_step"\n[space]\nmodel = "gpt3_1.3B"\n'
        'accelerator = ["ours", "p4d"]\nnum_gpus = 2\nglobal_batch_size = 8\n',
        encoding="utf-8",
    )
    assert warehouse("sweep", study, "--db", database)[0] == 3
    code, _, err = warehouse("sweep", study, "--catalog", file, "--db", database)
    assert code == 0, err
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute(
            "select distinct accelerator, network_bytes_per_second from problem order by all"
        ).fetchall()
    assert found == [("ours", 25e9), ("p4d", 6.25e9)]
