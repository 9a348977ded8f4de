"""`warehouse operations`: of one configuration, of a file, of the best layouts, and stored."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, digest
from warehouse.cli.validate import run_checks
from warehouse.database.connection import open_for_read

ONE = (
    *("--model", "gpt3", "--accelerator", "H200", "--nvlink-size", 8, "--num-gpus", 64),
    *("--global-batch-size", 64, "--tensor-parallel", 8, "--pipeline-parallel", 2),
)
LAYER = [
    *("fc1", "fc1_bias", "activation", "ffn_dropout", "fc2", "fc2_bias", "ffn_output_dropout"),
    *("layer_norm_1", "qkv", "attention", "projection", "projection_bias"),
    *("attention_output_dropout", "layer_norm_2"),
    *("data_parallel_exchange", "pipeline_transfer"),
]


@pytest.fixture
def operations(warehouse: Command) -> Callable[..., tuple[int, Any, str]]:
    """Call operations for JSON; return exit code, rows, stderr."""

    def operations(*arguments: object) -> tuple[int, Any, str]:
        code, out, err = warehouse("operations", *arguments, "--format", "json")
        return code, json.loads(out) if out else None, err

    return operations


@pytest.fixture
def stored(tiny_database: Path) -> Path:
    """A database with two cells of one dimension, on 32 and on 64 GPUs."""
    return tiny_database


def query(database: Path, text: str) -> list[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(text).fetchall()


def test_operations_come_in_the_order_of_a_layer_and_add_up_to_the_step(
    operations: Callable[..., tuple[int, Any, str]],
) -> None:
    code, rows, err = operations(*ONE)
    assert code == 0
    assert [row["operation"] for row in rows] == LAYER
    assert [row["operation_index"] for row in rows] == list(range(16))
    step = rows[0]["step_seconds"]
    bubble = rows[0]["bubble_fraction"]
    # 2 stages and 64 / 4 microbatches: a sixteenth of what the stages do.
    stages = step - next(r for r in rows if r["part"] == "data")["operation_seconds"]
    assert bubble * step == pytest.approx(stages / 17, rel=1e-12)
    assert sum(row["step_fraction"] for row in rows) + bubble == pytest.approx(1, abs=1e-12)
    assert "data_parallel 4, tensor_parallel 8" in err


def test_figures_are_those_of_evaluate(
    operations: Callable[..., tuple[int, Any, str]], warehouse: Command, tmp_path: Path
) -> None:
    rows = operations(*ONE, "--variant", "published")[1]
    configs = tmp_path / "one.csv"
    configs.write_text(
        "model,accelerator,nvlink_size,num_gpus,global_batch_size,tensor_parallel,"
        "pipeline_parallel\ngpt3,H200,8,64,64,8,2\n"
    )
    out = tmp_path / "out.csv"
    arguments = (
        "evaluate",
        "--estimator",
        "roofline",
        configs,
        "--out",
        out,
        "--variant",
        "published",
    )
    assert warehouse(*arguments)[0] == 0
    [whole] = csv.DictReader(io.StringIO(out.read_text()))
    assert rows[0]["step_seconds"] == float(whole["step_seconds"])
    for name in ("flops_per_gpu", "weights_bytes", "activations_bytes", "compute_seconds"):
        assert sum(row[name] for row in rows) == pytest.approx(float(whole[name]), rel=1e-12)


def test_the_table_shows_the_bottleneck_and_its_resource(warehouse: Command) -> None:
    code, out, err = warehouse("operations", *ONE)
    heading, _, first, *_ = out.splitlines()
    assert code == 0
    for part in ("operation", "group", "in domain", "TFLOP", "comm GB", "step %", "waits for"):
        assert part in heading
    assert first.startswith("fc1 ")
    assert first.endswith("compute")
    assert "group 2" not in heading  # there is no second axis
    assert "most of it: fc1" in err
    assert "bubble" in err


@pytest.mark.parametrize("form", ["csv", "markdown"])
def test_other_formats_have_a_row_an_operation(warehouse: Command, form: str) -> None:
    out = warehouse("operations", *ONE, "--format", form)[1]
    lines = out.splitlines()
    assert len(lines) == 16 + (1 if form == "csv" else 2)
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert rows[4]["forward_collectives"] == "reduce_scatter"
        assert float(rows[4]["forward_comm_bytes"]) == 2 * 2048 * 12288


def test_any_other_column_may_be_set(operations: Callable[..., tuple[int, Any, str]]) -> None:
    slow = operations(*ONE, "--set", "hbm_bytes_per_second=1e11", "--set", "seq_len=1024")[1]
    assert slow[0]["seq_len"] == 1024
    assert {row["binding_resource"] for row in slow[:4]} == {"memory"}


@pytest.mark.long
def test_every_strategy_and_attention_has_its_operations(
    operations: Callable[..., tuple[int, Any, str]], tmp_path: Path
) -> None:
    expected = {
        ("tensor_1d", "unfused_recompute"): 19,
        ("summa_2d", "summa"): 19,
        ("context_2d", "unfused"): 19,
        ("context_2d", "flash"): 16,
    }
    configs = tmp_path / "some.csv"
    rows = (f"gpt3,H200,8,64,64,8,2,{','.join(kind)}\n" for kind in expected)
    configs.write_text(
        "model,accelerator,nvlink_size,num_gpus,global_batch_size,tensor_parallel,"
        f"pipeline_parallel,strategy,attention\n{''.join(rows)}"
    )
    code, found, err = operations("--config", configs)
    assert code == 0, err
    assert Counter((row["strategy"], row["attention"]) for row in found) == expected


def test_a_file_gives_every_row_or_the_one_that_is_named(
    operations: Callable[..., tuple[int, Any, str]], tmp_path: Path
) -> None:
    configs = tmp_path / "some.csv"
    configs.write_text(
        "model,accelerator,num_gpus,tensor_parallel\ngpt3,A100,64,8\ngpt3,A100,64,4\n"
        "gpt3,A100,64,8\n"
    )
    rows = operations("--config", configs)[1]
    # The third row is the first again.
    assert [row["tensor_parallel"] for row in rows] == [8] * 16 + [4] * 16
    only = operations("--config", configs, "--row", 2)[1]
    assert only == rows[16:]


@pytest.mark.long
def test_best_is_the_fastest_layout_of_each_problem_and_nothing_is_written_unless_asked(
    operations: Callable[..., tuple[int, Any, str]], stored: Path, tmp_path: Path
) -> None:
    before = digest(stored)
    code, rows, _ = operations("--best", "--db", stored)
    assert code == 0
    operations(*ONE, "--db", tmp_path / "none.duckdb")
    assert digest(stored) == before
    assert not (tmp_path / "none.duckdb").exists()
    best = query(
        stored,
        "select num_gpus, step_seconds, tensor_parallel, nvlink_data_parallel"
        " from configuration_rank where rank_by_time = 1 order by num_gpus",
    )
    names = ("num_gpus", "step_seconds", "tensor_parallel", "nvlink_data_parallel")
    assert [tuple(row[name] for name in names) for row in rows[::16]] == best
    assert len(rows) == 32
    one = operations("--best", "--num-gpus", 64, "--db", stored)[1]
    assert one == rows[16:]


@pytest.mark.long
def test_stored_rows_are_in_the_view_once_and_can_be_dropped(
    operations: Callable[..., tuple[int, Any, str]], warehouse: Command, stored: Path
) -> None:
    shown = operations("--best", "--into-db", "--db", stored)[1]
    code, again, err = operations("--best", "--into-db", "--db", stored)
    assert code == 0
    assert again == shown
    assert "2 cells" in err
    assert "0 of them new" in err
    text = "select operation, step_fraction from operation_breakdown order by all"
    assert query(stored, text) == sorted((r["operation"], r["step_fraction"]) for r in shown)
    kept = query(stored, "select kept from cell where relation = 'roofline_operation'")
    assert all("rows" in json.loads(text) for (text,) in kept)
    with open_for_read(stored) as connection:
        assert run_checks(connection) == []
    [(study,)] = query(stored, "select study from study where study like 'operations %'")
    assert warehouse("drop", study, "--db", stored)[0] == 0
    assert query(stored, "select count(*) from operation_breakdown") == [(0,)]
    assert query(stored, "select count(*) > 100 from configuration") == [(True,)]


@pytest.mark.long
def test_a_problem_with_operations_alone_has_no_rank(
    operations: Callable[..., tuple[int, Any, str]], warehouse: Command, stored: Path
) -> None:
    one = ("--model", "gpt3", "--accelerator", "A100", "--num-gpus", 64, "--tensor-parallel", 8)
    assert operations(*one, "--into-db", "--db", stored)[0] == 0
    code, _, err = warehouse("rank", "--db", stored)
    assert code == 0
    assert "2 problems, 2 layouts shown" in err
    assert "no layout fits" not in err


@pytest.mark.long
def test_points_of_a_hardware_sweep_are_distinguished(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    tiny.write_text(
        tiny.read_text().replace("{powers_of_two = [5, 6]}", "64")
        + "[system]\nhbm_bytes = [160e9, 120e9]\n"
    )
    assert warehouse("sweep", tiny, "--db", database)[0] == 0
    code, out, _ = warehouse("operations", "--best", "--db", database)
    assert code == 0
    header, *_ = out.splitlines()
    assert header.split()[0] == "operation"
    assert header.endswith("problem id")
    assert len(out.splitlines()) == 2 + 32


@pytest.mark.long
def test_chosen_errata_are_mended(operations: Callable[..., tuple[int, Any, str]]) -> None:
    figures = {
        variant: operations(*ONE, *arguments)[1][0]
        for variant, arguments in {
            "R5": ("--mend", "R5"),
            "R2,R5": ("--variant", "R5, R2"),
            "corrected": (),
            "published": ("--variant", "published"),
        }.items()
    }
    assert {row["variant"] for row in figures.values()} == set(figures)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no configuration is named"),
        (("--best", "--tensor-parallel", 8), "`--tensor-parallel` and `--best` exclude each other"),
        (("--best", "--config", "x.csv"), "`--config` and `--best` exclude each other"),
        (("--config", "x.csv", "--model", "gpt3"), "`--model` and `--config` exclude each other"),
        ((*ONE, "--row", 2), "`--row` needs `--config`"),
        ((*ONE, "--set", "seq_len"), "`seq_len` is not of the form key=value"),
        ((*ONE, "--mend", "R1", "--variant", "published"), "`--variant` exclude each other"),
        ((*ONE, "--mend", "R99"), "`--mend` R99 is not a mend of roofline"),
    ],
)
def test_wrong_usage_exits_2(
    warehouse: Command, arguments: tuple[int | str, ...], says: str
) -> None:
    code, out, err = warehouse("operations", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "hint: " in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "gpt5", "--accelerator", "H200"), '`model` "gpt5" is not in the `model`'),
        (("--model", "gpt3", "--num-gpus", 8), "`matrix_flops_per_second` is missing"),
        ((*ONE, "--data-parallel", 2), "`num_gpus` 64 is not the product of the degrees"),
        ((*ONE, "--attention", "summa"), "is not modelled in strategy tensor_1d"),
        ((*ONE, "seq_len=1", "--set", "seq_len=2"), '`seq_len` "2" is given twice'),
        ((*ONE, "num-gpus=8"), '`num_gpus` "8" is given twice'),
        ((*ONE, "--set", "layrs=3"), '`layrs` "3" is not an input of roofline'),
        ((*ONE, "--set", "zero_stage=1"), "training_step has it: --estimator training_step"),
        ((*ONE, "--set", "seq_len=long"), "`seq_len`"),
        (("--config", "none.csv"), "there is no such file"),
        (("--config", "none.txt"), "is of no known format"),
    ],
)
def test_a_configuration_that_cannot_be_exits_3(
    warehouse: Command, arguments: tuple[int | str, ...], says: str
) -> None:
    code, out, err = warehouse("operations", *arguments)
    assert (code, out) == (3, "")
    assert says in err
    assert "Traceback" not in err


def test_a_row_that_is_not_there_or_faulty_is_named(warehouse: Command, tmp_path: Path) -> None:
    configs = tmp_path / "some.csv"
    configs.write_text(
        "model,accelerator,num_gpus,tensor_parallel\ngpt3,A100,64,8\ngpt3,A100,64,7\n"
    )
    code, _, err = warehouse("operations", "--config", configs, "--row", 3)
    assert code == 3
    assert "has 2 rows, there is no row 3" in err
    code, _, err = warehouse("operations", "--config", configs, "--row", 2)
    assert code == 3
    assert f"{configs}: row 2: `tensor_parallel` 7 does not divide" in err
    assert warehouse("operations", "--config", configs, "--row", 1)[0] == 0


def test_best_of_what_is_not_stored_exits_3(warehouse: Command, stored: Path) -> None:
    code, out, err = warehouse("operations", "--best", "--model", "vit_era5", "--db", stored)
    assert (code, out) == (3, "")
    assert "stored: gpt3" in err


def test_best_without_a_layout_that_fits_says_so(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    tiny.write_text(tiny.read_text() + "[system]\nhbm_bytes = 1e9\n")
    assert warehouse("sweep", tiny, "--db", database)[0] == 0
    code, out, err = warehouse("operations", "--best", "--db", database)
    assert (code, out) == (3, "")
    assert "has a layout that fits in memory" in err
