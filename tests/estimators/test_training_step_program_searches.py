"""Searches of every program: each layout keeps each row of table `framework_rule.csv`.

The rows are Python; here `eval` reads them, so that the estimator's own reader is tested, too.
"""

from __future__ import annotations

import itertools
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
import pytest

from estimators.contract import PUBLISHED, Cell, EmptySpaceError, Scalar
from estimators.inputs import records
from estimators.own_tables import rows_of
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from tests.estimators.random_steps import CATALOG

FRAMEWORKS = sorted(CATALOG.tables["framework"])
MODELS = ["gpt3_1.3B", "llama3_8B", "llama3_405B", "mixtral_8x7B", "deepseek_v3", "gpt_oss_120B"]
PLACES = [("A100 SXM 80GB", 64), ("H100 SXM 80GB", 96), ("GB200 (per GPU)", 64), ("MI300X", 64)]
"""Machines, and how many GPUs a run has."""

MOST = 200
"""Layouts of a cell that are read."""

Run = tuple[str, tuple[str, int]]
"""A model, a machine and a number of GPUs."""

ONE_OF_EACH: list[Run] = list(zip(MODELS, itertools.cycle(PLACES), strict=False))
ALL: list[Run] = list(itertools.product(MODELS, PLACES))

NEWEST = [rule for rule in rows_of("training_step/framework_rule") if not rule["until_release"]]


@cache
def read(rule: str) -> CodeType:
    return compile(rule, rule, "eval")


def layouts_of(cell: Cell) -> list[dict[str, Any]]:
    """Return at most `MOST` layouts of a cell, evenly from all, with the values of the cell."""
    chunks = list(TRAINING_STEP.search.layouts(cell, 16_384))
    if not chunks:
        return []
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in RELATION.keys}
    size = len(columns["zero_stage"])
    rows = np.unique(np.linspace(0, size - 1, min(MOST, size)).astype(int))
    # a search places no layers and names no order of microbatches
    unplaced = {"is_placed": False, "has_layout": False, "microbatch_group": None}
    found = []
    for layout in records({name: column[rows] for name, column in columns.items()}):
        values = {**unplaced, **cell.values, **layout}
        sequences = values["data_parallel"] * values["microbatch_size"]
        found.append({**values, "num_microbatches": values["global_batch_size"] / sequences})
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("runs", [ONE_OF_EACH, pytest.param(ALL, marks=pytest.mark.long)])
def test_every_layout_of_a_search_keeps_the_rules_of_its_program(
    framework: str, runs: list[Run]
) -> None:
    rules = [rule["rule"] for rule in NEWEST if rule["framework"] == framework]
    assert rules
    count = 0
    for model, (machine, num_gpus) in runs:
        space: dict[str, list[Scalar]] = {
            "model": [model],
            "accelerator": [machine],
            "framework": [framework],
            "num_gpus": [num_gpus],
            "global_batch_size": [3 * num_gpus],
        }
        try:
            cells = list(TRAINING_STEP.search.cells(space, CATALOG, PUBLISHED))
        except EmptySpaceError:
            continue
        for values in itertools.chain.from_iterable(map(layouts_of, cells)):
            count += 1
            # a number without a value is 0
            names = {name: 0 if value is None else value for name, value in values.items()}
            for rule in rules:
                assert eval(read(rule), {"__builtins__": {}}, names), (rule, values)
    assert count >= MOST
