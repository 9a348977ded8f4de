"""`warehouse rank`: within one problem, of several problems, and when there is nothing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators.columns import LAYOUT_COLUMNS
from tests.shared import Command, Document, Quickstart, Shared, call

ONE_PROBLEM = (
    *("--model", "gpt3_1T", "--accelerator", "H200", "--nvlink-size", 8),
    *("--num-gpus", 4096, "--global-batch-size", 4096),
)


@pytest.fixture
def rank(warehouse: Command, quickstart: Quickstart) -> Document:
    """Call rank for JSON; return exit code, rows, stderr."""

    def rank(*arguments: object) -> Any:
        code, out, err = warehouse(
            "rank", *arguments, "--format", "json", "--db", quickstart.database
        )
        return code, json.loads(out) if out else None, err

    return rank


def test_one_problem_shows_its_ten_fastest_that_fit(rank: Document, quickstart: Quickstart) -> None:
    code, rows, err = rank(*ONE_PROBLEM)
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        expected = connection.execute(
            "select step_seconds, data_parallel, nvlink_data_parallel from configuration"
            " where model = 'gpt3_1T' and accelerator = 'H200' and nvlink_size = 8"
            " and num_gpus = 4096 and variant = 'corrected' and fits_memory"
            " order by step_seconds limit 10"
        ).fetchall()
    assert code == 0
    assert [
        (row["step_seconds"], row["data_parallel"], row["nvlink_data_parallel"]) for row in rows
    ] == expected
    assert [row["rank_by_time"] for row in rows] == list(range(1, 11))
    assert "1 problem, 10 layouts shown" in err


def test_top_and_variant_are_followed(rank: Document) -> None:
    corrected = rank(*ONE_PROBLEM, "--top", 3)[1]
    published = rank(*ONE_PROBLEM, "--top", 3, "--variant", "published")[1]
    assert len(corrected) == len(published) == 3
    assert corrected[0]["step_seconds"] != published[0]["step_seconds"]


def test_several_problems_show_the_best_of_each_and_say_how_many_have_none(rank: Document) -> None:
    code, rows, err = rank("--model", "gpt3_1T", "--num-gpus", 256)
    assert code == 0
    assert [(row["accelerator"], row["nvlink_size"]) for row in rows] == [
        *(("B200", 4), ("B200", 8), ("B200", 64)),
        *(("H200", 4), ("H200", 8), ("H200", 64)),
    ]
    assert {row["rank_by_time"] for row in rows} == {1}
    assert "9 problems, 6 layouts shown" in err
    assert "no layout fits in memory: 3 problems" in err


def test_top_of_several_problems_is_of_each(rank: Document) -> None:
    rows = rank("--model", "gpt3_1T", "--num-gpus", 4096, "--top", 2)[1]
    assert [row["rank_by_time"] for row in rows] == [1, 2] * 9


@pytest.mark.parametrize("form", ["json", "csv", "table", "markdown"])
def test_problems_without_a_layout_that_fits_leave_an_empty_table(
    warehouse: Command, quickstart: Quickstart, form: str
) -> None:
    arguments = (
        "--estimator",
        "roofline",
        "--num-gpus",
        4,
        "--format",
        form,
        "--db",
        quickstart.database,
    )
    code, out, err = warehouse("rank", *arguments)
    assert code == 0
    assert len(out.splitlines()) == (1 if form in ("json", "csv") else 2)
    assert "no layout fits in memory: 9 problems" in err


def test_a_strategy_ranks_within_itself(rank: Document) -> None:
    rows = rank(*ONE_PROBLEM, "--strategy", "tensor_1d", "--top", 2)[1]
    assert [row["rank_in_strategy"] for row in rows] == [1, 2]


def test_a_strategy_has_more_ranks_than_are_stored(rank: Document) -> None:
    rows = rank(*ONE_PROBLEM, "--strategy", "tensor_1d", "--top", 30)[1]
    assert [row["rank_in_strategy"] for row in rows] == [*range(1, 31)]


def test_an_accelerator_is_found_by_its_other_name(rank: Document) -> None:
    by_alias = rank("--accelerator", "a100-sxm-80gb", "--num-gpus", 32)
    assert by_alias[0] == 0
    assert by_alias[1][0]["accelerator"] == "A100 SXM 80GB"


def test_tables_have_peoples_units_and_leave_out_what_all_rows_share(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, err = warehouse("rank", *ONE_PROBLEM, "--db", quickstart.database)
    heading = out.splitlines()[0]
    assert code == 0
    assert "memory GB" in heading
    assert "MFU %" in heading
    assert "accelerator" not in heading
    assert "accelerator H200" in err


def test_csv_has_base_units_and_every_column(warehouse: Command, quickstart: Quickstart) -> None:
    out = warehouse("rank", *ONE_PROBLEM, "--format", "csv", "--db", quickstart.database)[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[0]["accelerator"] == "H200"
    assert float(rows[0]["memory_bytes"]) > 1e10
    assert 0 < float(rows[0]["mfu"]) < 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "gpt3_1TT"), "did you mean gpt3_1T?"),
        (("--accelerator", "TPU"), "stored: A100, A100 SXM 40GB, A100 SXM 80GB, B200"),
        (("--nvlink-size", 32), "stored: 4, 8, 64"),
        (
            ("--model", "gpt3_1T", "--num-gpus", 32, "--accelerator", "A100 SXM 80GB"),
            "model gpt3_1T",
        ),
        (("--estimator", "dataflow"), "stored: megatron_flops, roofline, training_step"),
        (("--variant", "R2"), "stored: corrected, published"),
        (("--strategy", "summa_2d"), "stored: tensor_1d"),
    ],
)
def test_a_filter_that_leaves_nothing_exits_3_and_says_what_is_stored(
    warehouse: Command, quickstart: Quickstart, arguments: tuple[int | str, ...], says: str
) -> None:
    code, out, err = warehouse("rank", *arguments, "--db", quickstart.database)
    assert (code, out) == (3, "")
    assert says in err
    assert "warehouse sweep" in err


def test_an_empty_database_exits_3_and_says_what_to_sweep(
    warehouse: Command, database: Path
) -> None:
    assert warehouse("init", "--db", database)[0] == 0
    code, out, err = warehouse("rank", "--db", database)
    assert (code, out) == (3, "")
    assert "no configuration is stored yet" in err
    assert "warehouse sweep gpt3_1T_1d" in err


@pytest.mark.long
def test_points_of_a_hardware_sweep_are_distinguished_in_order(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    tiny.write_text(
        tiny.read_text().replace("{powers_of_two = [5, 6]}", "64")
        + "[system]\nhbm_bytes = [160e9, 120e9]\nnetwork_efficiency = [0.5, 0.25]\n"
    )
    assert warehouse("sweep", tiny, "--db", database)[0] == 0
    out = warehouse("rank", "--format", "json", "--db", database)[1]
    points = [(row["hbm_bytes"], row["network_efficiency"]) for row in json.loads(out)]
    assert points == [(120e9, 0.25), (120e9, 0.5), (160e9, 0.25), (160e9, 0.5)]
    assert "nvlink_bytes_per_second" not in json.loads(out)[0]


@pytest.mark.long
def test_products_with_changed_rates_are_shown_only_when_asked_for(
    warehouse: Command, tiny_database: Path, tiny: Path
) -> None:
    base = tiny.read_text()
    tiny.write_text(f"{base}[system]\nhbm_bytes = [160e9, 120e9]\n".replace("tiny", "large"))
    assert warehouse("sweep", tiny, "--db", tiny_database)[0] == 0

    def sizes(*options: object) -> list[tuple[int, float]]:
        out = warehouse("rank", *options, "--format", "json", "--db", tiny_database)[1]
        return [(row["num_gpus"], row.get("hbm_bytes", 80e9)) for row in json.loads(out)]

    assert sizes() == [(32, 80e9), (64, 80e9)]
    assert "(--hardware-variants): 4 problems" in warehouse("rank", "--db", tiny_database)[2]
    assert len(sizes("--hardware-variants")) == 6
    assert sizes("--study", "large") == [(32, 120e9), (32, 160e9), (64, 120e9), (64, 160e9)]


PIPELINE_STUDY = """
name = "pipes"
estimator = "pipeline"
[space]
accelerator = "A100_40GB"
num_layers = 12
hidden_size = 1024
num_experts = 4
experts_per_token = 2
global_batch_size = 24
seq_len = 512
dataset_tokens = 3e9
num_gpus = 48
"""


@pytest.mark.long
def test_layouts_rank_by_any_column_and_without_a_model_of_memory(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    study = tmp_path / "pipes.toml"
    study.write_text(PIPELINE_STUDY)
    assert warehouse("sweep", study, "--db", database)[0] == 0
    common = ("rank", "--estimator", "pipeline", "--format", "json", "--db", database)

    fastest = json.loads(warehouse(*common, "--top", "5")[1])
    used = json.loads(warehouse(*common, "--top", "5", "--by", "utilization")[1])
    worst = json.loads(warehouse(*common, "--top", "1", "--by", "data_comm_seconds")[1])

    assert [row["rank_by_time"] for row in fastest] == [1, 2, 3, 4, 5]
    assert [row["step_seconds"] for row in fastest] == sorted(
        row["step_seconds"] for row in fastest
    )
    assert [row["rank"] for row in used] == [1, 2, 3, 4, 5]
    assert used[0]["utilization"] == max(row["utilization"] for row in used)
    assert used[0]["step_seconds"] == fastest[0]["step_seconds"]  # the same work in less time
    assert worst[0]["data_comm_seconds"] == 0  # least first
    assert fastest[0]["memory_bytes"] is None


def test_a_column_that_is_not_there_is_refused_with_those_near_it(
    warehouse: Command, swept: Path
) -> None:
    code, out, err = warehouse("rank", "--by", "step_second", "--db", swept)
    assert (code, out) == (3, "")
    assert "`--by` step_second is not a numeric column of view configuration" in err
    assert "did you mean step_seconds" in err


def test_the_column_is_found_in_any_capitals(warehouse: Command, swept: Path) -> None:
    named = [
        warehouse("rank", "--by", by, "--json", "--db", swept)
        for by in ("memory_bytes", "Memory-BYTES")
    ]
    assert named[0][0] == 0
    assert named[0][:2] == named[1][:2]


def test_the_variant_of_an_estimator_without_mends_is_published(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    study = tmp_path / "flow.toml"
    study.write_text(
        'name = "flow"\nestimator = "dataflow"\n[space]\nnum_layers = 12\nhidden_size = 4096\n'
        "dataset_tokens = 1e12\nnum_clusters = 8\n[system]\ncluster_flops_per_second = 1e14\n"
    )
    assert warehouse("sweep", study, "--db", database)[0] == 0
    by = ("--by", "network_bytes_per_flop", "--format", "json", "--db", database)
    code, out, err = warehouse("rank", "--estimator", "dataflow", *by)
    assert code == 0
    assert "variant published" in err
    needs = [row["network_bytes_per_flop"] for row in json.loads(out)]
    assert needs == sorted(needs)
    assert len(needs) == 10


FLOW = (
    'name = "{name}"\nestimator = "dataflow"\n[space]\nnum_layers = 12\nhidden_size = 4096\n'
    "dataset_tokens = 1e12\nnum_clusters = 8\n"
)
LAYER = (
    'name = "layer"\nestimator = "linear_layer"\n[space]\naccelerator = "A100"\n'
    "input_size = 1000\noutput_size = 4000\ntokens = 65536\nnum_gpus = 12\n"
)


@pytest.mark.parametrize(
    ("study", "estimator", "view"),
    [
        (LAYER, "linear_layer", "stg_linear_layer"),
        (FLOW.format(name="flow"), "dataflow", "stg_dataflow_traffic"),
    ],
)
@pytest.mark.long
def test_rows_without_the_time_of_a_step_are_not_ranked_and_the_view_that_has_them_is_named(
    warehouse: Command, database: Path, tmp_path: Path, study: str, estimator: str, view: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(study)
    assert warehouse("sweep", file, "--db", database)[0] == 0
    code, out, err = warehouse("rank", "--estimator", estimator, "--db", database)
    assert (code, out) == (3, "")
    assert f"{estimator} has no time of a training step to rank by" in err
    query = f"from {view} limit 10"
    assert f'warehouse sql "{query}"' in err
    assert "memory" not in err
    assert warehouse("sql", query, "--db", database)[0] == 0


@pytest.mark.long
def test_missing_figures_of_a_problem_are_distinguished_and_lower_bounds_are_marked(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    for name, rate in (("flow", ""), ("rated", "[system]\ncluster_flops_per_second = 1e14\n")):
        (tmp_path / "study.toml").write_text(FLOW.format(name=name) + rate)
        assert warehouse("sweep", tmp_path / "study.toml", "--db", database)[0] == 0
    ranked = ("rank", "--estimator", "dataflow", "--db", database)
    code, out, err = warehouse(*ranked)
    assert code == 0
    assert "training days" in out.splitlines()[0]
    assert err.splitlines()[0].endswith("; its time is a lower bound")
    assert "without a step time: 1 problem" in err
    assert "memory" not in err
    code, out, err = warehouse(*ranked, "--by", "mfu")
    assert (code, out) == (3, "")
    assert "`--by` mfu: no stored configuration of dataflow has this column" in err


@pytest.mark.parametrize(
    ("option", "name", "spelt"),
    [
        ("--model", "gpt3_1T", "GPT3-1t"),
        ("--accelerator", "H200", "h200"),
        ("--strategy", "tensor_1d", "Tensor 1D"),
    ],
)
def test_a_name_is_found_in_any_capitals_and_with_or_without_hyphens(
    rank: Any, option: str, name: str, spelt: str
) -> None:
    asked = dict(zip(ONE_PROBLEM[::2], ONE_PROBLEM[1::2], strict=True))
    found = [
        rank(*(word for pair in {**asked, option: value}.items() for word in pair))[1]
        for value in (spelt, name)
    ]
    assert found[0] == found[1] != []


STEPS = """
name = "steps"
estimator = "training_step"
[space]
model = "small"
num_layers = 4
hidden_size = 512
num_heads = 8
seq_len = [1024, 4096]
accelerator = "H100 SXM 80GB"
num_gpus = 4
global_batch_size = 8
activation_recompute = "none"
virtual_pipeline = 1
schedule = ["1f1b", "zb_h1"]
"""
GIVEN = "model,num_layers,hidden_size,num_heads,seq_len,accelerator,num_gpus,global_batch_size"
ONE = "small,4,512,8,{seq_len},H100 SXM 80GB,4,8"
STAGES = "pipeline_parallel,tensor_parallel,virtual_pipeline,microbatch_size"


@pytest.fixture(scope="module")
def steps(shared: Shared) -> Path:
    """Searches of two lengths of sequences, and two evaluated layouts: one of another length."""

    def make(place: Path) -> None:
        (place / "steps.toml").write_text(STEPS)
        # the search has no chunks, a file may
        odd = f"{ONE.format(seq_len=1024)},2,2,2,4"
        alone = f"{ONE.format(seq_len=2048)},1,4,1,1"
        (place / "in.csv").write_text(f"{GIVEN},{STAGES}\n{odd}\n{alone}\n")
        db = ("--db", place / "w.duckdb")
        into = ("--into-db", *db)
        for command in (
            ("sweep", place / "steps.toml", *db),
            (
                "evaluate",
                "--estimator",
                "training_step",
                place / "in.csv",
                "--out",
                place / "out.csv",
                *into,
            ),
        ):
            code, _, err = call(*command)
            assert code == 0, err

    return shared("steps_to_rank", make) / "w.duckdb"


def test_rows_of_two_lengths_of_sequences_are_distinguished(
    warehouse: Command, steps: Path
) -> None:
    rows = json.loads(warehouse("rank", "--top", 1, "--json", "--db", steps)[1])
    assert [row["seq_len"] for row in rows] == [1024, 4096]
    out = warehouse("rank", "--db", steps)[1]
    assert "seq len" in out.splitlines()[0]


def test_an_export_has_all_that_defines_a_layout(warehouse: Command, steps: Path) -> None:
    out = warehouse("rank", "--num-gpus", 4, "--format", "csv", "--db", steps)[1]
    names = out.splitlines()[0].split(",")
    assert {*LAYOUT_COLUMNS, "seq_len", "framework", "precision", "recompute_modules"} <= {*names}


def test_schedules_of_equal_layouts_are_distinguished(warehouse: Command, steps: Path) -> None:
    question = ("rank", "--top", 500, "--json", "--db", steps)
    rows = json.loads(warehouse(*question)[1])
    layouts = [(row["seq_len"], *(row[name] for name in LAYOUT_COLUMNS)) for row in rows]
    assert len(layouts) == len(set(layouts))
    assert {row["schedule"] for row in rows if row["pipeline_parallel"] > 1} == {"1f1b", "zb_h1"}
    assert {row["schedule"] for row in rows if row["pipeline_parallel"] == 1} == {"1f1b"}


def test_a_layout_that_was_asked_for_alone_has_no_rank(warehouse: Command, steps: Path) -> None:
    code, out, err = warehouse("rank", "--top", 500, "--json", "--db", steps)
    rows = json.loads(out)
    assert code == 0
    assert "evaluated alone, without a search: 1 problem" in err
    for seq_len in (1024, 4096):
        ranks = [row["rank_by_time"] for row in rows if row["seq_len"] == seq_len]
        assert ranks == list(range(1, len(ranks) + 1))
    assert {row["seq_len"] for row in rows} == {1024, 4096}
    assert not [row for row in rows if (row["virtual_pipeline"], row["microbatch_size"]) == (2, 4)]


@pytest.mark.long
def test_where_nothing_was_searched_layouts_are_shown_without_a_rank(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    file = tmp_path / "in.csv"
    file.write_text(f"{GIVEN},tensor_parallel\n{ONE.format(seq_len=2048)},4\n")
    stored = ("--out", tmp_path / "out.csv", "--into-db", "--db", database)
    assert warehouse("evaluate", "--estimator", "training_step", file, *stored)[0] == 0
    code, out, err = warehouse("rank", "--json", "--db", database)
    assert code == 0
    assert [(row["tensor_parallel"], row["rank_by_time"]) for row in json.loads(out)] == [(4, None)]
    assert "evaluated alone, without a search: 1 problem" in err


@pytest.mark.long
def test_a_bare_name_finds_the_product_that_it_was_swept_as(
    warehouse: Command, swept: Path, tmp_path: Path
) -> None:
    file = tmp_path / "in.csv"
    file.write_text(f"{GIVEN}\n{ONE.format(seq_len=1024).replace('H100 SXM 80GB', 'B200')}\n")
    stored = ("--out", tmp_path / "out.csv", "--into-db", "--db", swept)
    assert warehouse("evaluate", "--estimator", "training_step", file, *stored)[0] == 0
    ranked = ("rank", "--accelerator", "b200", "--json", "--db", swept)
    for chosen in (("--model", "small"), ("--estimator", "training_step")):
        rows = json.loads(warehouse(*ranked, *chosen)[1])
        assert {row["accelerator"] for row in rows} == {"B200 SXM 180GB"}
    systems = {row["accelerator"] for row in json.loads(warehouse(*ranked)[1])}
    assert systems == {"B200"}, "a name that is stored as it was given comes first"
    best = ("explain", "model=small", "accelerator=B200", "--best", "--json", "--db", swept)
    assert json.loads(warehouse(*best)[1])["inputs"]["accelerator"] == "B200 SXM 180GB"


def test_a_known_name_of_which_nothing_is_stored_is_not_called_misspelt(
    warehouse: Command, steps: Path
) -> None:
    asked = ("rank", "--db", steps, "--accelerator")
    assert "did you mean" not in warehouse(*asked, "H200 SXM 141GB")[2]
    assert "did you mean H100 SXM 80GB?" in warehouse(*asked, "H100 SXM 81GB")[2]


@pytest.mark.long
def test_the_estimator_that_has_rows_of_what_is_asked_answers(
    warehouse: Command, quickstart: Quickstart
) -> None:
    common = ("--json", "--db", quickstart.database)
    assert warehouse("rank", *common)[2].startswith("training_step: ")
    assert warehouse("rank", *ONE_PROBLEM, *common)[2].startswith("roofline: ")
    assert warehouse("rank", "--estimator", "roofline", *common)[2].startswith("roofline: ")
