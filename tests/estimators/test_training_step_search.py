"""The search of training steps enumerates what plain loops over the rules do; refusals say why."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from estimators.training_step.estimator import RELATION, TRAINING_STEP
from tests.estimators.training_step_cases import (
    IDEAL,
    MOE,
    cells_of,
    estimate,
    estimate_cell,
    layouts_of,
    resolve,
)
from tests.estimators.training_step_spaces import DENSE, KEYS

GROUPED = {
    "num_layers": 12,
    "hidden_size": 768,
    "num_heads": 6,
    "num_kv_heads": 3,
    "seq_len": 1536,
    "ffn_hidden_size": 1536,
    "vocab_size": 512,
    "num_gpus": 12,
    "global_batch_size": 12,
}
MIXTURE = {**MOE, "num_experts": 4, "vocab_size": 512, "num_gpus": 16, "global_batch_size": 16}
ODD = {**DENSE, "seq_len": 1022, "num_layers": 8, "num_gpus": 8}


def brute_force(problem: dict[str, Any], attention: str) -> set[tuple[int, ...]]:
    """Return every layout by loops over all values that a degree could have."""
    gpus, batch = problem["num_gpus"], problem["global_batch_size"]
    layers, heads, s = problem["num_layers"], problem["num_heads"], problem["seq_len"]
    keys = problem.get("num_kv_heads", heads)
    ffn = problem.get("ffn_hidden_size", 4 * problem["hidden_size"])
    experts, width = problem.get("num_experts", 1), problem.get("expert_ffn_hidden_size", ffn)
    found: set[tuple[int, ...]] = set()
    degrees = range(1, gpus + 1)
    for t, c, p, d in itertools.product(degrees, repeat=4):
        if t * c * p * d != gpus or p > layers:
            continue
        if heads % t or ffn % t or (keys % t and t % keys):
            continue
        if c > 1 and (attention != "flash" or s % (2 * c) or s / c < 256):
            continue
        whole = [(x, e) for x in range(1, t + 1) for e in range(1, experts + 1)]
        for x, e in whole:
            # experts over their own tensors, a part of the others; groups fill the stage
            if t % x or experts % e or (t * c * d) % (x * e):
                continue
            if x > 1 and (experts == 1 or width % x):
                continue
            for splits in (0, 1):
                if splits and (t == 1 or s % (t * c)):
                    continue
                if experts > 1 and t > 1 and not splits:
                    continue
                for b in range(1, batch + 1):
                    if batch % (d * b):
                        continue
                    for v in range(1, layers + 1):
                        if v > 1 and (p == 1 or v > math.ceil(layers / p)):
                            continue
                        most = math.ceil(layers / (p * v))
                        # even ranks have even chunks; else the last chunk may have none, the
                        # first a layer less
                        short, of_rank = most * p * v - layers, math.ceil(layers / p)
                        if of_rank % v and (layers % p == 0 or short > 3):
                            continue
                        if v > 1 and layers % p and short > most + 1:
                            continue
                        for zero in range(4):
                            if zero == 0 or d * c > 1:
                                found.add((t, c, x, e, splits, b, p, v, d, zero))
    return found


def enumerated(layouts: dict[str, Any]) -> list[tuple[int, ...]]:
    return list(zip(*(layouts[name].astype(int).tolist() for name in KEYS), strict=True))


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize(
    "problem", [DENSE, GROUPED, MIXTURE, ODD], ids=["dense", "grouped", "mixture", "odd"]
)
def test_the_search_finds_what_plain_loops_find(problem: dict[str, Any], attention: str) -> None:
    cells = cells_of({**IDEAL, **problem, "attention": attention})
    assert len(cells) == 1
    found = enumerated(layouts_of(cells[0]))
    expected = brute_force(problem, attention)
    assert len(found) == len(set(found)) == TRAINING_STEP.search.count(cells[0])
    assert set(found) == expected
    assert len(expected) > 50
    # Not all is the same: every degree is searched where the problem has a use for it.
    various = {name: len({row[i] for row in expected}) > 1 for i, name in enumerate(KEYS)}
    unused = {name for name, is_various in various.items() if not is_various}
    assert unused <= {"context_parallel", "expert_parallel", "expert_tensor_parallel"}
    has_experts = "num_experts" in problem
    assert has_experts == various["expert_tensor_parallel"] == various["expert_parallel"]


@pytest.mark.parametrize("problem", [GROUPED, MIXTURE], ids=["grouped", "mixture"])
def test_every_layout_that_is_searched_may_be_evaluated_by_itself(problem: dict[str, Any]) -> None:
    [cell] = cells_of({**IDEAL, **problem})
    layouts = layouts_of(cell)
    names = list(layouts)
    rows = [
        {**IDEAL, **problem, **dict(zip(names, row, strict=True))}
        for row in zip(*(layouts[name].tolist() for name in names), strict=True)
    ]
    resolved, refusals = resolve(rows)
    assert not refusals
    assert {name: resolved[name].tolist() for name in names} == {
        name: layouts[name].tolist() for name in names
    }
    found, expected = estimate(resolved), estimate_cell(cell, layouts)
    for name in RELATION.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)


def test_chunks_are_the_whole_in_order() -> None:
    [cell] = cells_of({**IDEAL, **MIXTURE})
    whole = enumerated(layouts_of(cell))
    for size in (1, 7, 100):
        assert enumerated(layouts_of(cell, size)) == whole
        sizes = [len(c["zero_stage"]) for c in TRAINING_STEP.search.layouts(cell, size)]
        assert set(sizes[:-1]) <= {size}


@pytest.mark.parametrize(
    "kept",
    [
        {"tensor_parallel": 2},
        {"tensor_parallel": 2, "uses_sequence_parallel": True, "zero_stage": 1},
        {"uses_sequence_parallel": False},
        {"pipeline_parallel": 2, "virtual_pipeline": 2, "microbatch_size": 1},
        {"data_parallel": 4, "expert_parallel": 2},
        {"tensor_parallel": 4, "expert_tensor_parallel": 2, "expert_parallel": 4},
        {"context_parallel": 2, "zero_stage": 3},
    ],
    ids=str,
)
def test_named_degrees_are_kept_to(kept: dict[str, Any]) -> None:
    [cell] = cells_of({**IDEAL, **MIXTURE, **kept})
    place = {name: i for i, name in enumerate(KEYS)}
    expected = {
        row
        for row in brute_force(MIXTURE, "flash")
        if all(row[place[name]] == int(value) for name, value in kept.items())
    }
    found = enumerated(layouts_of(cell))
    assert dict(cell.fixed) == kept
    assert len(found) == len(expected) > 0
    assert set(found) == expected


def test_lists_of_degrees_make_a_cell_each_and_batches_problems() -> None:
    space = {**IDEAL, **MIXTURE, "tensor_parallel": [1, 2], "global_batch_size": [16, 32]}
    cells = cells_of(space)
    named = [(cell.values["global_batch_size"], dict(cell.fixed)) for cell in cells]
    assert named == [(batch, {"tensor_parallel": t}) for batch in (16, 32) for t in (1, 2)]
    assert len({cell.problem.id for cell in cells}) == 2
    assert len({cell.id for cell in cells}) == 4


def test_a_study_may_name_everything_that_a_problem_is_made_of() -> None:
    # more names than numpy's arrays have dimensions; None is what is left to its default
    [cell] = cells_of({**IDEAL, **DENSE})
    named = {n: v for n, v in {**cell.problem.values, **cell.choices}.items() if v is not None}
    assert len(named) > 64
    assert [again.id for again in cells_of(named)] == [cell.id]


@pytest.mark.parametrize(
    ("choice", "layers", "stages"),
    [
        # 8 stages
        ({"pipeline_layout": "Et|(t|)*6L"}, 7, {(2, 4), (4, 2), (8, 1)}),
        # 2 layers for one other rank or for two
        ({"layers_in_first_stage": 3, "layers_in_last_stage": 3}, 8, {(3, 1), (4, 1)}),
        ({"layers_in_first_stage": 4, "layers_in_last_stage": 2}, 8, {(3, 1), (3, 2), (4, 1)}),
        # 8 with the embedding
        (
            {"counts_embedding": True},
            7,
            {(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)},
        ),
    ],
)
def test_a_choice_of_stages_leaves_the_layouts_that_take_it(
    choice: dict[str, Any], layers: int, stages: set[tuple[int, int]]
) -> None:
    space = {**IDEAL, **DENSE, **choice, "num_layers": layers, "num_gpus": 24}
    names = ("pipeline_parallel", "virtual_pipeline")
    found: set[tuple[int, int]] = set()
    for cell in cells_of({**space, "global_batch_size": 24}):
        layouts = layouts_of(cell)
        found |= set(zip(*(layouts[name].tolist() for name in names), strict=True))
    assert found == stages


EIGHT_GPUS = {**IDEAL, **DENSE, "num_layers": 8, "num_gpus": 8, "global_batch_size": 16}
SEVEN_LAYERS = {**EIGHT_GPUS, "num_layers": 7}


def searched(space: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return every layout of a space with its schedule and group, in the order of its cells."""
    return [
        (cell.choices["schedule"], cell.choices["microbatch_group"], *layout)
        for cell in cells_of(space)
        for layout in enumerated(layouts_of(cell))
    ]


