"""`warehouse plan` of runs that do not fit, have no price or make no sense."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.planning import ACCELERATOR, MODEL, QUESTION, TOKENS
from tests.shared import Command, Program, Refusal, held
from warehouse.plan.answer import _option_of_price
from warehouse.plan.compare import _counts_in_words

# ---- what does not fit, and what is not published ----


def test_for_too_few_gpus_the_least_memory_and_a_sufficient_count_are_reported(
    refusal: Refusal,
) -> None:
    big = ("--model", "llama3_70B", "--accelerator", "H100", "--tokens", 1e9, "--batch", 16)
    code, error = refusal(*big, "--gpus", 3)
    assert code == 3
    assert "none of" in error
    assert "the smallest takes" in error
    assert "hint: 24 GPUs hold it, or " in error


@pytest.mark.long
def test_the_hint_names_a_count_with_a_layout_that_is_likely_to_fit(
    refusal: Refusal, warehouse: Command, planned_database: Path
) -> None:
    run = ("--model", "llama3_70B", "--accelerator", "H100", "--tokens", 1e12, "--batch", 256)
    _, error = refusal(*run, "--gpus", 4)
    found = re.search(
        r"hint: (\d+) GPUs are likely to hold it \((\d+) hold it by the estimate, but no layout "
        r"there is 90 % likely to fit\), or a smaller --batch",
        error,
    )
    assert found is not None, error
    likely, enough = map(int, found.groups())
    assert enough < likely
    for num_gpus in (enough, likely):
        code, out, err = warehouse("plan", *run, "--gpus", num_gpus, "--db", planned_database)
        assert code == 0, err
        assert ("  memory   unlikely to fit: " in out) == (num_gpus == enough)


@pytest.mark.parametrize(
    ("enough", "safe", "words"),
    [
        (16, 16, "16 GPUs hold it"),
        (
            16,
            32,
            "32 GPUs are likely to hold it (16 hold it by the estimate, but no layout "
            "there is 90 % likely to fit)",
        ),
        (
            16,
            None,
            "16 GPUs are enough by the estimate (but with its error no count is likely to fit)",
        ),
    ],
)
def test_counts_that_hold_a_model(enough: int, safe: int | None, words: str) -> None:
    assert _counts_in_words(enough, safe, "is 90 % likely to fit") == words


@pytest.mark.parametrize(
    ("more", "exit_code", "said"),
    [
        (("--tokens", 15), 2, "`--tokens` 15 is less than the 131,072 tokens of one step"),
        (("--tokens", TOKENS, "hbm_bytes=144"), 3, "`hbm_bytes` 144.0 is less than 1e+06 bytes"),
    ],
)
def test_a_number_in_another_unit_is_refused_before_a_row_is_stored(
    refusal: Refusal, more: tuple[object, ...], exit_code: int, said: str
) -> None:
    of = ("--model", MODEL, "--accelerator", ACCELERATOR, "--batch", 64, "--gpus", 4)
    code, error = refusal(*of, *more)
    assert code == exit_code
    assert said in error


def test_the_option_is_named_as_it_was_typed(refusal: Refusal) -> None:
    assert refusal(*QUESTION, "--gpus", 0) == (2, "`--gpus` 0 must be at least 1\n")
    assert refusal(*QUESTION, "--gpus", "1e30")[1].startswith("`--gpus` 1e30 must be at most ")
    assert refusal(*QUESTION, "--num-gpus=0") == (2, "`--num-gpus` 0 must be at least 1\n")


@pytest.mark.long
def test_three_gpus_are_planned_if_a_layout_divides_by_three(
    plan: Callable[..., tuple[Any, str]],
) -> None:
    found, _ = plan("--gpus", 3)
    best = found["layouts"][0]
    degrees = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel")
    assert math.prod(best[name] for name in degrees) == 3
    # two of them cannot be faster, and are not tried
    assert [line["num_gpus"] for line in found["counts"]] == [3]


@pytest.mark.long
@pytest.mark.usefixtures("same_answers")
def test_where_no_price_was_published_the_option_that_gives_it_is_named(
    warehouse: Command, planned_database: Path
) -> None:
    run = ("plan", "--model", MODEL, "--tokens", TOKENS, "--batch", 64, "--db", planned_database)
    rented = ("--accelerator", "H800 SXM 80GB", "--gpus", 2)  # no rent of it is published
    code, out, err = warehouse(*run, *rented, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["cost_usd"] is None
    # nobody published the power of its server, but the estimator finds that of a step
    assert found["energy_kwh"] > 0
    lines = {line["basis"]: line for line in found["costs"]}
    assert lines["on_demand"]["option"] == "--price"
    assert lines["on_demand"]["price_note"]
    assert {line["option"] for line in found["energies"]} == {None}
    _, out, _ = warehouse(*run, *rented)
    assert "no published price of an hour: give one with --price" in out
    # a4 is rented for a year or three alone, as its own price list says
    _, out, _ = warehouse(*run, "--accelerator", "a4", "--gpus", 2)
    said = " ".join(out.split())
    assert "no published price on demand: ask for --basis " in said
    assert "one_year" in said[said.index("ask for --basis") :].partition(",")[0]
    roofline = ("--estimator", "roofline")
    code, out, err = warehouse(*run, "--accelerator", "MI300X", "--gpus", 8, *roofline, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["energy_kwh"] is None
    assert {line["option"] for line in found["energies"]} == {"--watts"}
    assert _option_of_price({"basis": "owned", "usd_per_gpu_hour": None}) == "--watts"
    for limit, option in (("--budget-usd", "--price"), ("--max-mw", "--watts")):
        code, _, err = warehouse(*run, *roofline, "--accelerator", "B200-next", limit, 1000)
        assert code == 3
        assert option in err


@pytest.mark.long
def test_the_roofline_plans_as_well(plan: Callable[..., tuple[Any, str]]) -> None:
    found, _ = plan("--gpus", 8, "--estimator", "roofline")
    assert found["question"]["variant"] == "corrected"
    assert found["likely_training_seconds"] is None
    assert found["costs"][0]["cost_usd"] > 0


# ---- wrong questions ----


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--gpus", 8, "--days", 3), 2, "`--gpus` and a limit exclude one another"),
        ((), 2, "neither a GPU count nor a limit"),
        (("--gpus", 0), 2, ""),
        (("--gpus", 8, "--basis", "gold"), 2, "`--basis` gold is not known"),
        (("--gpus", 8, "--basis", "owned", "--price", 2), 2, "`--basis` and `--price` exclude"),
        (("--gpus", 8, "--estimator", "pipeline"), 2, "cannot plan a run"),
        (("--gpus", 8, "--estimator", "roofline", "--framework", "fsdp"), 2, "no such input"),
        (("--budget-usd", -5), 3, "`--budget-usd` -5 must be above 0"),
        (("--budget-usd", "nan"), 3, "`--budget-usd` nan must be above 0"),
        (("--days", "inf"), 3, "`--days` inf must be at most 1e+30"),
        (("--max-mw", 0), 3, "`--max-mw` 0 must be above 0"),
        (("--gpus", 8, "--goodput", 1.5), 3, "`--goodput` 1.5 must be above 0 and at most 1"),
        (("--gpus", 8, "--pue", "nowhere"), 3, '`--pue` "nowhere"'),
        (("--gpus", 8, "--framework", "nope"), 3, '`framework` "nope" is not in'),
    ],
)
def test_a_wrong_question_is_refused(
    refusal: Refusal, options: tuple[float | str, ...], code: int, said: str
) -> None:
    found, error = refusal(*QUESTION, *options)
    assert found == code
    assert said in error


@pytest.mark.parametrize(
    ("model", "accelerator", "tokens", "said"),
    [
        ("nosuch", "H100", 1e9, '`model` "nosuch" is not in the `model` table'),
        (MODEL, "Z100", 1e9, '`accelerator` "Z100" is neither'),
        (MODEL, "H100", 0, "`--tokens` 0 must be above 0"),
        (MODEL, "H100", "nan", "`--tokens` nan must be above 0"),
        (MODEL, "H100", -1, "`--tokens` -1 must be above 0"),
    ],
)
def test_unknown_names_and_impossible_tokens_are_refused(
    refusal: Refusal, model: str, accelerator: str, tokens: float | str, said: str
) -> None:
    asked = ("--model", model, "--accelerator", accelerator, "--tokens", tokens)
    code, error = refusal(*asked, "--gpus", 8)
    assert code == 3
    assert said in error


@pytest.mark.long
def test_a_database_that_another_process_writes_to_is_reported(
    planned_database: Path, program: Program
) -> None:
    with held(planned_database) as pid:
        done = program(*("plan", *QUESTION, "--gpus", 8, "--wait", 0, "--db", planned_database))
        assert done.returncode == 5
        assert f"is in use by process {pid}" in done.stderr
        assert "--wait SECONDS" in done.stderr
