"""The contract says what an estimator can do, and every registered estimator can do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators import registry
from estimators.batch_rule import default_batch
from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array, Catalog, Cell, Columns, Mends, Relation, Space
from estimators.estimator import Estimator
from estimators.inputs import records
from tests.toy_estimator import TOY
from warehouse.database.catalog import packaged_catalog
from warehouse.database.summaries import by_precedence

GPT: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 1024,
    "num_heads": 16,
    "seq_len": 1024,
    "vocab_size": 51200,
    "num_gpus": 16,
    "global_batch_size": 32,
}
SPACES: dict[str, Space] = {
    name: {column: [value] for column, value in space.items()}
    for name, space in {
        "roofline": {**GPT, "accelerator": "B200", "activation_recompute": "full"},
        "training_step": {**GPT, "accelerator": "A100 SXM 80GB", "precision": "bf16"},
        "pipeline": {"num_layers": 8, "hidden_size": 1024, "num_gpus": 16},
        "toy": {**GPT, "accelerator": "B200", "model": None},
    }.items()
}
"""A small problem for each estimator that has parts to add up."""

SHAPE = {
    "num_layers": 2,
    "hidden_size": 8,
    "ffn_hidden_size": 32,
    "num_heads": 2,
    "seq_len": 16,
    "uses_glu": False,
    "num_experts": 1,
    "num_dense_layers": 0,
}
"""Layers of 2 x (4 h^2 + 2 h f) = 2 x 768 weights, and their norms and biases."""


def estimators() -> list[Estimator]:
    return [*registry.all_estimators(), TOY]


by_name = pytest.mark.parametrize("estimator", estimators(), ids=lambda one: one.name)


def cell_of(estimator: Estimator, catalog: Catalog, mends: Mends) -> tuple[Relation, Cell]:
    relation = estimator.relations[0]
    space = {n: v for n, v in SPACES[estimator.name].items() if n in estimator_inputs(estimator)}
    assert estimator.search is not None
    cells = estimator.search.cells(space, catalog, mends)
    return relation, next(cell for cell in cells if cell.relation == relation.name)


def estimator_inputs(estimator: Estimator) -> set[str]:
    return {*estimator.problem_columns, *estimator.choice_columns, *estimator.relations[0].keys}


def evaluated(
    estimator: Estimator, relation: Relation, cell: Cell, names: tuple[str, ...]
) -> dict[str, Array]:
    """Return columns of all layouts of a cell: outputs, and values of the problem."""
    assert estimator.search is not None
    [layouts] = estimator.search.layouts(cell, 1_000_000)
    size = estimator.search.count(cell)
    out: dict[str, Array] = {
        n: np.empty(size, relation.column(n).dtype) for n in names if n in relation.outputs
    }
    estimator.estimate(relation, cell.values, layouts, cell.mends, out, packaged_catalog())
    return {n: out[n] if n in out else np.full(size, cell.values[n]) for n in names}


@by_name
@pytest.mark.parametrize(
    ("whole", "attribute"), [("step_seconds", "parts"), ("memory_bytes", "memory")]
)
@pytest.mark.usefixtures("toy")
def test_parts_add_up_to_the_whole_in_every_layout(
    estimator: Estimator, whole: str, attribute: str, catalog: Catalog
) -> None:
    parts: tuple[str, ...] = getattr(estimator.step, attribute)
    if not parts:
        assert estimator.name not in SPACES or attribute == "memory"
        return
    for mends in {PUBLISHED, frozenset(estimator.mends)}:
        relation, cell = cell_of(estimator, catalog, mends)
        found = evaluated(estimator, relation, cell, (whole, *parts))
        assert len(found[whole]) >= 5
        assert (found[whole] > 0).all()
        total = np.sum([found[part] for part in parts], axis=0)
        np.testing.assert_allclose(total, found[whole], rtol=1e-12)


@by_name
def test_parts_and_formulas_are_of_columns_of_the_estimator(estimator: Estimator) -> None:
    outputs = estimator.relations[0].outputs
    assert set(estimator.step.parts) <= set(outputs)
    assert set(estimator.step.memory) <= {*outputs, *estimator.problem_columns}
    # explain takes the formulas, or refuses: never a part of them
    assert set(estimator.step.formulas) in (set(), set(estimator.step.parts))
    assert all(formula.text and formula.source for formula in estimator.step.formulas.values())
    for name in (*estimator.step.rates, *estimator.constants.names):
        assert name in estimator.problem_columns
    assert set(estimator.needed_shape) <= set(estimator.shape_columns)
    assert set(estimator.shape_columns) <= set(estimator.problem_columns)


@by_name
def test_searched_choices_are_values_that_the_dictionary_admits(estimator: Estimator) -> None:
    for name, values in estimator.searched_choices.items():
        assert name in estimator.choice_columns
        assert len(set(values)) == len(values) > 1
        assert set(values) <= set(COLUMNS[name].choices)


@by_name
def test_rules_have_a_name_of_their_own_and_blame_a_column_that_they_read(
    estimator: Estimator,
) -> None:
    for mends in {PUBLISHED, frozenset(estimator.mends)}:
        rules = estimator.rules(mends)
        for rule in rules:
            assert rule.name
            assert rule.column in rule.needs
            assert set(rule.needs) <= set(COLUMNS)


@pytest.mark.parametrize("name", ["roofline", "training_step"])
def test_a_refused_layout_breaks_a_rule_that_has_a_hint(name: str, catalog: Catalog) -> None:
    estimator = registry.get(name)
    relation = estimator.relations[0]
    row: dict[str, Any] = {**GPT, "accelerator": "B200", "tensor_parallel": 3}
    columns = {
        n: np.array([row.get(n)], dtype=object if COLUMNS[n].kind in ("str", "bool") else float)
        for n in estimator_inputs(estimator)
    }
    resolved, refusals = estimator.resolve(relation, columns, catalog, PUBLISHED)
    assert refusals
    [values] = records(resolved)
    broken = [rule for rule in estimator.rules(PUBLISHED) if not np.all(rule.holds(values))]
    assert {(rule.column, rule.reason(values)) for rule in broken} >= {
        (refusal.column, refusal.reason) for refusal in refusals
    }
    assert all(rule.hint(values) for rule in broken)


@by_name
def test_every_constant_has_a_row_for_every_framework_or_is_of_the_accelerator(
    estimator: Estimator, catalog: Catalog
) -> None:
    table = catalog.tables["step_constant"]
    for name in estimator.constants.names:
        for framework in catalog.tables["framework"]:
            for accelerator, record in catalog.tables["accelerator"].items():
                places = estimator.constants.places(catalog, framework, accelerator)
                keys = [name + place for place in places]
                is_known = any(key in table for key in keys) or record.get(name) is not None
                # an accelerator without the number is refused by name
                assert is_known or name in record, (name, framework, accelerator)


def test_the_most_specific_place_of_a_constant_comes_first(catalog: Catalog) -> None:
    places = registry.get("training_step").constants.places(catalog, "megatron_lm", "A100")
    product = "A100 SXM 80GB"
    assert places == (f"@{product}@megatron_lm", "@megatron_lm", f"@{product}", "")
    assert TOY.constants.places(catalog, "megatron_lm", "A100") == ("",)


@pytest.mark.parametrize("name", ["roofline", "training_step"])
def test_layers_are_counted_without_the_vocabulary(name: str) -> None:
    weights = 2 * (4 * 8 * 8 + 2 * 8 * 32)
    small = 2 * (4 * 8 + 3 * 8 + 8 + 32 + 8)  # two norms; biases of q, k and v, of the others
    count = registry.get(name).layer_parameters({**SHAPE, "vocab_size": 1000})
    assert count == (weights + small, weights + small)


def test_a_token_passes_through_some_experts_only() -> None:
    mixture = {
        **SHAPE,
        "uses_glu": True,
        "num_kv_heads": 2,
        "head_size": 4,
        "num_experts": 4,
        "experts_per_token": 1,
        "num_shared_experts": 0,
        "expert_ffn_hidden_size": 32,
    }
    whole, active = registry.get("training_step").layer_parameters(mixture)
    assert whole - active == 2 * 3 * 3 * 8 * 32  # three of four experts in two layers


@pytest.mark.parametrize(
    ("share", "batch"), [(1, 2048), (1 / 64, 1024), (64, 4096), (64 * 1.6**6, 8192), (2**-66, 1)]
)
def test_the_batch_grows_with_the_sixth_root_of_the_flops(share: float, batch: int) -> None:
    # 2,048^2 tokens at 1e25 FLOPs are 2,048 sequences of 2,048
    values = {"num_layers": 1000, "hidden_size": 1000, "seq_len": 2048}
    assert TOY.layer_parameters(values) == (12e9, 12e9)
    tokens = share * 1e25 / (6 * 12e9)
    assert default_batch(12e9, 2048, tokens) == batch
    assert default_batch(12e9, 1024, tokens) == max(2 * batch, 1)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("estimator", [registry.get("training_step"), TOY], ids=lambda e: e.name)
def test_no_layout_is_faster_than_the_least_seconds(estimator: Estimator, catalog: Catalog) -> None:
    relation, cell = cell_of(estimator, catalog, PUBLISHED)
    values: Columns = {
        name: np.array([np.nan if value is None else value])
        for name, value in {**dict.fromkeys(estimator.problem_columns), **cell.values}.items()
    }
    [least] = estimator.step.least_seconds(values)
    steps = evaluated(estimator, relation, cell, ("step_seconds",))["step_seconds"]
    assert 0 < least <= steps.min()


def test_an_estimator_without_a_bound_has_none() -> None:
    values = {"num_gpus": np.array([8, 16])}
    for name in ("roofline", "pipeline"):
        assert np.isnan(registry.get(name).step.least_seconds(values)).all()
        assert len(registry.get(name).step.least_flops(values)) == 2


def test_operations_are_configurations_times_their_names() -> None:
    operations = registry.get("roofline").step.operations
    assert operations is not None
    assert operations.relation.keys == (*registry.get("roofline").relations[0].keys, "operation")
    given = {"strategy": ["tensor_1d"], "attention": ["flash"], "tensor_parallel": [4]}
    rows = operations.expand({name: np.array(v, dtype=object) for name, v in given.items()})
    assert len(set(rows["operation"])) == len(rows["operation"]) > 10
    assert set(rows["tensor_parallel"]) == {4}


def test_choices_that_exclude_one_another_are_replaced() -> None:
    roofline = registry.get("roofline")
    choices = {"strategy": "summa_2d", "attention": "flash", "activation_recompute": "none"}
    found = roofline.consistent_choices(choices)
    assert roofline.rules(PUBLISHED)
    assert found["strategy"] == "summa_2d"
    assert roofline.consistent_choices(found) == found
    assert roofline.consistent_choices({**choices, "strategy": "tensor_1d"})["attention"] == "flash"
    assert TOY.consistent_choices(choices) == choices


def test_commands_take_an_estimator_that_has_what_they_need() -> None:
    capabilities = {
        "plan": "can_plan",
        "why": "step.parts",
        "explain": "step.formulas",
        "calibrate": "constants.names",
        "operations": "step.operations",
    }
    for command, capability in capabilities.items():
        assert registry.default(command) in registry.with_capability(capability)
    first, second, *others = by_precedence()
    assert (first.name, second.name) == ("training_step", "roofline")
    assert [each.name for each in others] == [
        name for name in registry.ESTIMATORS if name not in (first.name, second.name)
    ]
    assert registry.with_capability("can_plan") == ["roofline", "training_step"]
    assert registry.with_capability("source.tables") == ["run_optimizer", "cluster"]
    assert registry.with_capability("source.takes_published_steps") == [registry.default("measure")]
    with pytest.raises(KeyError):
        registry.default("no command")


@pytest.mark.usefixtures("toy")
def test_a_new_estimator_has_capabilities_as_the_others() -> None:
    assert registry.with_capability("can_plan")[-1] == "toy"
    assert registry.with_capability("constants.names") == ["training_step"]


def test_the_base_estimator_has_no_capability_and_refuses(catalog: Catalog) -> None:
    bare = Estimator()
    bare.name, bare.problem_columns, bare.relations = "bare", (), TOY.relations
    assert not bare.can_plan
    assert bare.rules(PUBLISHED) == ()
    assert np.isnan(bare.layer_parameters({})).all()
    with pytest.raises(NotImplementedError, match="bare has neither `complete` nor `resolve`"):
        bare.resolve(TOY.relations[0], {"num_gpus": np.array([1.0])}, catalog, PUBLISHED)
    with pytest.raises(NotImplementedError, match="bare has neither `figures` nor `estimate`"):
        bare.estimate(TOY.relations[0], {}, {}, PUBLISHED, {}, catalog)