def test_a_layout_without_a_pipeline_is_searched_once_for_all_schedules() -> None:
    alone = searched({**EIGHT_GPUS, "schedule": "1f1b"})
    both = searched({**EIGHT_GPUS, "schedule": ["1f1b", "zb_h1"]})
    stages = 2 + KEYS.index("pipeline_parallel")
    chunks = 2 + KEYS.index("virtual_pipeline")
    # a zero-bubble schedule has no chunks
    gained = {("zb_h1", *row[1:]) for row in alone if row[stages] > 1 and row[chunks] == 1}
    assert len(both) == len(set(both)) == len(alone) + len(gained)
    assert set(both) == {*alone, *gained}
    assert {row[stages] for row in gained} == {2, 4, 8}


@pytest.mark.parametrize(
    ("choices", "degree"),
    [
        ({"schedule": "zb_h1"}, "pipeline_parallel"),
        ({"counts_loss": True, "counts_embedding": True}, "pipeline_parallel"),
        ({"pipeline_layout": "Et*8L"}, "pipeline_parallel"),
        ({"microbatch_group": 8}, "virtual_pipeline"),
    ],
)
def test_a_search_of_one_schedule_has_the_layouts_without_a_pipeline(
    choices: dict[str, Any], degree: str
) -> None:
    place = KEYS.index(degree)
    [whole] = cells_of(EIGHT_GPUS)
    expected = {row for row in enumerated(layouts_of(whole)) if row[place] == 1}
    cells = cells_of({**EIGHT_GPUS, **choices})
    found = [row for cell in cells for row in enumerated(layouts_of(cell))]
    assert len(found) == len(set(found))
    assert {row for row in found if row[place] == 1} == expected
    [part] = [cell for cell in cells if cell.fixed]
    assert (part.fixed, part.choices) == ({degree: 1}, whole.choices)


