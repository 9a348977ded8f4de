"""Ids depend on content alone; a catalog says what it knows."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.columns import COLUMNS
from estimators.contract import (
    PUBLISHED,
    Catalog,
    Cell,
    Problem,
    Refusal,
    RefusedError,
    variant_name,
)
from estimators.registry import all_estimators, get

PROBLEM = Problem({"model": "gpt3", "num_gpus": 64, "hbm_bytes": 80e9})


def test_the_id_of_a_problem_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert PROBLEM.id == 531_590_955_766_185_621


def test_the_id_ignores_order_and_absent_values() -> None:
    same = Problem({"vocab_size": None, "num_gpus": 64, "hbm_bytes": 80e9, "model": "gpt3"})
    assert same.id == PROBLEM.id
    assert "vocab_size" not in same.values


@pytest.mark.parametrize(
    "change", [{"num_gpus": 65}, {"model": "gpt4"}, {"hbm_bytes": 81e9}, {"seq_len": 2048}]
)
def test_the_id_changes_with_the_content(change: dict[str, Any]) -> None:
    assert Problem({**PROBLEM.values, **change}).id != PROBLEM.id


def test_a_problem_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PROBLEM.values["num_gpus"] = 1  # type: ignore[index]


def test_cells_differ_by_version_mends_choices_and_what_is_kept() -> None:
    cells = [
        Cell("toy", 1, "toy", PROBLEM),
        Cell("toy", 2, "toy", PROBLEM),
        Cell("toy", 1, "toy_part", PROBLEM),
        Cell("toy", 1, "toy", PROBLEM, frozenset({"R1"})),
        Cell("toy", 1, "toy", PROBLEM, PUBLISHED, {"strategy": "tensor_1d"}),
        Cell("toy", 1, "toy", PROBLEM, PUBLISHED, {}, {"tensor_parallel": 8}),
    ]
    assert len({cell.id for cell in cells}) == len(cells)
    assert all(0 <= cell.id < 2**63 for cell in cells)


def test_variants_have_a_name() -> None:
    every = ("R1", "R2", "R10")
    assert variant_name(PUBLISHED, every) == "published"
    assert variant_name(frozenset(every), every) == "corrected"
    assert variant_name(frozenset({"R10", "R2"}), every) == "R2,R10"


CATALOG = Catalog(
    {"system": {"A100 SXM 80GB": {"accelerator": "A100 SXM 80GB"}}},
    {"system": {"A100-80GB": "A100 SXM 80GB"}},
)


def test_a_catalog_finds_names_and_aliases() -> None:
    assert CATALOG.find("system", "A100-80GB") == CATALOG.find("system", "A100 SXM 80GB")


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(RefusedError) as caught:
        CATALOG.find("system", "A100 SXM 80G")
    assert str(caught.value) == (
        '`system` "A100 SXM 80G" is not in the `system` table\nhint: did you mean A100 SXM 80GB?'
    )


def test_a_refusal_without_a_value_says_so() -> None:
    assert str(Refusal("num_gpus", None, "is missing")) == "`num_gpus` is missing"


def test_an_unknown_estimator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RefusedError, match="known: roofline, dataflow"):
        get("rooflin")


def test_every_column_of_every_estimator_is_in_the_dictionary() -> None:
    for estimator in all_estimators():
        for relation in estimator.relations:
            stored = (*estimator.problem_columns, *estimator.choice_columns, *relation.stored)
            results = (*relation.keys, *relation.outputs)
            names = (*stored, *results, *estimator.input_columns, *estimator.aliases.values())
            assert [name for name in names if name not in COLUMNS] == []
            assert len(set(stored)) == len(stored)
            assert len(set(results)) == len(results)
            assert relation.real <= set(results)


@pytest.mark.parametrize("asked", ["megatron_17B", "megatron_75B", "gpt3-1-3B"])
def test_a_name_with_another_number_is_refused_and_not_taken_for_its_neighbour(asked: str) -> None:
    rows = {name: {"model": name} for name in ("megatron_1.7B", "megatron_7.5B", "gpt3_13B")}
    with pytest.raises(RefusedError, match=f'"{asked}" is not in the `model` table'):
        Catalog({"model": rows}).find("model", asked)
