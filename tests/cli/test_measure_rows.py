"""Columns and rows of a file that `warehouse measure` refuses, and messages on the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command

HEAD = "run,model,accelerator,num_gpus,global_batch_size,step_seconds,memory_bytes\n"
RUN = "a,gpt3_1.3B,H100,8,64,0.5,30e9\n"

# Of gpt3_1.3B (24 layers of width 2048, 2048 tokens, vocabulary 50257) a step of 64 sequences has
# 6 x 12 x 24 x 2048^2 = 7.248e9 FLOPs a token in products, 6 x 2048 x 50257 = 6.176e8 in the
# logits, and 12 x 24 x 2048 x 2048 / 2 = 6.040e8 in causal attention: 8.469e9 a token, 64 x 2048
# tokens, 1.1101e15 in all. Eight H100s of 989.5 TFLOP/s take 0.14023 s for them.
LEAST = 0.14023


@pytest.fixture
def measured(warehouse: Command, database: Path, tmp_path: Path) -> Command:
    """Measure a file of this text; return exit code, stdout, stderr."""

    def measured(text: str, *options: object) -> tuple[int, str, str]:
        file = tmp_path / "runs.csv"
        file.write_text(text, encoding="utf-8")
        return warehouse("measure", file, *options, "--db", database)

    return measured


@pytest.fixture
def is_empty(database: Path) -> Callable[[], bool]:
    """Return whether nothing is stored."""

    def is_empty() -> bool:
        with duckdb.connect(str(database), read_only=True) as connection:
            query = "select (select count(*) from measurement) + (select count(*) from cell)"
            return connection.execute(query).fetchall() == [(0,)]

    return is_empty


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        ("global_batch_size", "give the sequences of a step, of all replicas"),
        ("num_gpus", "give the GPUs of each run, of all its replicas"),
    ],
)
def test_what_must_not_be_guessed_is_asked_for(
    measured: Command, is_empty: Callable[[], bool], missing: str, hint: str
) -> None:
    names, values = HEAD.strip().split(","), RUN.strip().split(",")
    place = names.index(missing)
    text = ",".join(names[:place] + names[place + 1 :]) + "\n"
    text += ",".join(values[:place] + values[place + 1 :]) + "\n"
    code, out, err = measured(text)
    assert (code, out) == (3, "")
    assert f"has no column `{missing}`\nhint: {hint}" in err
    values[place] = ""
    code, out, err = measured(HEAD + RUN + "b," + ",".join(values[1:]) + "\n")
    assert (code, out) == (3, "")
    assert f"runs.csv: line 3: `{missing}` is missing\nhint: {hint}" in err
    assert is_empty()


@pytest.mark.parametrize(
    ("seconds", "memory", "said", "hint"),
    [
        ("0.001", "", "`step_seconds` 0.001 is less than the 0.14 s that 1.11e+15 FLOPs", "whole"),
        (LEAST * 0.999, "", "8 GPUs, 989.5 TFLOP/s each", "give the seconds of one whole step"),
        ("0.5", "52", "`memory_bytes` 52 is less than 1 MB", "52 GB are 52e9"),
        ("0.5", "52.5", "`memory_bytes` 52.5 is less than 1 MB", "52.5 GB are 52.5e9"),
        ("0.5", "53248", "`memory_bytes` 53248 is less than 1 MB", "53,248 MB are 53248e6"),
        ("0.5", "416e9", "`memory_bytes` 416000000000 is more than the 86 GB", "fullest GPU"),
        ("0.5", "92e9", "`memory_bytes` 92000000000 is more than the 86 GB", "fullest GPU"),
        (
            "1e300",
            "",
            '`step_seconds` "1e+300" must be at most 1,000,000,000 seconds',
            "in seconds",
        ),
        ("2e9", "", "must be at most 1,000,000,000 seconds", "give it in seconds"),
    ],
)
def test_rows_that_no_machine_can_have_measured_refuse_the_file(
    measured: Command,
    is_empty: Callable[[], bool],
    seconds: float | str,
    memory: str,
    said: str,
    hint: str,
) -> None:
    code, out, err = measured(f"{HEAD}{RUN}b,gpt3_1.3B,H100,8,64,{seconds},{memory}\n")
    assert (code, out) == (3, "")
    assert "runs.csv: line 3: " in err
    assert "line 2" not in err
    assert said in err
    assert hint in err.partition("\nhint: ")[2]
    assert is_empty()


@pytest.mark.long
def test_rows_at_the_edge_of_what_is_possible_are_taken(measured: Command) -> None:
    # 80 GiB are 85.9e9 bytes: what tools show of a GPU that is sold with 80 GB
    edges = ((LEAST * 1.001, "1e6"), ("1e9", "85.8e9"), ("0.5", "80e9"))
    rows = [
        f"{run},gpt3_1.3B,H100,8,64,{','.join(map(str, edge))}\n" for run, edge in enumerate(edges)
    ]
    code, _, err = measured(HEAD + "".join(rows))
    assert code == 0, err


@pytest.mark.long
def test_a_step_in_eight_bits_is_compared_with_the_peak_of_eight_bits(measured: Command) -> None:
    head, row = HEAD.strip() + ",precision\n", "b,gpt3_1.3B,H100,8,64,{},,fp8\n"
    assert measured(head + row.format(LEAST * 0.501))[0] == 0
    code, _, err = measured(head + row.format(LEAST * 0.499), "--name", "other")
    assert code == 3
    assert "1,979.0 TFLOP/s each" in err


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("tensor_paralel", "tensor_parallel"),
        ("Tensor_Parallel", "tensor_parallel"),
        ("pipeline_paralell", "pipeline_parallel"),
        ("memory_byte", "memory_bytes"),
        ("notes", "note"),
        ("TP", "tensor_parallel"),
        ("pp", "pipeline_parallel"),
        ("micro", "microbatch_size"),
    ],
)
def test_a_column_that_is_near_one_that_is_read_refuses_the_file(
    measured: Command, is_empty: Callable[[], bool], spelt: str, meant: str
) -> None:
    head, row = HEAD.replace(",memory_bytes", ""), RUN.replace(",30e9", "")
    code, out, err = measured(f"{head.strip()},{spelt}\n{row.strip()},2\n")
    assert (code, out) == (3, "")
    assert f"column `{spelt}` is not read; did you mean `{meant}`?\nhint: rename it" in err
    assert is_empty()


@pytest.mark.long
def test_other_columns_are_reported_and_not_read(measured: Command) -> None:
    # `notes` cannot be `note` misspelt where that is there too
    text = f"{HEAD.strip()},cluster,mfu,note,notes\n{RUN.strip()},west,0.4,x,y\n"
    code, _, err = measured(text)
    assert code == 0, err
    assert "warning: " in err
    assert "runs.csv: not read: `cluster`, `notes`\n" in err
    assert "runs.csv: not read beside `step_seconds`: `mfu`\n" in err
    assert "not in published_accuracy" not in err


def test_a_number_beyond_all_bounds_is_refused_without_a_warning_of_a_library(
    measured: Command, is_empty: Callable[[], bool]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = measured(HEAD + RUN.replace(",8,", ",9223372036854775807,"))
    assert (code, out) == (3, "")
    assert "`num_gpus` 9223372036854775807 must be at most 2147483647" in err
    assert is_empty()


@pytest.mark.long
def test_a_run_on_any_accelerator_counts_in_the_accuracy(
    measured: Command, warehouse: Command, database: Path
) -> None:
    accelerators = ("A100", "H100", "H200", "B200", "A100-SXM4-80GB")
    rows = [f"{name},gpt3_1.3B,{name},8,64,1.5,30e9\n" for name in accelerators]
    code, _, err = measured(HEAD + "".join(rows))
    assert code == 0, err
    assert "not in published_accuracy" not in err
    query = "select num_rows from published_accuracy where grouped_by = 'group'"
    out = warehouse("sql", query, "--format", "csv", "--db", database)[1]
    assert out.split() == ["num_rows", "5"]


@pytest.mark.long
def test_every_run_that_does_not_count_has_a_reason(
    measured: Command, warehouse: Command, database: Path
) -> None:
    head = (
        "run,model,num_layers,hidden_size,num_heads,seq_len,accelerator,num_gpus,"
        "global_batch_size,num_experts,experts_per_token,precision,gemm_efficiency,nvlink_size,"
        "step_seconds\n"
    )
    rows = {
        "counts": "gpt3_1.3B,,,,,H100,8,64,,,,,,0.5",
        "sparse": "gpt3_1.3B,,,,,H100,8,64,4,1,,,,0.5",
        "eight": "gpt3_1.3B,,,,,H100,8,64,,,fp8,,,0.5",
        "tuned": "gpt3_1.3B,,,,,H100,8,64,,,,0.5,4,0.8",
        "shape": ",24,2048,16,2048,H100,8,64,,,,,,0.5",
    }
    code, _, err = measured(head + "".join(f"{name},{row}\n" for name, row in rows.items()))
    assert code == 0, err
    said = dict(
        line.removeprefix("not in published_accuracy: ").split(": ", 1)
        for line in err.splitlines()
        if line.startswith("not in published_accuracy: ")
    )
    assert said == {
        "eight, sparse": "rates are counted and compared of dense models in 16 bits",
        "tuned": "it has its own gemm_efficiency, nvlink_size",
        "shape": "without `vocab_size` the FLOPs of the output layer are not known",
    }
    query = "select published_row from published_comparison where reference = 'runs'"
    out = warehouse("sql", query, "--format", "csv", "--db", database)[1]
    assert out.split() == ["published_row", "counts"]