def test_a_group_and_a_schedule_have_the_layouts_without_chunks_and_without_a_pipeline() -> None:
    cells = cells_of({**SEVEN_LAYERS, "microbatch_group": 8, "counts_loss": True})
    given = [
        (c.choices["microbatch_group"], c.choices["counts_loss"], dict(c.fixed)) for c in cells
    ]
    no_chunks, no_stages = {"virtual_pipeline": 1}, {"virtual_pipeline": 1, "pipeline_parallel": 1}
    expected = [(8, True, {}), (None, True, no_chunks), (None, False, no_stages)]
    assert [each for each in given if each in expected] == expected


def test_a_degree_that_is_kept_leaves_the_schedule_out() -> None:
    space = {**EIGHT_GPUS, "schedule": ["zb_h1", "zb_h2"], "pipeline_parallel": 1}
    found = searched(space)
    expected = searched({**EIGHT_GPUS, "pipeline_parallel": 1})
    assert found == expected != []


def test_a_batch_has_no_schedule_where_there_is_no_pipeline() -> None:
    one = {**SEVEN_LAYERS, "schedule": "zb_h1", "counts_loss": True, "microbatch_group": 4}
    resolved, refusals = resolve(
        [{**one, "pipeline_parallel": stages, "microbatch_size": 1} for stages in (1, 4)]
    )
    assert not refusals
    assert resolved["schedule"].tolist() == ["1f1b", "zb_h1"]
    assert resolved["counts_loss"].tolist() == [False, True]
    assert np.isnan(resolved["microbatch_group"]).all()


def test_programs_that_balance_stages_and_others_have_their_own_layouts() -> None:
    # the output layer has as many products as all layers: stages behind it are empty
    space = {**EIGHT_GPUS, "vocab_size": 98_304, "num_gpus": 16}
    alone = {
        balances: sum(len(layouts_of(c)["zero_stage"]) for c in cells_of({**space, **of}))
        for balances, of in ((each, {"balances_stages": each}) for each in (True, False))
    }
    assert alone[True] < alone[False]
    for order in ([True, False], [False, True]):
        cells = cells_of({**space, "balances_stages": order})
        found = {c.values["balances_stages"]: len(layouts_of(c)["zero_stage"]) for c in cells}
        assert found == alone


def test_a_choice_of_stages_without_any_pipeline_is_an_empty_cell() -> None:
    space = {**EIGHT_GPUS, "num_gpus": 1, "counts_loss": [False, True]}
    sizes = {c.choices["counts_loss"]: len(layouts_of(c)["zero_stage"]) for c in cells_of(space)}
    assert sizes.pop(False) > 0
    assert not sizes.get(True)
