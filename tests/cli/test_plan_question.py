"""`warehouse plan`: your own model, layouts held to a choice, and the question as it is printed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, Document, Refusal, Shared, call
from warehouse.options import PlanOptions
from warehouse.plan.run import first_sweep
from warehouse.plan.search import candidates_on

ACCELERATOR = "H100 SXM 80GB"
RUN = ("--accelerator", ACCELERATOR, "--tokens", 2e10, "--batch", 8, "--gpus", 4)
# GPT-3 1.3B, table 2.1 of arXiv 2005.14165, and the vocabulary of GPT-2
SHAPE = {
    "num_layers": 24,
    "hidden_size": 2048,
    "ffn_hidden_size": 8192,
    "num_heads": 16,
    "seq_len": 2048,
    "vocab_size": 50257,
}
PAIRS = tuple(f"{name}={value}" for name, value in SHAPE.items())
USD_PER_GPU_HOUR = 4.5
"""On demand, of the last year in table gpu_hour_quote."""


@pytest.fixture(scope="module")
def planned(shared: Shared, empty_warehouse: Path) -> tuple[Path, dict[str, Any]]:
    """A database that has the plan of a shape without a name, and the plan."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        code, out, err = call("plan", *RUN, *PAIRS, "--json", "--db", path)
        assert code == 0, err
        (place / "plan.json").write_text(out, encoding="utf-8")

    place = shared("planned_own", make)
    return place / "warehouse.duckdb", json.loads((place / "plan.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def database(
    planned: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """One copy for all tests: a later one reads the layouts that an earlier one stored."""
    return Path(shutil.copyfile(planned[0], tmp_path_factory.mktemp("asked") / "copy.duckdb"))


@pytest.fixture
def plan(warehouse: Command, database: Path) -> Document:
    """Ask for a plan; return its document."""

    def plan(*options: object) -> Any:
        code, out, err = warehouse("plan", *options, "--json", "--db", database)
        assert code == 0, err
        return json.loads(out)

    return plan


@pytest.fixture
def refusal(warehouse: Command, tmp_path: Path) -> Refusal:
    """Ask for a plan that there is none of; return exit code and error; nothing is stored."""
    path = tmp_path / "none.duckdb"

    def refusal(*options: object) -> tuple[int, str]:
        code, out, err = warehouse("plan", *options, "--db", path)
        assert (code != 0, out, path.exists()) == (True, "", False)
        return code, err.partition("error: ")[2]

    return refusal


# ---- a custom model ----


@pytest.mark.long
def test_a_shape_is_planned_as_the_model_of_that_shape(
    planned: tuple[Path, dict[str, Any]], plan: Document
) -> None:
    _, own = planned
    named = plan(*RUN, "--model", "gpt3_1.3B")
    assert own["question"]["model"] is None
    assert named["question"]["model"] == "gpt3_1.3B"
    assert own["question"]["shape"] == named["question"]["shape"]
    for name in ("training_seconds", "cost_usd", "energy_kwh", "headroom_bytes"):
        assert own[name] == pytest.approx(named[name], rel=1e-12)


@pytest.mark.long
def test_a_shape_changes_a_model_that_is_named(plan: Document) -> None:
    found = plan(*RUN, "--model", "gpt3_1.3B", "Num-Layers=12", "--basis", "Owned")
    assert found["question"]["shape"]["num_layers"] == 12
    assert found["question"]["shape"]["hidden_size"] == 2048
    assert found["cost_basis"] == found["question"]["basis"] == "owned"


@pytest.mark.long
def test_the_roofline_takes_a_shape_as_well(plan: Document, database: Path) -> None:
    found = plan(*RUN, *PAIRS, "--estimator", "roofline", "nvlink_size=4")
    assert found["question"]["shape"]["num_layers"] == 24
    assert found["question"]["nvlink_size"] == 4
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select count(*) from problem where nvlink_size = 4"
        assert connection.execute(query).fetchall() == [(3,)]
    assert found["layouts"][0]["memory_bytes"] < 80e9


def test_an_unknown_model_names_the_closest_ones_the_list_and_the_shape(refusal: Refusal) -> None:
    code, error = refusal(*RUN, "--model", "lama3_70B")
    assert code == 3
    assert '`model` "lama3_70B" is not in the `model` table' in error
    assert "hint: did you mean llama3_70B" in error
    assert '? `warehouse sql "select model from model"` lists all; or give its shape: ' in error
    assert 'warehouse sql "select model from model"' in error
    assert "num_layers=... hidden_size=... num_heads=... seq_len=..." in error


def test_an_incomplete_shape_names_what_is_missing(refusal: Refusal) -> None:
    code, error = refusal(*RUN, "num_layers=24", "hidden_size=2048")
    assert code == 3
    assert "`num_heads` is missing" in error
    assert "or give its shape: num_heads=... seq_len=..." in error


# ---- layouts held to a choice, a system changed ----


@pytest.mark.long
def test_layouts_are_held_to_what_is_named_even_where_all_are_stored(
    plan: Document, planned: tuple[Path, dict[str, Any]], database: Path
) -> None:
    _, free = planned
    held = {"tensor_parallel": 2, "zero_stage": 1, "activation_recompute": "full"}
    found = plan(*RUN, *PAIRS, *(f"{name}={value}" for name, value in held.items()))
    assert found["question"]["held"] == held
    assert found["problem_id"] == free["problem_id"]
    assert found["layouts"]
    for layout in (*found["layouts"], found["other_kind"]):
        assert {name: layout[name] for name in held} == held
    with duckdb.connect(str(database), read_only=True) as connection:
        [(best, watts)] = connection.execute(
            "select min(step_seconds), arg_min(slot_watts, step_seconds) from configuration "
            "where problem_id = ? and fits_memory "
            "and tensor_parallel = 2 and zero_stage = 1 and activation_recompute = 'full'",
            [found["problem_id"]],
        ).fetchall()
    assert found["layouts"][0]["step_seconds"] == best > free["layouts"][0]["step_seconds"]
    # its dollars are those of its own step: 8 x 2,048 tokens a step, 1,220,704 steps
    hours = 4 * 1_220_704 * best / 3600
    assert found["gpu_hours"] == pytest.approx(hours)
    assert found["cost_usd"] == pytest.approx(hours * USD_PER_GPU_HOUR)
    assert {c["basis"]: c["cost_usd"] for c in found["costs"]}["on_demand"] == pytest.approx(
        hours * USD_PER_GPU_HOUR
    )
    # the power of its own step, 10 % for the site
    assert found["energy_kwh"] == pytest.approx(hours * watts / 1000 * 1.1)


@pytest.mark.long
def test_the_refusal_of_an_impossible_value_names_its_rule(refusal: Refusal) -> None:
    code, error = refusal(*RUN, *PAIRS, "tensor_parallel=3")
    assert code == 3
    assert "`tensor_parallel` 3 does not divide `num_heads` 16" in error
    assert "hint: use 1, 2, 4, 8 or 16" in error


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("num_gpus=8",), 2, "give --gpus"),
        (("global_batch_size=8",), 2, "give --batch"),
        (("num_microbatches=8",), 2, "give --batch"),
        (("seq_len=1024", "--seq-len", 1024), 2, "`seq_len=1024` exclude one another"),
        (("accelerator=A100",), 2, "`accelerator=A100` exclude one another"),
        (("profile=ours",), 3, '`profile` "ours" is not a stored profile'),
        (("tensor_parallel=2", "tensor_parallel=4"), 3, "is given twice"),
        (("tensr_parallel=2",), 3, "did you mean tensor_parallel"),
        (("step_seconds=2",), 3, "is computed, not given"),
        (("tensor_parallel=two",), 3, '`tensor_parallel` "two" must be a whole number'),
        (("tensor_parallel",), 2, "is not of the form key=value"),
        (("framework=nope",), 3, '`framework` "nope" is not in'),
    ],
)
def test_a_wrong_pair_is_refused(
    refusal: Refusal, given: tuple[int | str, ...], code: int, said: str
) -> None:
    found, error = refusal(*RUN, "--model", "gpt3_1.3B", *given)
    assert found == code
    assert said in error


