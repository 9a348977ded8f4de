"""The search of an estimator: its cells, exact counts, and reasons where nothing is left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

from estimators.contract import (
    PUBLISHED,
    Catalog,
    Columns,
    EmptySpaceError,
    Mends,
    RefusedError,
    Relation,
    Scalar,
    Space,
    Values,
)
from estimators.enumeration import Axis, split_over
from estimators.estimator import Estimator
from estimators.inputs import Inputs
from estimators.registry import all_estimators
from estimators.rules import Rule, divides
from estimators.search import SearchedEstimator, TableSearch, combinations

CATALOG = Catalog({})
RELATION = Relation("some", "one row per layout", ("data_parallel", "tensor_parallel"), ())


class Some(SearchedEstimator):
    name = "some"
    version = 1
    problem_columns = ("num_gpus", "num_heads", "hidden_size", "vocab_size")
    choice_columns = ("activation_recompute",)
    optional_columns = ("vocab_size",)
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({"activation_recompute": "none"})
    relations = (RELATION,)

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        del mends
        return (divides("num_heads", "hidden_size"), divides("tensor_parallel", "num_heads"))

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        del catalog, mends
        inputs.default("hidden_size", 1024)
        inputs.default("num_heads", 16)
        inputs.default("activation_recompute", "none")
        inputs.require(("num_gpus",), "say how many")
        inputs.check(("num_gpus", "num_heads", "hidden_size"))

    def axes(self, values: Values) -> tuple[Axis, ...]:
        return split_over(values["num_gpus"], ("tensor_parallel", "data_parallel"))


SEARCH = TableSearch(Some(), RELATION)


def test_each_combination_of_values_is_a_cell_with_its_layouts_counted() -> None:
    space: Space = {"num_gpus": [8, 32], "activation_recompute": ["none", "full"]}
    cells = list(SEARCH.cells(space, CATALOG, PUBLISHED))
    assert [(c.values["num_gpus"], c.choices["activation_recompute"]) for c in cells] == [
        (8, "none"),
        (32, "none"),
        (8, "full"),
        (32, "full"),
    ]
    assert [SEARCH.count(cell) for cell in cells] == [4, 5, 4, 5]
    assert len({cell.id for cell in cells}) == 4


def test_layouts_come_in_order_and_in_chunks() -> None:
    [cell] = SEARCH.cells({"num_gpus": [32]}, CATALOG, PUBLISHED)
    chunks = list(SEARCH.layouts(cell, 2))
    assert [len(chunk["tensor_parallel"]) for chunk in chunks] == [2, 2, 1]
    joined = np.concatenate([chunk["tensor_parallel"] for chunk in chunks])
    assert joined.tolist() == [1, 2, 4, 8, 16]


def test_a_kept_value_makes_a_cell_of_its_own() -> None:
    cells = list(SEARCH.cells({"num_gpus": [32], "data_parallel": [4, 2]}, CATALOG, PUBLISHED))
    assert [cell.fixed for cell in cells] == [{"data_parallel": 4}, {"data_parallel": 2}]
    assert [SEARCH.count(cell) for cell in cells] == [1, 1]


def test_a_space_that_names_only_layouts_takes_every_default() -> None:
    with pytest.raises(RefusedError, match=r"`num_gpus` .*is missing\nhint: say how many"):
        SEARCH.check({"data_parallel": [4]}, CATALOG, PUBLISHED)


def test_combinations_have_the_last_name_fastest() -> None:
    found = combinations({"a": [1, 2], "b": ["x"], "c": [None, 3, True]})
    assert {name: column.tolist() for name, column in found.items()} == {
        "a": [1, 1, 1, 2, 2, 2],
        "b": ["x"] * 6,
        "c": [None, 3, True, None, 3, True],
    }
    assert combinations({}) == {}
    assert [len(column) for column in combinations({"a": [1, 2], "b": []}).values()] == [0, 0]


def test_a_space_may_name_more_columns_than_an_array_has_dimensions() -> None:
    # numpy's arrays end at 64 dimensions
    space: dict[str, list[Scalar]] = {f"name_{number}": [number] for number in range(100)}
    found = combinations({"first": [1, 2], **space, "last": [3, 4]})
    assert len(found) == 102
    assert (found["first"].tolist(), found["last"].tolist()) == ([1, 1, 2, 2], [3, 4, 3, 4])
    assert found["name_99"].tolist() == [99] * 4


def test_a_fault_is_reported_once_however_many_combinations_have_it() -> None:
    space: Space = {"num_gpus": [0], "activation_recompute": ["none", "full"]}
    with pytest.raises(RefusedError) as caught:
        SEARCH.check(space, CATALOG, PUBLISHED)
    assert [str(r) for r in caught.value.refusals] == ["`num_gpus` 0 must be at least 1"]


def test_a_kept_value_that_leaves_nothing_is_refused_with_the_rule_that_it_breaks() -> None:
    with pytest.raises(EmptySpaceError, match="`tensor_parallel` 3 does not divide `num_heads` 16"):
        SEARCH.check({"num_gpus": [12], "tensor_parallel": [3]}, CATALOG, PUBLISHED)


def test_a_kept_value_that_only_others_exclude_is_refused_too() -> None:
    with pytest.raises(EmptySpaceError, match="`data_parallel` 5 leaves no layout in any cell"):
        SEARCH.check({"num_gpus": [16], "data_parallel": [5]}, CATALOG, PUBLISHED)


def test_the_refusal_of_a_problem_names_the_rule_that_it_breaks() -> None:
    with pytest.raises(EmptySpaceError, match="`num_heads` 16 does not divide `hidden_size` 100"):
        SEARCH.check({"num_gpus": [16], "hidden_size": [100]}, CATALOG, PUBLISHED)


def test_cells_that_differ_in_what_no_layout_depends_on_share_their_table() -> None:
    made: list[Values] = []

    class Noted(Some):
        independent = frozenset({"activation_recompute"})

        def layouts_of(
            self, relation: Relation, values: Values, kept: Mapping[str, Scalar], mends: Mends
        ) -> Columns:
            made.append(values)
            return super().layouts_of(relation, values, kept, mends)

    shared = TableSearch(Noted(), RELATION)
    space: Space = {"num_gpus": [8, 32], "activation_recompute": ["none", "full"]}
    cells = list(shared.cells(space, CATALOG, PUBLISHED))
    assert [shared.count(cell) for cell in cells] == [4, 5, 4, 5]
    for cell in cells:
        assert sum(len(t["data_parallel"]) for t in shared.layouts(cell, 3)) == shared.count(cell)
    assert len(made) == 2


@pytest.mark.parametrize("estimator", all_estimators(), ids=lambda each: each.name)
def test_cells_share_a_table_only_if_no_rule_of_layouts_distinguishes_them(
    estimator: Estimator,
) -> None:
    if not isinstance(estimator, SearchedEstimator):
        return
    of_cells = {*estimator.problem_columns, *estimator.choice_columns}
    for mends in (PUBLISHED, frozenset(estimator.mends)):
        for rule in estimator.search_rules(mends):
            if of_cells.issuperset(rule.needs):  # it admits all layouts of a cell or none
                continue
            assert not estimator.independent & {*rule.needs}, rule.name
