"""`warehouse plan` with several accelerators, GPU counts or tokens: one table, a row each."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from estimators.contract import RefusedError
from tests.cli.planning import ACCELERATOR, MODEL, QUESTION, TOKENS
from tests.cli.test_json_schemas import faults
from tests.shared import Command
from warehouse.api.warehouse import Warehouse
from warehouse.errors import InputError
from warehouse.options import PlanOptions, arguments_of
from warehouse.plan.several import asks_several, read_questions
from warehouse.show.units import with_digits

pytestmark = pytest.mark.long

Planned = tuple[Path, dict[str, Any], str]

RUN = ("--model", MODEL, "--tokens", TOKENS, "--batch", 64)
OTHER = "H200 SXM 141GB"


@pytest.fixture(scope="module")
def database(planned: Planned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all tests: a later one reads the layouts that an earlier one stored."""
    return Path(shutil.copyfile(planned[0], tmp_path_factory.mktemp("several") / "copy.duckdb"))


def test_each_accelerator_has_the_answer_that_it_has_alone(
    warehouse: Command, planned: Planned, database: Path
) -> None:
    both = ("--accelerator", ACCELERATOR, "--accelerator", "H200", "--gpus", 8)
    code, out, err = warehouse("plan", *RUN, *both, "--json", "--db", database)
    assert code == 0, err
    answers = json.loads(out)["answers"]
    names = [answer["question"]["accelerator"] for answer in answers]
    # more memory and faster memory, the same peak
    assert names == [OTHER, ACCELERATOR]
    times = [answer["training_seconds"] for answer in answers]
    assert times == sorted(times)
    alone = planned[1]
    changing = ("swept", "queries", "counts", "batches")
    for name in alone.keys() - set(changing):
        assert answers[1][name] == alone[name], name
    assert faults("plan", json.loads(out)) == []
    # the table has the same figures, and the command of the first one asks it alone
    code, out, _ = warehouse("plan", *RUN, *both, "--db", database)
    assert code == 0
    assert out.startswith(f"{MODEL}, 20 B tokens on 8 GPUs: 2 questions\n")
    rows = [line for line in out.splitlines() if line.startswith(("H100 SXM", "H200 SXM"))]
    assert [row[:14].strip() for row in rows] == names
    assert "all assume " in out
    assert "batch 64" in out.partition("all assume ")[2]
    assert "cost: NULL" not in out
    command = out.partition("one of them in full: ")[2].strip()
    assert shlex.split(command)[:2] == ["warehouse", "plan"]
    code, one, _ = warehouse(*shlex.split(command)[1:], "--json")
    assert code == 0
    assert json.loads(one)["training_seconds"] == times[0]


def test_a_row_without_a_price_says_which_option_gives_one(
    warehouse: Command, database: Path
) -> None:
    both = ("--accelerator", ACCELERATOR, "--accelerator", "H800", "--gpus", 8)
    code, out, err = warehouse("plan", *RUN, *both, "--db", database)
    assert code == 0, err
    assert "\ncost: NULL where no price is published; --price gives one\n" in out


def test_gpu_counts_and_tokens_stay_in_the_order_that_was_asked(
    warehouse: Command, database: Path
) -> None:
    asked = ("--accelerator", ACCELERATOR, "--gpus", 8, "--gpus", 4, "--tokens", "10G")
    code, out, err = warehouse("plan", *RUN, *asked, "--format", "csv", "--db", database)
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(float(row["dataset_tokens"]), row["num_gpus"]) for row in rows] == [
        (TOKENS, "8"),
        (TOKENS, "4"),
        (1e10, "8"),
        (1e10, "4"),
    ]
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4"]
    steps = [float(row["training_seconds"]) for row in rows]
    assert steps[2] == pytest.approx(steps[0] / 2, rel=1e-3)


def test_what_misses_a_limit_is_last_and_says_by_how_much(
    warehouse: Command, database: Path
) -> None:
    both = ("--accelerator", ACCELERATOR, "--accelerator", OTHER)
    free = warehouse("plan", *RUN, *both, "--gpus", 8, "--json", "--db", database)[1]
    fast, slow = (each["training_seconds"] / 86400 for each in json.loads(free)["answers"])
    days = round((fast + slow) / 2, 6)
    limits = ("--days", days, "--max-gpus", 8)
    code, out, err = warehouse("plan", *RUN, *both, *limits, "--json", "--db", database)
    assert code == 0, err
    found, missed = json.loads(out)["answers"]
    assert found["question"]["accelerator"] == OTHER
    assert (missed["question"]["accelerator"], missed["num_gpus"]) == (ACCELERATOR, None)
    assert "the fastest takes" in missed["error"]
    table = warehouse("plan", *RUN, *both, *limits, "--db", database)[1]
    row = next(line for line in table.splitlines() if line.startswith(ACCELERATOR))
    percent = with_digits(100 * (slow / days - 1), 2)
    assert f"misses --days {days:g} by {percent} % on 8 GPUs" in row