# ---- numbers of GPUs without a layout ----


def test_counts_far_beyond_the_batch_have_the_largest_layout(tmp_path: Path) -> None:
    # 72 replicas, 24 stages, 16 ranks of heads and 8 of the sequence; a batch of 72 is next to 64
    options = PlanOptions(
        model="gpt3_1.3B",
        accelerator=["H100"],
        tokens=[2e10],
        global_batch_size=[64],
        num_gpus=[10**8],
    )
    run, sweep = first_sweep(options, tmp_path / "none.duckdb")
    [largest] = sweep.problems
    assert largest == 72 * 24 * 16 * 8
    assert candidates_on(run, largest)
    assert not any(candidates_on(run, largest * factor) for factor in (2, 3, 4, 5, 7))


# ---- the question ----


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "DeepSeek-V3",
            "61 layers of 7,168, feed-forward 18,432 gated, 128 heads, 256 experts of "
            "2,048, 8 a token and 1 shared, 3 layers without experts, latents of 1,536 for "
            "queries, 512 for keys and values, 1 further token predicted, sequences of 4,096, "
            "vocabulary 129,280; 669.2 G parameters in its layers, 35.7 G active",
        ),
        (
            "gpt_oss_120B",
            "36 layers of 2,880, feed-forward 2,880 gated, 64 heads (8 of keys), 128 "
            "experts of 2,880, 4 a token, attention in windows of 128 but in one of 2 layers, "
            "sequences of 4,096, vocabulary 201,088; 115.7 G parameters in its layers, 4.554 G "
            "active",
        ),
    ],
)
def test_the_question_has_the_real_shape_of_a_mixture(model: str, words: str) -> None:
    from warehouse.plan.question import PlanRequest, resolve
    from warehouse.plan.question_words import question_lines

    run = resolve(PlanRequest("training_step", model, "H100", 1e12, num_gpus=8))
    # less than all parameters by two matrices of the vocabulary, 1.853 G and 1.158 G
    assert question_lines(run)[1] == words


