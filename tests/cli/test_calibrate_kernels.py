"""`warehouse calibrate --kernels`: timings of a machine scale its kernels, kind by kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from estimators import registry
from tests.shared import Command
from warehouse.database.catalog import packaged_catalog

H100 = "H100 SXM 80GB"
HEADER = "number_format,num_rows,num_columns,inner_size,seconds,layout"
LARGE = ((2048, 2048, 2048), (2048, 4096, 2048), (4096, 4096, 4096), (8192, 4096, 4096))
SHAPES = (*LARGE, (8192, 8192, 8192))
"""Nodes of the measured surface, whose seconds follow from table matrix_product_rate alone."""

CONFIGURATION = (
    *("model=llama3_8B", f"accelerator={H100}", "num_gpus=8", "tensor_parallel=8"),
    "global_batch_size=8",
)


def seconds_of(shape: tuple[int, int, int], number_format: str = "bf16") -> float:
    """Return 2 M N K over the measured rate at a node."""
    table = packaged_catalog().measured["matrix_product_rate"]
    own = np.equal(table["accelerator"], H100) & np.equal(table["number_format"], number_format)
    for name, size in zip(("rows", "columns", "depth"), shape, strict=True):
        own &= np.equal(table[f"product_{name}"], size)
    [rate] = table["product_flops_per_second"][own]
    return float(2.0 * np.prod(np.array(shape, dtype=np.float64)) / rate)


def lines(
    factor: float,
    layout: str = "TN",
    shapes: tuple[tuple[int, int, int], ...] = SHAPES,
    number_format: str = "bf16",
) -> list[str]:
    """Return rows of products that take `factor` times as long as measured."""
    return [
        f"{number_format},{rows},{columns},{depth},"
        f"{factor * seconds_of((rows, columns, depth), number_format)!r},{layout}"
        for rows, columns, depth in shapes
    ]


def written(path: Path, rows: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def kinds_of(out: str) -> dict[str, dict[str, Any]]:
    return {kind["kernels"]: kind for kind in json.loads(out)["kinds"]}


def constants(database: Path) -> dict[str, float]:
    query = "select step_constant, fitted_constant_value from calibration"
    with duckdb.connect(str(database), read_only=True) as connection:
        return dict(connection.execute(query).fetchall())


@pytest.fixture
def database(empty_warehouse: Path, tmp_path: Path) -> Path:
    return shutil.copyfile(empty_warehouse, tmp_path / "warehouse.duckdb")


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """Products 1.25 times as long; gradients of weights 1.2 times that; FP8 twice as long."""
    rows = [*lines(1.25), *lines(1.5, "NT"), *lines(2.0, number_format="fp8")]
    return written(tmp_path / "timings.csv", rows)


def test_each_kind_takes_the_factor_that_its_timings_have(
    warehouse: Command, database: Path, timings: Path
) -> None:
    given = ("--kernels", timings, "--accelerator", "H100", "--name", "ours", "--db", database)
    code, out, err = warehouse("calibrate", *given, "--format", "json")
    assert code == 0, err
    kinds = kinds_of(out)
    expected = {"matmuls in 16 bits": 1.25, "gradient of a weight": 1.2, "matmuls in FP8": 2.0}
    for name, factor in expected.items():
        assert kinds[name]["times_as_long"] == pytest.approx(factor)
        assert kinds[name]["num_rows"] == 5
    # a constant is a rate: the reciprocal of the time, of the accelerator that was timed
    assert constants(database) == {
        f"product_rate_factor@{H100}": pytest.approx(0.8),
        f"weight_gradient_rate_factor@{H100}": pytest.approx(1 / 1.2),
        f"fp8_product_rate_factor@{H100}": pytest.approx(0.5),
    }
    assert "gradient of an input: 0 rows are too few for a factor, which takes 5" in err
    assert f"{database}: profile ours stored" in err
    # exact factors leave no error, and every tenth follows from the others
    assert [one["mean_absolute_relative_error"] for one in json.loads(out)["errors"][1:]] == [
        pytest.approx(0, abs=1e-12)
    ] * 2


def test_a_kind_of_shapes_takes_what_format_and_pass_leave(
    warehouse: Command, tmp_path: Path
) -> None:
    sides = (2048, 4096, 8192, 16384, 32768)
    short = tuple((rows, 2048, 512) for rows in sides)
    rows = [*lines(1.25), *lines(1.25 * 0.8, shapes=short)]
    path = written(tmp_path / "t.csv", rows)
    _, out, _ = warehouse("calibrate", "--kernels", path, "--accelerator", H100, "--json")
    kinds = kinds_of(out)
    assert kinds["matmuls in 16 bits"]["times_as_long"] == pytest.approx(1.25)
    assert kinds["inner size of at most 1,024"]["times_as_long"] == pytest.approx(0.8)
    assert kinds["at most 1,024 rows or columns"]["times_as_long"] is None


def test_the_clock_of_a_long_loop_is_taken_out(warehouse: Command, tmp_path: Path) -> None:
    # the balance of power at a clock of 0.9: (700 - 126) W x s = 8.6e-13 J x FLOPs x (0.9 / 0.86)^2
    flops = 2.0 * 8192**3
    seconds = 8.6e-13 * flops * (0.9 / 0.86) ** 2 / (700 - 126)
    path = written(tmp_path / "t.csv", [f"bf16,8192,8192,8192,{seconds!r},TN"] * 5)
    given = ("--kernels", path, "--accelerator", H100, "--json")
    short, long = (
        kinds_of(warehouse("calibrate", *given, *more)[1])["matmuls in 16 bits"]["times_as_long"]
        for more in ((), ("--sustained",))
    )
    assert short == pytest.approx(seconds / seconds_of((8192, 8192, 8192)))
    assert long == pytest.approx(0.9 * short)


def test_rows_that_cannot_be_used_are_counted_with_the_reason(
    warehouse: Command, tmp_path: Path
) -> None:
    rows = [f"{row},{H100},1" for row in lines(1.25)]
    fast = lines(0.1, shapes=LARGE[-1:])
    rows += [f"{row},{H100},1" for row in fast]
    rows += [f"{row},A100 SXM 80GB,1" for row in lines(1.25, shapes=LARGE)]
    rows += [f"{row},{H100},8" for row in lines(1.25, shapes=LARGE[:2])]
    rows += [f"tf32,2048,2048,2048,1e-3,TN,{H100},1"]
    path = written(tmp_path / "t.csv", rows, f"{HEADER},accelerator,batch")
    code, out, err = warehouse("calibrate", "--kernels", path, "--accelerator", "H100", "--json")
    assert code == 0, err
    assert json.loads(out)["left_out"] == {
        "of another accelerator": 4,
        "in a format that no step computes in": 1,
        "of several matmuls at once": 2,
        "faster than the peak": 1,
    }
    assert kinds_of(out)["matmuls in 16 bits"]["num_rows"] == 5


def test_products_of_experts_are_read_as_one_kernel(warehouse: Command, tmp_path: Path) -> None:
    # eight experts of 1,024 rows take as long as one product of 8,192 rows, whose operands they are
    grouped = [
        f"bf16,1024,{columns},{depth},{1.25 * seconds_of((8192, columns, depth))!r},TN,8"
        for columns, depth in ((4096, 4096), (4096, 8192), (8192, 4096), (8192, 8192))
    ] * 2
    path = written(tmp_path / "t.csv", grouped, f"{HEADER},num_products")
    code, out, err = warehouse("calibrate", "--kernels", path, "--accelerator", "H100", "--json")
    assert code == 0, err
    assert kinds_of(out)["matmuls in 16 bits"]["times_as_long"] == pytest.approx(1.25)


def test_attention_is_timed_in_a_file_of_its_own(
    warehouse: Command, tmp_path: Path, timings: Path
) -> None:
    header = "stage,num_sequences,seq_len,num_heads,head_size,seconds"
    rows = ["forward,4,8192,32,128,0.01"] * 5 + ["backward,4,8192,32,128,0.05"] * 5
    path = written(tmp_path / "attention.csv", rows, header)
    twice = written(tmp_path / "slow.csv", [row.replace("0.01", "0.02") for row in rows], header)
    found = []
    for file in (path, twice):
        given = ("--kernels", timings, "--kernels", file, "--accelerator", H100, "--json")
        code, out, err = warehouse("calibrate", *given)
        assert code == 0, err
        found.append(kinds_of(out))
    assert found[0]["matmuls in 16 bits"]["times_as_long"] == pytest.approx(1.25)
    first, second = (each["attention"]["times_as_long"] for each in found)
    assert second == pytest.approx(2 * first)
    # the backward pass is as slow as before: half of what forward attention says
    ratios = [each["backward pass of attention"]["times_as_long"] for each in found]
    assert ratios[1] == pytest.approx(ratios[0] / 2)


@pytest.mark.long
def test_a_profile_of_kernels_is_taken_by_every_command(
    warehouse: Command, database: Path, timings: Path
) -> None:
    given = ("--kernels", timings, "--accelerator", H100, "--name", "ours", "--db", database)
    assert warehouse("calibrate", *given)[0] == 0
    shown = {}
    for profile in ("default", "ours"):
        wanted = (*CONFIGURATION, f"profile={profile}", "--db", database, "--json")
        code, out, err = warehouse("show", "--estimator", "training_step", *wanted)
        assert code == 0, err
        shown[profile] = json.loads(out)
    plain, ours = shown["default"], shown["ours"]
    assert ours["inputs"]["product_rate_factor"] == pytest.approx(0.8)
    assert ours["inputs"]["weight_gradient_rate_factor"] == pytest.approx(1 / 1.2)
    assert ours["results"]["gemm_seconds"] > 1.1 * plain["results"]["gemm_seconds"]

    code, out, err = warehouse(
        "explain", *CONFIGURATION, "--profile", "ours", "--db", database, "--json"
    )
    assert code == 0, err
    [constant] = [
        one for one in json.loads(out)["constants"] if one["name"] == "product_rate_factor"
    ]
    assert constant["value"] == pytest.approx(0.8)
    assert str(timings) in constant["source"]

    asked = ("--model", "llama3_8B", "--tokens", "1e11", "--accelerator", H100, "--gpus", "8")
    held = ("tensor_parallel=8", "activation_recompute=full", "--batch", "8", "--db", database)
    code, out, err = warehouse("plan", *asked, *held, "--profile", "ours", "--json")
    assert code == 0, err
    best = json.loads(out)["layouts"][0]
    # the same layout with the default constants
    relation = registry.get("training_step").relations[0]
    layout = [f"{name}={str(best[name]).lower()}" for name in relation.keys]
    pairs = ("model=llama3_8B", f"accelerator={H100}", "global_batch_size=8", *layout)
    code, out, err = warehouse(
        "show", "--estimator", "training_step", *pairs, "activation_recompute=full", "--json"
    )
    assert code == 0, err
    assert best["step_seconds"] > 1.05 * json.loads(out)["results"]["step_seconds"]


def test_a_profile_of_kernels_says_nothing_of_another_accelerator(
    warehouse: Command, database: Path, timings: Path
) -> None:
    given = ("--kernels", timings, "--accelerator", H100, "--name", "ours", "--db", database)
    assert warehouse("calibrate", *given)[0] == 0
    other = ("model=llama3_8B", "accelerator=B200", "num_gpus=8", "tensor_parallel=8")
    code, _, err = warehouse(
        "show", "--estimator", "training_step", *other, "--profile", "ours", "--db", database
    )
    assert code == 3
    assert "has no constant for B200 SXM 180GB" in err


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([], HEADER, "has no rows"),
        (["bf16,2048,2048,2048,nan,TN"], HEADER, '`seconds` "nan" must be a number from 1e-09'),
        (["bf16,2048,2048,2048,,TN"], HEADER, "`seconds` is missing"),
        (["bf16,2048,2048,2048,-1,TN"], HEADER, "`seconds` -1 must be a number"),
        (["bf16,2048,2048,2048,1e300,TN"], HEADER, "`seconds` 1e+300 must be a number"),
        (["bf16,-5,2048,2048,1,TN"], HEADER, "`num_rows` -5 must be a whole number"),
        (["bf16,1.5,2048,2048,1,TN"], HEADER, "`num_rows` 1.5 must be a whole number"),
        (["bf16,many,2048,2048,1,TN"], HEADER, '`num_rows` "many" must be a whole number'),
        (["bf15,2048,2048,2048,1,TN"], HEADER, '`number_format` "bf15" is not known'),
        (["bf16,2048,2048,2048,1,TT"], HEADER, '`layout` "TT" is not known'),
        (["bf16,2048,2048,2048,1e-3,TN"], HEADER, "no kind of kernels has 5 rows to use"),
        (["1,2"], "num_rows,num_columns", "has no column `inner_size`"),
        (["bf16,8192,8192,8192,1e3,TN"] * 5, HEADER, "are the times in seconds"),
    ],
)
def test_a_faulty_file_is_refused_and_changes_nothing(
    warehouse: Command,
    database: Path,
    tmp_path: Path,
    rows: list[str],
    header: str,
    message: str,
) -> None:
    path = written(tmp_path / "t.csv", rows, header)
    given = ("--kernels", path, "--accelerator", H100, "--name", "ours", "--db", database)
    code, out, err = warehouse("calibrate", *given)
    assert (code, out) == (3, "")
    assert message in err
    assert constants(database) == {}


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ((), 3, "no `accelerator` is given"),
        (("--accelerator", "H1000"), 3, "is not in the `accelerator` table"),
        (("--accelerator", "V100 SXM2"), 3, "has no measured matmuls"),
        (("--accelerator", H100, "--rows", "row=a"), 2, "`--rows` and `--kernels` exclude"),
        (("--accelerator", H100, "--beyond-range"), 2, "`--beyond-range` and `--kernels` exclude"),
        (("--accelerator", H100, "--estimator", "roofline"), 2, "roofline"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    warehouse: Command, timings: Path, more: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = warehouse("calibrate", "--kernels", timings, *more)
    assert (found, out) == (code, "")
    assert message in err


def test_files_of_several_accelerators_are_refused_with_the_file_that_differs(
    warehouse: Command, tmp_path: Path
) -> None:
    paths = [
        written(
            tmp_path / f"{n}.csv", [f"{row},{of}" for row in lines(1.25)], f"{HEADER},accelerator"
        )
        for n, of in enumerate((H100, H100, "B200"))
    ]
    files = [word for path in paths for word in ("--kernels", path)]
    code, out, err = warehouse("calibrate", *files)
    assert (code, out) == (3, "")
    assert f"{paths[2]}: is of B200 SXM 180GB, and {paths[0]} of {H100}" in err
    assert "a profile of kernels is of one accelerator: name it with --accelerator" in err


def test_two_files_of_one_kind_are_refused(warehouse: Command, timings: Path) -> None:
    files = ("--kernels", timings, "--kernels", timings)
    code, out, err = warehouse("calibrate", *files, "--accelerator", H100)
    assert (code, out) == (3, "")
    assert f"{timings}: another file is of matmuls too" in err
    assert "put all rows into one file" in err


def test_a_reference_or_timings_must_be_given(warehouse: Command) -> None:
    code, _, err = warehouse("calibrate")
    assert code == 2
    assert "neither REFERENCE nor `--kernels` is given" in err
    code, _, err = warehouse("calibrate", "published_megatron_recompute", "--sustained")
    assert code == 2
    assert "`--sustained` needs --kernels" in err
