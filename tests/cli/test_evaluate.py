"""`warehouse evaluate`, called as a user calls it."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

from estimators.registry import ESTIMATORS, get
from tests.shared import Command, Shared, call
from warehouse.cli.main import run

GOLDENS = Path(__file__).parents[1] / "goldens"
CONFIGS = GOLDENS / "configs.csv"
"""The ten configurations of table 1 of arXiv 2104.04473."""


@pytest.fixture
def evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run the command in an empty directory; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAREHOUSE_DB", raising=False)

    def evaluate(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["evaluate", "--estimator", *map(str, arguments)])
        return code, *capsys.readouterr()

    return evaluate


def test_published_figures_of_the_source_are_met_in_every_column(evaluate: Command) -> None:
    """All candidates of the parity file, in both formats: one part in a billion."""
    source = GOLDENS / "roofline_random.parquet"
    expected = pl.read_parquet(source)
    expected.write_csv("in.csv")
    for configs, out in ((source, "out.parquet"), ("in.csv", "out.csv")):
        arguments = ("roofline", configs, "--out", out, "--variant", "published")
        assert evaluate(*arguments)[0] == 0
        found = pl.read_csv(out) if out.endswith("csv") else pl.read_parquet(out)
        assert found.schema == expected.schema
        for name in expected.columns:
            if expected.schema[name] == pl.Float64:
                error = (found[name] - expected[name]).abs() - 1e-9 * expected[name].abs()
                assert (error <= 0).all(), name
            else:
                assert found[name].equals(expected[name]), name


def test_stdout_stays_empty_and_stderr_has_the_messages(evaluate: Command) -> None:
    code, out, err = evaluate("roofline", CONFIGS, "--out", "out.csv")
    assert (code, out) == (0, "")
    assert err.startswith("out.csv: 10 rows evaluated in ")
    assert not Path("db").exists()


def test_corrected_is_the_default_and_mends_can_be_chosen(evaluate: Command) -> None:
    found = {}
    for name, options in {
        "default": (),
        "corrected": ("--variant", "corrected"),
        "all": ("--mend", "R2, R4,R5,R6,R9"),
        "one": ("--mend", "R6"),
        "listed": ("--variant", " R6"),
        "published": ("--variant", "published"),
    }.items():
        assert evaluate("roofline", CONFIGS, "--out", "out.csv", *options)[0] == 0
        found[name] = pl.read_csv("out.csv")
    assert found["default"].equals(found["corrected"])
    assert found["default"].equals(found["all"])
    # R6 counts the FLOPs of vector work once; times stay as they are.
    less = found["one"]["flops_per_gpu"] < found["published"]["flops_per_gpu"]
    assert less.all()
    assert found["one"].drop("flops_per_gpu").equals(found["published"].drop("flops_per_gpu"))
    assert found["one"].equals(found["listed"])
    assert not found["one"].equals(found["corrected"])


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--mend", "R2", "--variant", "published"), 2, "`--variant` exclude each other"),
        (("--mend", ","), 2, "names no erratum"),
        (("--variant", "both"), 2, "names several variants\nhint: use published, corrected, or"),
        (("--variant", "all"), 2, "`--variant` all is not known\nhint: use published, corrected"),
        (("--variant", "R2,R99"), 2, "`--variant` R99 is not a mend of roofline"),
        (("--mend", "R99,R2"), 2, "`--mend` R99 is not a mend of roofline\nhint: known: R1, R2"),
        (("--relation", "x"), 3, "is not a relation of roofline"),
        (("--out", "x.txt"), 3, "of no known format"),
    ],
)
def test_wrong_options_are_refused(
    evaluate: Command, options: tuple[str, ...], code: int, expected: str
) -> None:
    target = () if "--out" in options else ("--out", "out.csv")
    found, out, err = evaluate("roofline", CONFIGS, *target, *options)
    assert (found, out) == (code, "")
    assert expected in err
    assert not Path("out.csv").exists()


def test_an_unknown_estimator_is_refused(evaluate: Command) -> None:
    code, _, err = evaluate("rooflin", CONFIGS, "--out", "out.csv")
    assert code == 3
    assert "roofline" in err


def faulty() -> None:
    with CONFIGS.open() as file:
        rows = list(csv.DictReader(file))
    rows[1]["tensor_parallel"] = "3"
    rows[4]["num_gpus"] = "many"
    pl.DataFrame(rows).write_csv("faulty.csv")


def test_refused_rows_are_reported_with_row_column_value_and_hint_and_nothing_is_written(
    evaluate: Command,
) -> None:
    faulty()
    code, out, err = evaluate("roofline", "faulty.csv", "--out", "out.csv")
    assert (code, out) == (3, "")
    assert "faulty.csv: row 2: `tensor_parallel` 3 does not divide `num_heads` 32" in err
    assert "hint: use 2" in err
    assert 'faulty.csv: row 5: `num_gpus` "many" must be a whole number' in err
    assert not Path("out.csv").exists()


def test_valid_rows_are_kept_on_demand(evaluate: Command) -> None:
    faulty()
    code, _, err = evaluate("roofline", "faulty.csv", "--out", "out.csv", "--keep-valid")
    assert code == 0
    assert "row 2: `tensor_parallel` 3" in err
    assert "2 rows refused and left out" in err
    assert pl.read_csv("out.csv")["model"].to_list()[:3] == [
        "megatron_1.7B",
        "megatron_7.5B",
        "megatron_18B",
    ]


def test_a_misspelt_column_is_reported(evaluate: Command) -> None:
    text = CONFIGS.read_text().replace("microbatch_size", "micro_batch_size")
    Path("in.csv").write_text(text)
    code, _, err = evaluate("roofline", "in.csv", "--out", "out.csv")
    assert code == 0
    assert "warning: in.csv: column `micro_batch_size` is not read" in err


def test_a_column_spelt_as_in_the_source_is_reported_with_its_name_here(evaluate: Command) -> None:
    Path("in.csv").write_text(
        "num_layers,hidden_size,dataset_tokens,p_pipe,note\n12,4096,1e12,2,kept\n"
    )
    code, _, err = evaluate("dataflow", "in.csv", "--out", "out.csv")
    assert code == 0
    expected = "name for `pipeline_parallel`; rename it"
    assert (
        f"warning: in.csv: column `p_pipe` is not read: it is this estimator's source's {expected}"
        in (err)
    )
    assert err.count("warning") == 1


def test_a_text_that_no_row_has_is_written_as_nothing(evaluate: Command) -> None:
    header = "num_layers,hidden_size,dataset_tokens,skip_efficiency_check"
    for out in ("out.csv", "out.parquet"):
        Path("in.csv").write_text(f"{header}\n12,4096,1e12,true\n")
        assert evaluate("dataflow", "in.csv", "--out", out)[0] == 0
    assert pl.read_csv("out.csv")["efficient_microbatch_sizes"].to_list() == [None]
    assert pl.read_parquet("out.parquet").schema["efficient_microbatch_sizes"] == pl.String


LEAST = {
    "roofline": ("model,accelerator", "gpt3,A100"),
    "dataflow": ("num_layers,hidden_size,dataset_tokens", "12,4096,1e12"),
    "linear_layer": ("accelerator,input_size,output_size,tokens", "A100,100,400,4096"),
    "run_optimizer": ("accelerator,num_microbatches", "A100,1e10"),
    "pipeline": ("num_layers,hidden_size,accelerator", "12,4096,H100"),
    "cluster": ("accelerator", "H100 SXM 80GB"),
    "training_step": ("model,accelerator", "llama3_8B,H100 SXM 80GB"),
    "megatron_flops": (
        "model,accelerator,num_gpus,global_batch_size",
        "megatron_1.7B,A100 SXM 80GB,32,512",
    ),
}
"""Estimator -> header and row of the least that it takes."""


@pytest.mark.long
def test_the_least_that_an_estimator_takes_is_stored_and_every_view_has_it(
    evaluate: Command,
) -> None:
    for name in ESTIMATORS:
        Path("in.csv").write_text("\n".join(LEAST[name]) + "\n")
        stored = evaluate(name, "in.csv", "--out", "out.csv", "--into-db", "--db", "w.duckdb")
        assert stored[0] == 0, stored
    with duckdb.connect("w.duckdb", read_only=True) as connection:
        for name in ESTIMATORS:
            relation = get(name).relations[0].name
            assert len(connection.execute(f"from current_{relation}").fetchall()) == 1
        for view in ("configuration", "configuration_rank"):
            connection.execute(f"from {view}").fetchall()


STORED = {
    "roofline": 'model = "gpt3"\naccelerator = "H200"\nnum_gpus = 16\nglobal_batch_size = 32\n',
    "dataflow": "num_layers = 12\nhidden_size = 4096\ndataset_tokens = 3e9\nnum_clusters = 16\n"
    "use_glu = true\nmulti_query_attention = [false, true]\n"
    'sequential_attention_ffn = true\naccelerator = "A100"\n',
    "linear_layer": 'accelerator = "A100"\ninput_size = 1000\noutput_size = 4000\n'
    "tokens = 65536\nnum_gpus = 12\n",
    "run_optimizer": 'accelerator = "A100"\nnum_gpus = 96\n',
    "pipeline": 'accelerator = "A100_40GB"\nnum_layers = 12\nhidden_size = 1024\n'
    "num_gpus = 16\ndata_parallel = 8\nglobal_batch_size = 64\nseq_len = 512\n",
    "megatron_flops": 'model = ["gpt3_175B", "gpt3"]\naccelerator = "H100"\n'
    "num_gpus = [8, 16]\nglobal_batch_size = 64\nseq_len = 4096\n"
    "achieved_flops_per_second_per_gpu = [1e14, 2e14]\n",
}
"""Estimator -> the space of a study whose rows are not what the defaults say."""


@pytest.fixture(params=STORED)
def name(request: pytest.FixtureRequest) -> str:
    """Name an estimator."""
    return str(request.param)


@pytest.fixture
def stored(name: str, shared: Shared, empty_warehouse: Path) -> Path:
    """A database with the study of the estimator, to read."""

    def make(place: Path) -> None:
        shutil.copyfile(empty_warehouse, place / "w.duckdb")
        study = f'name = "one"\nestimator = "{name}"\n[space]\n{STORED[name]}'
        (place / "one.toml").write_text(study)
        code, _, err = call("sweep", place / "one.toml", "--db", place / "w.duckdb")
        assert code == 0, err

    return shared(f"stored {name}", make) / "w.duckdb"


@pytest.mark.long
def test_stored_rows_evaluated_again_give_the_same_figures(
    evaluate: Command, capsys: pytest.CaptureFixture[str], name: str, stored: Path
) -> None:
    query = f"from current_{name} limit 300"
    assert run(["sql", query, "--format", "csv", "--db", str(stored)]) == 0
    Path("configs.csv").write_text(capsys.readouterr().out)
    code, _, err = evaluate(name, "configs.csv", "--out", "out.csv")
    assert (code, "warning" in err) == (0, False)
    before, after = (pl.read_csv(file) for file in ("configs.csv", "out.csv"))
    assert before.height > 5
    for column in before.columns:
        if column.endswith("_seconds"):
            assert after[column].to_list() == before[column].to_list(), column


@pytest.mark.long
@pytest.mark.parametrize("name", ["roofline", "dataflow", "run_optimizer", "pipeline"])
def test_the_refusal_of_rows_of_another_view_names_the_right_view(
    evaluate: Command, capsys: pytest.CaptureFixture[str], name: str, stored: Path
) -> None:
    assert run(["sql", "from configuration", "--format", "csv", "--db", str(stored)]) == 0
    Path("configs.csv").write_text(capsys.readouterr().out)
    err = evaluate(name, "configs.csv", "--out", "out.csv", "--keep-valid")[2]
    expected = f"warning: configs.csv: take stored rows from view current_{name}, which `"
    assert err.startswith(expected)
    assert "columns of other views may mean something else" in err.splitlines()[0]


def test_stored_rows_of_the_readmes_version_are_taken_again(
    evaluate: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text(
        "source_version,accelerator,num_layers,hidden_size\nreadme,A100_40GB,120,12288\n"
    )
    arguments = ("--variant", "published", "--db", "w.duckdb")
    assert evaluate("pipeline", "in.csv", "--out", "out.csv", "--into-db", *arguments)[0] == 0
    assert run(["sql", "from current_pipeline", "--format", "csv", "--db", "w.duckdb"]) == 0
    Path("again.csv").write_text(capsys.readouterr().out)
    assert evaluate("pipeline", "again.csv", "--out", "again_out.csv", *arguments)[0] == 0
    seconds = [pl.read_csv(file)["step_seconds"].to_list() for file in ("out.csv", "again_out.csv")]
    assert seconds[0] == seconds[1]


@pytest.mark.long
def test_rows_are_stored_once_and_joined_with_what_was_published(evaluate: Command) -> None:
    arguments = ("roofline", CONFIGS, "--out", "out.csv", "--into-db", "--db", "w.duckdb")
    code, out, err = evaluate(*arguments)
    assert (code, out) == (0, "")
    assert "w.duckdb: 10 distinct rows in 10 cells, 10 of them new" in err
    code, _, err = evaluate(*arguments)
    assert code == 0
    assert "10 distinct rows in 10 cells, 0 of them new" in err
    assert evaluate(*arguments, "--variant", "published")[0] == 0
    with duckdb.connect("w.duckdb", read_only=True) as connection:
        stored = connection.execute(
            "select variant, count(*), count(distinct problem_id) from current_roofline"
            " group by variant order by variant"
        ).fetchall()
        studies = connection.execute(
            "select study, count(*) from study_cell group by study order by study"
        ).fetchall()
        seconds = connection.execute(
            "select step_seconds from current_roofline where variant = 'published'"
            " order by num_gpus"
        ).fetchall()
        compared = connection.execute(
            "select count(*) from published_comparison group by variant"
        ).fetchall()
    assert stored == [("corrected", 10, 10), ("published", 10, 10)]
    assert studies == [
        (f"evaluate {CONFIGS} corrected", 10),
        (f"evaluate {CONFIGS} published", 10),
    ]
    assert [row[0] for row in seconds] == pl.read_csv("out.csv")["step_seconds"].to_list()
    assert compared == [(10,), (10,)]


@pytest.mark.long
def test_a_batch_and_a_search_ask_the_same_problems(evaluate: Command) -> None:
    """What is evaluated from a file is ranked among what a study searched."""
    Path("one.toml").write_text(
        'name = "one"\nestimator = "roofline"\n[space]\nmodel = "megatron_1.7B"\n'
        'accelerator = "A100 SXM 80GB"\nnvlink_size = 8\nnum_gpus = 32\nglobal_batch_size = 512\n'
        'activation_recompute = "full"\n'
    )
    assert run(["sweep", "one.toml", "--db", "w.duckdb"]) == 0
    evaluate("roofline", CONFIGS, "--out", "out.csv", "--into-db", "--db", "w.duckdb")
    with duckdb.connect("w.duckdb", read_only=True) as connection:
        shared = connection.execute(
            "select count(distinct cell_id), count(distinct problem_id)"
            " from cell inner join problem using (problem_id) where model = 'megatron_1.7B'"
        ).fetchone()
    assert shared == (2, 1)


def test_the_database_is_not_touched_without_into_db(evaluate: Command) -> None:
    Path("w.duckdb").write_text("held by someone else")
    assert evaluate("roofline", CONFIGS, "--out", "out.csv", "--db", "w.duckdb")[0] == 0


def test_an_unusable_database_is_reported_before_anything_is_written(evaluate: Command) -> None:
    Path("w.duckdb").write_text("no database")
    code, _, err = evaluate(
        "roofline", CONFIGS, "--out", "out.csv", "--into-db", "--db", "w.duckdb"
    )
    assert code == 5
    assert "w.duckdb" in err
    assert not Path("out.csv").exists()


# ---- intervals ----

STEPS = """\
model,accelerator,num_gpus,tensor_parallel,global_batch_size,product_rate_factor
llama3_8B,H100 SXM 80GB,8,2,64,
llama3_8B,A100 SXM 80GB,8,4,64,
llama3_8B,H100 SXM 80GB,8,2,64,0.9
"""


def test_a_step_that_depends_on_constants_has_an_interval_next_to_it(evaluate: Command) -> None:
    Path("in.csv").write_text(STEPS, encoding="utf-8")
    assert evaluate("training_step", "in.csv", "--out", "out.csv")[0] == 0
    found = pl.read_csv("out.csv")
    at = found.columns.index("step_seconds")
    assert found.columns[at + 1 : at + 3] == ["low_step_seconds", "high_step_seconds"]
    for row in found.iter_rows(named=True):
        assert row["low_step_seconds"] < row["step_seconds"] < row["high_step_seconds"]
    width = (found["high_step_seconds"] / found["low_step_seconds"]).to_list()
    assert width[2] < width[0]  # a constant that is no default is known


def test_what_was_written_is_evaluated_again_with_the_same_interval(evaluate: Command) -> None:
    Path("in.csv").write_text(STEPS, encoding="utf-8")
    assert evaluate("training_step", "in.csv", "--out", "out.csv")[0] == 0
    assert evaluate("training_step", "out.csv", "--out", "again.csv")[0] == 0
    assert Path("again.csv").read_text("utf-8") == Path("out.csv").read_text("utf-8")


def test_intervals_are_left_out_where_they_are_not_wanted(evaluate: Command) -> None:
    Path("in.csv").write_text(STEPS, encoding="utf-8")
    assert evaluate("training_step", "in.csv", "--out", "out.csv", "--no-interval")[0] == 0
    assert "low_step_seconds" not in pl.read_csv("out.csv").columns


def test_an_estimator_without_constants_has_no_interval(evaluate: Command) -> None:
    assert evaluate("roofline", CONFIGS, "--out", "out.csv")[0] == 0
    assert "low_step_seconds" not in pl.read_csv("out.csv").columns


@pytest.mark.long
def test_stored_rows_have_the_ranges_of_the_defaults_that_they_hold(evaluate: Command) -> None:
    Path("in.csv").write_text(STEPS, encoding="utf-8")
    code = evaluate("training_step", "in.csv", "--out", "out.csv", "--into-db", "--db", "w.duckdb")[
        0
    ]
    assert code == 0
    with duckdb.connect("w.duckdb", read_only=True) as connection:
        connection.execute("copy (from current_training_step) to 'stored.parquet'")
    assert evaluate("training_step", "stored.parquet", "--out", "again.parquet")[0] == 0
    first, again = pl.read_csv("out.csv"), pl.read_parquet("again.parquet")
    for name in ("low_step_seconds", "high_step_seconds"):
        assert sorted(again[name]) == pytest.approx(sorted(first[name]))


def test_the_first_argument_still_names_the_estimator_and_says_so(
    evaluate: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("roofline", CONFIGS, "--out", "new.csv")[0] == 0
    assert run(["evaluate", "roofline", str(CONFIGS), "--out", "old.csv"]) == 0
    assert capsys.readouterr().err.startswith("deprecated: use --estimator\n")
    assert Path("old.csv").read_bytes() == Path("new.csv").read_bytes()
    twice = ["evaluate", "roofline", str(CONFIGS), "--estimator", "cluster", "--out", "twice.csv"]
    assert run(twice) == 2
    assert "the estimator is given twice: roofline, cluster" in capsys.readouterr().err
    own = ["evaluate", "roofline", str(CONFIGS), "--out", str(CONFIGS)]
    assert run(own) == 3
    assert "is the input file; it would be overwritten" in capsys.readouterr().err


def test_the_usual_estimator_is_that_of_measure(
    evaluate: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text("model,accelerator,num_gpus\nllama3_8B,H100,8\n")
    assert evaluate("training_step", "in.csv", "--out", "named.csv")[0] == 0
    assert run(["evaluate", "in.csv", "--out", "usual.csv"]) == 0
    assert Path("usual.csv").read_bytes() == Path("named.csv").read_bytes()
    capsys.readouterr()
    assert run(["evaluate", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: warehouse evaluate [OPTIONS] {CONFIGS}\n")