def test_values_in_place_of_defaults_are_reported(warehouse: Command, tmp_path: Path) -> None:
    given = ("precision=fp16", "nvlink_bytes_per_second=900e9", "uses_glu=false")
    options = (*RUN, "--model", "gpt3_1.3B", *given, "uses_sequence_parallel=true")
    code, _, err = warehouse("plan", *options, "--dry-run", "--db", tmp_path / "none.duckdb")
    assert code == 0
    assert ", given precision fp16, nvlink_bytes_per_second 900 GB/s, " in err
    assert ", every layout has uses_sequence_parallel true\n" in err


def test_kept_attributes_of_a_changed_accelerator_are_listed(
    warehouse: Command, database: Path
) -> None:
    asked = ("plan", *RUN, "--model", "gpt3_1.3B", "--dry-run", "--db", database)
    assert "taken over" not in warehouse(*asked)[2]
    given = ("matrix_flops_per_second=1.4e15", "nvlink_bytes_per_second=900e9")
    err = warehouse(*asked, *given)[2]
    assert (
        "taken over from H100 SXM 80GB: 85.5 GB of memory, memory bandwidth 3,350 GB/s, network "
        "50 GB/s one way, power limit 700 watts"
    ) in err
    assert "`nvlink_bytes_per_second` 900 GB/s is twice that of H100 SXM 80GB" in err
    far = ("hbm_bytes=144e12", "nvlink_bytes_per_second=2.5e9")
    err = warehouse(*asked, *far)[2]
    assert "`hbm_bytes` 144,000.0 GB is 375 times the largest known, 384.0 GB (B200-next)" in err
    assert "`nvlink_bytes_per_second` 2.5e+09 is less than a tenth of the smallest known" in err


