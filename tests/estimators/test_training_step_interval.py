"""Intervals of training steps: they hold the estimate, and the tables that make them are sound."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from benchmarks.interval_draws import drawn_interval, rows
from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED
from estimators.interval import combined, constant_spreads, moved
from estimators.registry import get
from estimators.training_step.step import independent_share
from tests.estimators.training_step_cases import GPT, problem_of, resolve
from warehouse.database import resources
from warehouse.database.catalog import packaged_catalog

CATALOG = packaged_catalog()
ESTIMATOR = get("training_step")
RELATION = ESTIMATOR.relations[0]


def table(name: str) -> list[dict[str, str]]:
    with (resources.reference_directory() / f"{name}.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


CONSTANTS = table("step_constant")
CAUSES = table("step_constant_cause")


def test_every_cause_is_that_of_a_constant_and_a_program() -> None:
    constants, programs = {row["constant"] for row in CONSTANTS}, {*CATALOG.tables["framework"]}
    given = [row["step_constant"].partition("@") for row in CAUSES]
    assert {name for name, _, _ in given} - constants == set()
    assert {program for _, _, program in given} - programs == {""}


def test_a_constant_and_its_programs_have_one_cause() -> None:
    causes = {(row["step_constant"].partition("@")[0], row["cause"]) for row in CAUSES}
    names = [name for name, _ in causes]
    assert [name for name in names if names.count(name) > 1] == []


def test_no_choice_of_programs_is_made_by_most_of_the_others() -> None:
    shares = {row["step_constant"]: row["other_share"] for row in CAUSES if row["other_share"]}
    assert {name: share for name, share in shares.items() if not 0 <= float(share) <= 0.5} == {}


def test_every_flag_says_how_often_it_differs() -> None:
    flags = {c["constant"] for c in CONSTANTS if COLUMNS[c["constant"]].kind == "bool"}
    assert flags <= {row["step_constant"] for row in CAUSES if row["other_share"]}


@pytest.mark.long
def test_the_interval_holds_the_estimate_and_agrees_with_draws() -> None:
    columns = rows(30)
    spreads = constant_spreads(ESTIMATOR, columns, CATALOG)
    step, moves = moved(ESTIMATOR, RELATION, columns, PUBLISHED, CATALOG, spreads)
    share = ESTIMATOR.constants.independent_share(RELATION, columns, PUBLISHED, CATALOG)
    linear = combined(step, moves, share, CATALOG)
    assert (linear.low < step).all()
    assert (linear.high > 1.02 * step).all()
    drawn = drawn_interval(ESTIMATOR, RELATION, columns, PUBLISHED, CATALOG, step, moves, 128)
    for end in ("low", "high"):
        ratio = getattr(linear, end) / getattr(drawn, end) - 1
        # where a limit binds, two faster constants save less than their sum
        assert abs(np.median(ratio)) < 0.04
        assert np.quantile(np.abs(ratio), 0.9) < 0.08


def test_a_row_of_the_formula_has_no_range_of_measured_kernels() -> None:
    row: dict[str, object] = {"accelerator": "H100", "framework": "fsdp", "model": "llama_3_8b"}
    given = [row, {**row, "gemm_efficiency": 0.7}, {**row, "attention_program": "formula"}]
    columns, refusals = resolve(given, CATALOG)
    assert not refusals
    spreads = {each.name: each for each in constant_spreads(ESTIMATOR, columns, CATALOG)}
    product, attention = spreads["product_rate_factor"], spreads["attention_rate_factor"]
    assert (product.highest > product.lowest).tolist() == [True, False, True]
    assert (attention.highest > attention.lowest).tolist() == [True, True, False]


@pytest.mark.parametrize(("program", "ends"), [("flash_2", (0.86, 1.05)), ("triton", (0.6, 1.4))])
def test_a_program_of_attention_has_its_range_in_every_framework(
    program: str, ends: tuple[float, float]
) -> None:
    # llm_foundry's runs of 16,384 tokens, named as those of fsdp, lay outside: Triton was certain
    row = {"model": "llama2_7B", "accelerator": "A100", "attention_program": program}
    given: list[dict[str, object]] = [
        {**row, "framework": name} for name in ("llm_foundry", "fsdp")
    ]
    columns, refusals = resolve(given, CATALOG)
    assert not refusals
    spreads = {each.name: each for each in constant_spreads(ESTIMATOR, columns, CATALOG)}
    found = spreads["attention_rate_factor"]
    for values, end in zip((found.lowest, found.highest), ends, strict=True):
        assert values == pytest.approx([end, end])


def test_products_err_less_together_than_one_alone() -> None:
    # without gates: widths of 3, 1, 4 and 4 times 512, in three passes
    problem, _ = problem_of({**GPT, "hidden_size": 512, "ffn_hidden_size": 2048, "num_heads": 8})
    products, vocabulary, step = np.array([6.0, 0.0]), np.array([0.0, 10.0]), np.float64(10.0)
    alone = 0.6 * np.sqrt((9 + 1 + 16 + 16) / 144 / 3)
    found = independent_share(problem.shape, products, vocabulary, step)
    assert found == pytest.approx([alone, np.sqrt(1 / 3)])
