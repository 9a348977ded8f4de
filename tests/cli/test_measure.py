"""`warehouse measure`: a team's own runs, stored whole and compared with the estimates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from tests.shared import Command, Program, Shared, call, digest, held

RUNS = """\
run,model,accelerator,num_gpus,tensor_parallel,pipeline_parallel,global_batch_size,step_seconds,memory_bytes,source,note
a,gpt3_1.3B,H100,8,2,1,64,0.5,30e9,log 17,first
b,gpt3_1.3B,H100,8,4,1,64,0.6,,,
c,gpt3_1.3B,H100 SXM 80GB,16,4,2,64,0.7,20e9,,slow
"""


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of runs; return its path."""

    def runs(text: str = RUNS, name: str = "runs.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return runs


@dataclass(frozen=True)
class Measure:
    """Measures into a database of the test's own; returns the comparison."""

    database: Path
    warehouse: Command

    def __call__(self, file: Path, *options: object) -> Any:
        code, out, err = self.warehouse("measure", file, *options, "--json", "--db", self.database)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def measure(warehouse: Command, empty_warehouse: Path, tmp_path: Path) -> Measure:
    return Measure(Path(shutil.copyfile(empty_warehouse, tmp_path / "measured.duckdb")), warehouse)


@pytest.fixture(scope="module")
def ours(shared: Shared, empty_warehouse: Path) -> tuple[Path, str, str]:
    """A database with the runs under the name of ours, the printed comparison, what was said."""

    def make(place: Path) -> None:
        (place / "runs.csv").write_text(RUNS, encoding="utf-8")
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        options = ("--name", "ours", "--db", path)
        done = call("measure", place / "runs.csv", *options)
        (place / "done.json").write_text(json.dumps(done), encoding="utf-8")

    place = shared("measured as ours", make)
    code, out, err = json.loads((place / "done.json").read_text(encoding="utf-8"))
    assert code == 0, err
    return place / "warehouse.duckdb", out, err


@pytest.fixture
def measured(measure: Measure, ours: tuple[Path, str, str]) -> Measure:
    """A database of the test's own that has those runs."""
    shutil.copyfile(ours[0], measure.database)
    return measure


def compared(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the stored comparison of the runs of that name."""
    query = f"from measurement_comparison where reference = '{name}' order by measured_row, profile"
    with duckdb.connect(str(path), read_only=True) as connection:
        found: list[dict[str, Any]] = connection.sql(query).pl().to_dicts()
    return found


def stored(path: Path, query: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_runs_are_compared_with_the_estimate_of_exactly_their_layout(
    ours: tuple[Path, str, str], warehouse: Command
) -> None:
    found = compared(ours[0], "ours")
    assert [line["measured_row"] for line in found] == ["a", "b", "c"]
    first, second, _ = found
    # of `show`, asked by itself
    pairs = ("model=gpt3_1.3B", "accelerator=H100", "num_gpus=8", "tensor_parallel=2")
    out = warehouse(
        "show", "--estimator", "training_step", *pairs, "global_batch_size=64", "--json"
    )[1]
    alone = json.loads(out)
    alone = alone.get("results", alone)
    assert first["step_seconds"] == pytest.approx(alone["step_seconds"])
    assert first["memory_bytes"] == pytest.approx(alone["memory_bytes"])
    assert first["time_relative_error"] == pytest.approx(alone["step_seconds"] / 0.5 - 1)
    assert first["memory_relative_error"] == pytest.approx(alone["memory_bytes"] / 30e9 - 1)
    assert (first["data_parallel"], first["accelerator"]) == (4, "H100 SXM 80GB")
    assert (second["measured_memory_bytes"], second["memory_relative_error"]) == (None, None)


def test_the_table_holds_what_was_measured_and_whence(
    ours: tuple[Path, str, str],
) -> None:
    database, file = ours[0], str(ours[0].parent / "runs.csv")
    rows = stored(
        database,
        "select reference, measured_row, measurement_file, measured_step_seconds, "
        "measured_memory_bytes, source, note, zero_stage, framework from measurement order by all",
    )
    assert rows == [
        ("ours", "a", file, 0.5, 30e9, "log 17", "first", 1, "megatron_core"),
        ("ours", "b", file, 0.6, None, None, None, 1, "megatron_core"),
        ("ours", "c", file, 0.7, 20e9, None, "slow", 1, "megatron_core"),
    ]
    # their problems are stored ones, and their estimates belong to a study
    assert stored(
        database, "select count(*) from measurement inner join problem using (problem_id)"
    ) == [(3,)]
    assert stored(database, "select count(*) from study_cell") == [(2,)]


@pytest.mark.long
def test_the_same_file_twice_is_refused_or_replaces(
    measured: Measure, runs: Callable[..., Path], warehouse: Command
) -> None:
    file = runs(name="ours.csv")
    code, out, err = warehouse("measure", file, "--db", measured.database)
    assert (code, out) == (3, "")
    assert "`--name` ours: runs of that name are stored already (3)" in err
    assert "--replace" in err
    again = measured(runs(RUNS.replace("0.5,", "0.25,"), "ours.csv"), "--replace")
    assert len(again) == 3
    assert stored(
        measured.database, "select measured_step_seconds from measurement where measured_row = 'a'"
    ) == [(0.25,)]
    other = measured(file, "--name", "second")
    assert len(other) == 3
    assert stored(measured.database, "select count(*) from measurement") == [(6,)]


@pytest.mark.long
def test_parquet_and_files_without_names_are_taken_and_compared_in_a_file(
    measure: Measure, tmp_path: Path, runs: Callable[..., Path], warehouse: Command
) -> None:
    path, target = tmp_path / "runs.parquet", tmp_path / "compared.csv"
    pl.read_csv(runs()).drop("run", "note").write_parquet(path)
    code, said, err = warehouse("measure", path, "--out", target, "--db", measure.database)
    assert (code, said) == (0, ""), err
    written = pl.read_csv(target)
    assert written["measured_row"].to_list() == ["row 1", "row 2", "row 3"]
    assert written["measured_step_seconds"].to_list() == [0.5, 0.6, 0.7]


@pytest.mark.long
def test_a_run_with_constants_of_its_own_is_compared_with_them(
    measure: Measure, runs: Callable[..., Path]
) -> None:
    text = "model,accelerator,num_gpus,global_batch_size,gemm_efficiency,step_seconds\n"
    found = measure(runs(f"{text}gpt3_1.3B,H100,8,64,0.5,0.8\ngpt3_1.3B,H100,8,64,0.9,0.8\n"))
    slow, fast = (line["step_seconds"] for line in found)
    assert slow > fast


@pytest.mark.long
def test_another_estimator_joins_by_its_shape(
    measured: Measure, warehouse: Command, tmp_path: Path
) -> None:
    study = tmp_path / "roofline.toml"
    study.write_text(
        'name = "same"\nestimator = "roofline"\nvariant = "both"\n[space]\nmodel = "gpt3_1.3B"\n'
        'accelerator = "H100 SXM 80GB"\nnvlink_size = 8\nnum_gpus = 8\nglobal_batch_size = 64\n'
    )
    assert warehouse("sweep", study, "--db", measured.database)[0] == 0
    found = stored(
        measured.database,
        "select estimator, variant, count(*) from measurement_comparison group by all order by all",
    )
    assert found == [
        ("roofline", "corrected", 2),
        ("roofline", "published", 2),
        ("training_step", "published", 3),
    ]


def test_a_run_that_breaks_a_rule_of_its_program_is_stored_and_the_rule_is_named(
    runs: Callable[..., Path], measure: Measure, warehouse: Command
) -> None:
    header = "run,model,accelerator,num_gpus,framework,zero_stage,pipeline_parallel"
    stages = {"a": 3, "b": 1, "c": 2}
    rows = [f"{run},gpt3_1.3B,H100,8,deepspeed,{stage},2" for run, stage in stages.items()]
    text = "\n".join(f"{row},64,9" for row in rows)
    path = runs(f"{header},global_batch_size,step_seconds\n{text}\n")
    code, _, said = warehouse("measure", path, "--db", measure.database)
    assert code == 0
    assert "line 2 and 1 more run: `pipeline_parallel` 2 is not run by deepspeed: The" in said
    assert stored(measure.database, "select count(*) from measurement") == [(3,)]
    # an estimate that an earlier version made is made again
    assert warehouse("rebuild", "--db", measure.database)[0] == 0
    assert stored(measure.database, "select count(*) from measurement") == [(3,)]


def test_the_report_says_how_far_the_estimates_are(ours: tuple[Path, str, str]) -> None:
    _, out, err = ours
    assert "3 runs stored" in err
    assert "error of time" in err
    assert "error of memory" in err
    assert "time error %" in out


@pytest.mark.long
def test_a_run_that_does_not_fit_by_its_estimate_is_named(
    warehouse: Command, measure: Measure, runs: Callable[..., Path]
) -> None:
    # 7 G parameters on one GPU: 18 bytes each are 126 GB
    text = (
        "run,model,accelerator,num_gpus,global_batch_size,step_seconds\n"
        "large,llama2_7B,H100,1,8,9\nsmall,gpt3_1.3B,H100,8,64,0.6\n"
    )
    _, _, err = warehouse("measure", runs(text), "--db", measure.database)
    [line] = [each for each in err.splitlines() if "does not fit" in each]
    [large, _] = compared(measure.database, "runs")
    [(hbm_bytes, fits_memory)] = stored(
        measure.database,
        "select hbm_bytes, fits_memory from configuration where model = 'llama2_7B'",
    )
    excess = (large["memory_bytes"] - hbm_bytes) / 1e9
    assert (fits_memory, excess > 20) == (False, True)
    assert line.startswith("training_step: large does not fit by its estimate, ")
    assert f"the estimate is at least {excess:,.1f} GB too large, or the run differs" in line


HEAD = (
    "run,model,accelerator,num_gpus,tensor_parallel,global_batch_size,step_seconds,memory_bytes\n"
)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,gpt3_1.3B,H100,8,2,64,nan,\n", 'line 2: `step_seconds` "nan" must be a positive'),
        ("a,gpt3_1.3B,H100,8,2,64,,\n", "line 2: `step_seconds` (none) must be"),
        ("a,gpt3_1.3B,H100,8,2,64,12s,\n", 'line 2: `step_seconds` "12s"'),
        ("a,gpt3_1.3B,H100,8,2,64,-1,\n", 'line 2: `step_seconds` "-1"'),
        ("a,gpt3_1.3B,H100,8,2,64,inf,\n", 'line 2: `step_seconds` "inf"'),
        ("a,gpt3_1.3B,H100,8,2,64,1,0\n", 'line 2: `memory_bytes` "0" must be a positive number'),
        (
            "a,gpt3_1.3B,H100,8,2,64,1,\nb,gpt3_1.3B,H100,8,3,64,1,\n",
            "line 3: `tensor_parallel` 3 does not divide `num_heads` 16",
        ),
        ("a,nosuch,H100,8,2,64,1,\n", 'line 2: `model` "nosuch" is not in the `model` table'),
        (
            "a,gpt3_1.3B,H100,8,2,64,1,\na,gpt3_1.3B,H100,8,4,64,1,\n",
            'line 3: `run` "a" is given twice',
        ),
        (",gpt3_1.3B,H100,8,2,64,1,\n", "line 2: `run` is missing"),
        (
            '"a\nb",gpt3_1.3B,H100,8,2,64,1,\nc,gpt3_1.3B,H100,8,2,64,0,\n',
            'line 4: `step_seconds` "0" must be',
        ),
        ("a,gpt3_1.3B,H100,8,2,64\n", "line 2 has 6 cells, not 8"),
        ("", "has no run"),
    ],
)
def test_a_faulty_row_refuses_the_whole_file(
    warehouse: Command,
    measure: Measure,
    runs: Callable[..., Path],
    empty_warehouse: Path,
    rows: str,
    said: str,
) -> None:
    file = runs(HEAD + rows)
    code, out, err = warehouse("measure", file, "--db", measure.database)
    assert (code, out) == (3, "")
    assert f"{file}" in err
    assert said in err
    assert digest(measure.database) == digest(empty_warehouse)


def test_all_faults_are_reported_with_their_hints(
    warehouse: Command, measure: Measure, runs: Callable[..., Path]
) -> None:
    rows = "a,gpt3_1.3B,H100,8,3,64,1,\nb,gpt3_1.3B,H100,8,2,64,nan,\n"
    _, _, err = warehouse("measure", runs(HEAD + rows), "--db", measure.database)
    assert "line 2" in err
    assert "line 3" in err
    assert "hint: use 1, 2, 4 or 8" in err
    assert "hint: give it in seconds" in err


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("model,step_seconds\ngpt3_1.3B,1\n", "runs.txt", "is of no known format"),
        ("model,accelerator\ngpt3_1.3B,H100\n", "runs.csv", "has no column `step_seconds`"),
        ("step_seconds,what\n1,2\n", "runs.csv", "has no column of a layout"),
        ("what;else\n1;2\n", "runs.csv", "has no column of a layout"),
        ("model;num_gpus\ngpt3_1.3B;8\n", "runs.csv", "has semicolons between its columns"),
        ("model;step_seconds\ngpt3_1.3B;0,5\n", "runs.csv", "with points in numbers such as 0.5"),
        ("model\tnum_gpus\ngpt3_1.3B\t8\n", "runs.csv", "has tabs between its columns"),
        ("model | num_gpus\ngpt3_1.3B | 8\n", "runs.csv", "has bars between its columns"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_refused(
    warehouse: Command, measure: Measure, runs: Callable[..., Path], text: str, name: str, said: str
) -> None:
    code, _, err = warehouse("measure", runs(text, name), "--db", measure.database)
    assert code == 3
    assert said in err


@pytest.mark.parametrize(
    ("second", "is_warned"),
    [
        (1700, True),
        pytest.param(1.7, False, marks=pytest.mark.long),
        pytest.param(70_000, False, marks=pytest.mark.long),
    ],
)
def test_steps_that_seem_to_be_milliseconds_are_stored_with_a_warning(
    warehouse: Command,
    measure: Measure,
    runs: Callable[..., Path],
    second: float,
    is_warned: bool,
) -> None:
    rows = f"a,gpt3_1.3B,H100,8,2,64,900,\nb,gpt3_1.3B,H100,8,4,64,{second},\n"
    code, _, err = warehouse("measure", runs(HEAD + rows), "--db", measure.database)
    assert code == 0
    assert ("warning: " in err) == is_warned
    if is_warned:
        said = " ".join(err.split())
        assert "every row is about 1000 times its estimate (900 and 0." in said
        assert "divide them by 1000 and store them again with --replace" in said


def test_a_missing_file_and_a_taken_name_are_refused(
    warehouse: Command, measure: Measure, runs: Callable[..., Path], tmp_path: Path
) -> None:
    code, _, err = warehouse("measure", tmp_path / "no.csv", "--db", tmp_path / "no.duckdb")
    assert code == 3
    assert "there is no such file" in err
    assert not (tmp_path / "no.duckdb").exists()
    taken = ("--name", "published_megatron_scaling")
    code, _, err = warehouse("measure", runs(), *taken, "--db", measure.database)
    assert code == 3
    assert "is a table of published steps" in err
    code, _, err = warehouse("measure", runs(), "--name", " ", "--db", measure.database)
    assert code == 3


@pytest.mark.long
def test_a_database_that_another_process_writes_to_is_reported(
    measure: Measure, runs: Callable[..., Path], program: Program
) -> None:
    with held(measure.database) as pid:
        done = program("measure", runs(), "--wait", 0, "--db", measure.database)
        assert done.returncode == 5
        assert f"is in use by process {pid}" in done.stderr


BARE = (
    "model,accelerator,num_gpus,global_batch_size,step_seconds\ngpt3_1.3B,H100 SXM 80GB,8,64,0.5\n"
)


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["roofline", "megatron_flops"])
def test_any_estimator_of_a_step_completes_and_estimates_runs(
    measure: Measure, runs: Callable[..., Path], warehouse: Command, estimator: str
) -> None:
    [line] = measure(runs(BARE), "--estimator", estimator)
    pairs = ("model=gpt3_1.3B", "accelerator=H100 SXM 80GB", "num_gpus=8", "global_batch_size=64")
    # a question takes the domain of the product, a measured run the default of the source
    domain = ("--nvlink-size", 4) if estimator == "roofline" else ()
    shown = warehouse("show", "--estimator", estimator, *pairs, *domain, "--json")[1]
    alone = json.loads(shown)["results"]
    assert line["estimator"] == estimator
    assert line["step_seconds"] == pytest.approx(alone["step_seconds"], rel=1e-12)
    assert line["time_relative_error"] == pytest.approx(alone["step_seconds"] / 0.5 - 1)


@pytest.mark.long
@pytest.mark.usefixtures("toy")
def test_the_toy_estimator_completes_and_estimates_runs(
    warehouse: Command, database: Path, runs: Callable[..., Path]
) -> None:
    """6 x 12 x 2 x 8^2 x 8 x 16 FLOPs on 4e6 a second; 1536 parameters are exchanged."""
    head = (
        "num_layers,hidden_size,seq_len,matrix_flops_per_second,hbm_bytes,"
        "network_bytes_per_second,toy_overlap_fraction,num_gpus,global_batch_size,"
        "step_seconds,memory_bytes\n"
    )
    file = runs(head + "2,8,16,1e6,1e8,1e3,1,4,8,0.5,2e6\n")
    options = ("--estimator", "toy", "--json", "--db", database)
    code, out, err = warehouse("measure", file, *options)
    assert code == 0, err
    [line] = json.loads(out)
    assert line["estimator"] == "toy"
    assert line["time_relative_error"] == pytest.approx(line["step_seconds"] / 0.5 - 1)
    assert "its program is not known" in err


@pytest.mark.parametrize("estimator", ["dataflow", "pipeline", "cluster"])
def test_an_estimator_of_no_step_of_a_batch_on_gpus_is_refused(
    warehouse: Command, database: Path, runs: Callable[..., Path], estimator: str
) -> None:
    options = ("--estimator", estimator, "--db", database)
    code, out, err = warehouse("measure", runs(BARE), *options)
    assert (code, out) == (2, "")
    assert f"`--estimator` {estimator} estimates no step of a number of GPUs and a batch" in err
    assert "use roofline or training_step or megatron_flops" in err
    assert not database.exists()


@pytest.mark.long
@pytest.mark.usefixtures("same_fits")
def test_a_run_takes_the_constants_of_the_profile_that_it_names(
    measure: Measure, runs: Callable[..., Path], warehouse: Command
) -> None:
    made = ("published_megatron_scaling", "--fit", "product_rate_factor", "--name", "mine")
    code, _, err = warehouse("calibrate", *made, "--db", measure.database)
    assert code == 0, err
    head = "model,accelerator,num_gpus,global_batch_size,step_seconds,profile\n"
    row = "gpt3_1.3B,A100 SXM 80GB,8,64,2,"
    [tuned] = measure(runs(f"{head}{row}mine\n"), "--name", "tuned")
    plain_run = ("measure", runs(f"{head}{row}\n"), "--name", "plain")
    code, _, err = warehouse(*plain_run, "--db", measure.database)
    assert code == 0, err
    both = compared(measure.database, "plain")  # the profile's estimate is there
    assert [line["profile"] for line in both] == ["default", "mine"]
    plain, _ = both
    assert tuned["profile"] == "mine"
    assert tuned["step_seconds"] != pytest.approx(plain["step_seconds"], rel=1e-3)
    assert err.count("training_step: error of time") == 1
    assert err.count("training_step, profile mine: error of time") == 1
    code, _, err = warehouse("measure", runs(f"{head}{row}other\n"), "--db", measure.database)
    assert code == 3
    assert 'line 2: `profile` "other" is not a stored profile' in err


@pytest.mark.long
def test_a_memory_is_compared_with_what_counts_the_same(
    measure: Measure, runs: Callable[..., Path]
) -> None:
    head, *lines = RUNS.strip().splitlines()
    kinds = ("allocated", "", "device")
    text = "\n".join(
        [head + ",measured_memory_kind", *map(",".join, zip(lines, kinds, strict=True))]
    )
    measure(runs(text), "--name", "ours")
    compared = stored(
        measure.database,
        "select measured_memory_kind, compared_memory_bytes = memory_bytes, "
        "compared_memory_bytes < memory_bytes from measurement_comparison order by measured_row",
    )
    assert compared == [("allocated", False, True), (None, True, False), ("device", True, False)]


def test_an_unknown_kind_of_memory_is_refused(
    runs: Callable[..., Path], warehouse: Command, empty_warehouse: Path
) -> None:
    head, first, *_ = RUNS.splitlines()
    file = runs(f"{head},measured_memory_kind\n{first},torch\n")
    code, _, err = warehouse("measure", file, "--db", empty_warehouse)
    assert code == 3
    assert '`measured_memory_kind` "torch" is unknown' in err
    assert "hint: use allocated, reserved, device, unknown" in err