def test_defaults_of_an_own_shape_are_marked(warehouse: Command, database: Path) -> None:
    bare = [pair for pair in PAIRS if not pair.startswith(("ffn_hidden_size", "vocab_size"))]
    asked = ("plan", *RUN, "--dry-run", "--db", database, *bare)
    err = warehouse(*asked)[2]
    assert "feed-forward 8,192 (default), " in err
    assert "without embedding and output layer (vocab_size=... adds them)" in err
    err = warehouse(*asked, "ffn_hidden_size=6000", "vocab_size=50000")[2]
    assert "feed-forward 6,000, " in err
    assert "vocabulary 50,000;" in err
    err = warehouse(*asked, "num_experts=8")[2]
    assert "8 experts of 8,192 (default), 1 a token (default), " in err
    err = warehouse(*asked, "num_experts=8", "expert_ffn_hidden_size=512", "experts_per_token=2")[2]
    assert "8 experts of 512, 2 a token, " in err


def test_a_question_is_stored_under_what_was_asked(planned: tuple[Path, dict[str, Any]]) -> None:
    with duckdb.connect(str(planned[0]), read_only=True) as connection:
        ((name,),) = connection.execute("from study select study").fetchall()
    assert name.startswith("plan 24 layers of 2048 on 4 x H100 SXM 80GB ")


def test_the_number_format_is_an_option(warehouse: Command, database: Path) -> None:
    asked = ("plan", *RUN, "--model", "gpt3_1.3B", "--dry-run", "--db", database)
    assert warehouse(*asked, "--precision", "fp8") == warehouse(*asked, "precision=fp8")
    assert "given precision fp8" in warehouse(*asked, "--precision", "fp8")[2]
    code, _, err = warehouse(*asked, "--precision", "fp9")
    assert code == 3
    assert "fp9" in err
    why = ("why", "--model", "gpt3_1.3B", "--accelerator", "H100", "--gpus", 4, "--json")
    shown = json.loads(warehouse(*why, "tensor_parallel=2", "--precision", "fp8")[1])
    assert shown["inputs"]["precision"] == "fp8"


@pytest.mark.parametrize(
    "asked", [("plan", *RUN, "--model", "gpt3_1.3B"), ("cost", "--tokens", "1T")]
)
def test_a_price_far_above_all_published_ones_is_refused(
    warehouse: Command, planned: tuple[Path, dict[str, Any]], asked: tuple[object, ...]
) -> None:
    code, out, err = warehouse(*asked, "--price", 220, "--db", planned[0])
    assert (code, out) == (3, "")
    assert "`--price` 220 is more than 10 times the dearest published price" in err
    assert "18.00 USD (GB300 NVL72, Oracle Cloud)" in err


@pytest.mark.parametrize("command", ["plan", "report", "cost", "energy"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            ("--electricity-price", 70),
            "is more than 10 times the dearest published price of a kWh, 0.083 USD",
        ),
        (("--watts", 1.2), "is less than a tenth of the smallest published power"),
        (("--watts", 1.2e6), "is more than 10 times the largest published power"),
    ],
)
def test_an_electricity_price_or_power_in_a_wrong_unit_is_refused(
    warehouse: Command,
    planned: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    command: str,
    option: tuple[str, float],
    words: str,
) -> None:
    asked: tuple[object, ...] = ("--tokens", "1T")
    if command in ("plan", "report"):
        asked = (*RUN, "--model", "gpt3_1.3B")
    page = tmp_path / "plan.html"
    written = ("--out", page) if command == "report" else ()
    code, out, err = warehouse(command, *asked, *option, *written, "--db", planned[0])
    assert not page.exists()
    assert (code, out) == (3, "")
    assert f"`{option[0]}` " in err
    assert words in err


@pytest.mark.parametrize(
    ("accelerator", "given", "size"),
    [
        # a system of the paper is sold as a board of eight; a projection is not sold
        ("B200", (), 8),
        ("B200-next", (), 4),
        ("B200", ("--nvlink-size", 4), 4),
        ("B200", ("nvlink_size=2",), 2),
    ],
)
def test_a_domain_is_as_the_accelerator_is_sold(
    warehouse: Command, tmp_path: Path, accelerator: str, given: tuple[int | str, ...], size: int
) -> None:
    run = ("--model", "gpt3_1.3B", "--accelerator", accelerator, "--tokens", 2e10, "--batch", 8)
    options = (*run, "--gpus", 8, "--estimator", "roofline", *given, "--dry-run")
    code, _, err = warehouse("plan", *options, "--db", tmp_path / "none.duckdb")
    assert code == 0, err
    assert f", fast domains of {size} GPUs, " in err