def test_a_bound_that_misses_a_limit_is_not_evaluated(warehouse: Command, database: Path) -> None:
    before = database.stat().st_mtime_ns
    # 40.7 GPU-hours of an H100 at its peak rate: 134 dollars (test_plan_limits)
    asked = ("--accelerator", ACCELERATOR, "--accelerator", "H200", "--price", 3.29)
    code, out, err = warehouse("plan", *RUN, *asked, "--budget-usd", 100, "--db", database)
    assert code == 3
    assert out.count("cost at least 134 USD at 3.29 USD/GPU-hour") == 2
    assert "none of the 2 questions has an answer" in err
    assert database.stat().st_mtime_ns == before


def test_all_takes_the_products_that_have_the_number_format(tmp_path: Path) -> None:
    def names(*pairs: str, catalog: Path | None = None, besides: Sequence[str] = ()) -> set[str]:
        asked = ["all", *besides]
        options = PlanOptions([TOKENS], MODEL, asked, [8], [64], pairs=pairs, catalog=catalog)
        assert asks_several(options)
        found = read_questions(options, tmp_path / "none.duckdb")
        return {str(one.run.problem["accelerator"]) for one in found}

    every = names()
    assert {ACCELERATOR, OTHER, "MI300X", "A100 SXM 80GB"} <= every
    assert not {"A100", "B200", "B200-next"} & every  # systems of a paper
    assert not {"L40S", "RTX 4090", "p5", "Leonardo"} & every  # no links; variants of clouds
    file = tmp_path / "own.toml"
    file.write_text('[systems.ours]\nbased_on = "p4d"\n', encoding="utf-8")
    assert names(catalog=file) == every | {"ours"}
    assert names(besides=["p5", "H100"]) == every | {"p5"}
    with pytest.raises(RefusedError, match="trn2"):
        names(besides=["trn2"])
    narrow = names("precision=fp8")
    assert {ACCELERATOR, OTHER} <= narrow <= every
    assert not {"A100 SXM 80GB", "V100 SXM2"} & narrow
    assert not (tmp_path / "none.duckdb").exists()


def test_two_names_of_one_accelerator_are_one_question(database: Path) -> None:
    options = PlanOptions([TOKENS], MODEL, ["H100", ACCELERATOR], [8], [64])
    assert len(read_questions(options, database)) == 1


def test_a_dry_run_has_a_line_for_each_question(warehouse: Command, database: Path) -> None:
    asked = ("--accelerator", ACCELERATOR, "--accelerator", OTHER, "--gpus", 2)
    code, out, _ = warehouse("plan", *RUN, *asked, "--dry-run", "--db", database)
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["1.", "2."]
    for name, line in zip((ACCELERATOR, OTHER), lines, strict=True):
        assert f"on 2 {name}" in line
        assert ": sweep " in line


def test_a_wrong_name_and_what_shows_one_question_are_refused(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    both = ("plan", *QUESTION, "--gpus", 8, "--db", database)
    code, out, err = warehouse(*both, "--accelerator", "H1000")
    assert (code, out) == (3, "")
    assert "H1000" in err
    for option in ("--details", "--show-sql"):
        code, out, err = warehouse(*both, "--gpus", 4, option)
        assert (code, out) == (2, "")
        assert f"`{option}` is for one question" in err
    page = tmp_path / "plan.html"
    for more, said in (
        (("--gpus", 4), "`--gpus` is given several times: 8, 4"),
        (("--tokens", "1T"), "`--tokens` is given several times"),
        (("--accelerator", OTHER), "`--accelerator` is given several times"),
    ):
        code, out, err = warehouse("report", *both[1:], *more, "--out", page)
        assert (code, out) == (2, "")
        assert said in err
        assert "`warehouse plan` several" in err
    assert not page.exists()


def test_a_command_is_written_with_the_options_that_were_given() -> None:
    options = PlanOptions(
        [1.5e13], "llama3_70B", ["GB200 (per GPU)"], [64], strict_fit=True, pairs=["num_layers=80"]
    )
    assert shlex.split(arguments_of(options)) == [
        *("--model", "llama3_70B", "--tokens", "15T", "--accelerator", "GB200 (per GPU)"),
        *("--gpus", "64", "--strict-fit", "num_layers=80"),
    ]


def test_a_plan_in_python_takes_lists(database: Path) -> None:
    question: dict[str, Any] = {"model": MODEL, "tokens": TOKENS, "global_batch_size": 64}
    warehouse = Warehouse(database)
    best = warehouse.plan(**question, accelerator=[ACCELERATOR, OTHER], num_gpus=8)
    assert [one.document["question"]["accelerator"] for one in best.answers] == [OTHER, ACCELERATOR]
    assert best.training_seconds == best.answers[0].training_seconds
    assert best.comparison["accelerator"].to_list() == [OTHER, ACCELERATOR]
    assert best.comparison["training_seconds"].to_list() == [
        one.training_seconds for one in best.answers
    ]
    one = warehouse.plan(**question, accelerator=ACCELERATOR, num_gpus=8)
    assert (one.answers, one.comparison.height) == ((), 0)
    with pytest.raises(InputError, match="none of the 2 questions has an answer"):
        warehouse.plan(**question, accelerator=[ACCELERATOR, OTHER], budget_usd=1, price=3)