def test_an_accelerator_is_needed(refusal: Refusal) -> None:
    code, error = refusal("--tokens", 1e9, "--gpus", 4, "--model", "gpt3_1.3B")
    assert code == 2
    assert "give --accelerator" in error


# ---- a question with every term ----

MINE = (
    *("--tokens", 2e10, "--batch", 8, "--gpus", 4, "--model", "mine", *PAIRS, "accelerator=H100"),
    *("hbm_bytes=40e9", "tensor_parallel=2", "--headroom-gb", 2, "--price", 2, "--pue", 1.5),
    *("--watts", 900, "--carbon", 0.1, "--goodput", 0.8, "--electricity-price", 0.07),
)


@pytest.fixture(scope="module")
def of_mine(planned: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of that database for its plan."""
    return Path(shutil.copyfile(planned[0], tmp_path_factory.mktemp("mine") / "warehouse.duckdb"))


@pytest.fixture
def mine(
    request: pytest.FixtureRequest, warehouse: Command, of_mine: Path
) -> tuple[Any, tuple[str, str]]:
    """The plan of a named shape with every term: its document, and what people read."""
    request.getfixturevalue("same_answers")
    asked = ("plan", *MINE, "--db", of_mine)
    code, document, err = warehouse(*asked, "--json")
    assert code == 0, err
    return json.loads(document), warehouse(*asked)[1:]


@pytest.mark.long
def test_names_and_attributes_may_be_pairs(mine: tuple[Any, tuple[str, str]]) -> None:
    found, _ = mine
    question = found["question"]
    assert question["model"] == "mine"  # with a whole shape it is a label
    assert question["accelerator"] == ACCELERATOR
    # in place of the accelerator's
    assert question["inputs"]["hbm_bytes"] == found["layouts"][0]["hbm_bytes"] == 40e9


@pytest.mark.long
def test_the_question_comes_before_the_answer(mine: tuple[Any, tuple[str, str]]) -> None:
    _, (out, err) = mine
    question, _, answer = out.partition("\n\n")
    assert question.startswith("mine, 20 B tokens on 4 H100 SXM 80GB with megatron_core\n")
    # 24 layers of 12 x 2048^2 weights, 1.208 G, and 36,864 biases and norms, 0.9 M
    assert "sequences of 2,048, vocabulary 50,257; 1.209 G parameters in its layers" in question
    assert answer.startswith("  layout   ")
    words = " ".join(answer.split())
    assert "batch 8, goodput 0.8, fast domains of 8 GPUs" in words
    assert "every layout has tensor_parallel 2, 2 GB of memory stay free" in words
    for line in question.splitlines():
        assert line not in err


@pytest.mark.long
def test_the_document_has_the_terms_of_the_question(mine: tuple[Any, tuple[str, str]]) -> None:
    found, _ = mine
    question = found["question"]
    assert found["cost_basis"] == question["basis"] == "given"
    assert question["usd_per_gpu_hour"] == 2
    assert question["pue"] == 1.5
    assert question["watts_per_gpu"] == 900
    assert question["kg_co2e_per_kwh"] == [0.1]
    assert question["usd_per_kwh"] == 0.07
    assert question["goodput"] == 0.8
    assert question["nvlink_size"] == 8


def test_assumed_attributes_of_a_model_are_listed(warehouse: Command, database: Path) -> None:
    asked = ("plan", "--accelerator", "H100", "--tokens", "1T", "--gpus", 64, "--dry-run")
    code, _, err = warehouse(*asked, "--model", "mixtral_8x22B", "--db", database)
    assert code == 0
    assert ", seq_len 32768 without a source\n" in err
    _, _, err = warehouse(*asked, "--model", "mixtral_8x22B", "--seq-len", 8192, "--db", database)
    assert "without a source" not in err
    _, _, err = warehouse(*asked, "--model", "mixtral_8x7B", "--db", database)
    assert "without a source" not in err
