"""The rules of named programs: searches, batches and single rows read the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Catalog, Refusal, Scalar
from estimators.own_tables import rows_of
from estimators.predicates import compiled
from estimators.registry import get
from estimators.search import SearchedEstimator
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.program_rules import DERIVED
from warehouse.calibrate.published import ROW, published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import resolve_rows

ROWS = rows_of("training_step/framework_rule")
H100: dict[str, Scalar] = {"accelerator": "H100", "precision": "bf16", "seq_len": 4096}
LLAMA: dict[str, Scalar] = {**H100, "model": "llama3_70B", "num_gpus": 64, "global_batch_size": 64}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return packaged_catalog()


def refused(row: Mapping[str, Any], catalog: Catalog) -> list[Refusal]:
    columns = {
        name: np.array([value], dtype=object if COLUMNS[name].kind in ("str", "bool") else float)
        for name, value in row.items()
    }
    return TRAINING_STEP.resolve(RELATION, columns, catalog, PUBLISHED)[1]


def searched(row: Mapping[str, Scalar], catalog: Catalog) -> dict[str, set[Any]]:
    """Return the values that each column has in the layouts of a search, and its recomputations."""
    assert isinstance(TRAINING_STEP, SearchedEstimator)
    found: dict[str, set[Any]] = {name: set() for name in RELATION.keys}
    found["activation_recompute"] = set()
    space = {name: [value] for name, value in row.items()}
    for cell in TRAINING_STEP.search.cells(space, catalog, PUBLISHED):
        for layouts in TRAINING_STEP.search.layouts(cell, 1_000_000):
            for name, column in layouts.items():
                found[name] |= {*column.tolist()}
            if len(layouts["zero_stage"]):
                found["activation_recompute"].add(cell.choices["activation_recompute"])
    return found


def test_every_row_of_the_table_is_whole(catalog: Catalog) -> None:
    programs = {*catalog.tables["framework"]}
    for row in ROWS:
        assert row["framework"] in programs
        assert row["why"].endswith(".")
        repository, _, place = row["source"].partition(" @")
        assert repository.count("/") == 1
        assert len(place.split(" ")[0]) == 8
        ends = [float(row[name] or edge) for name, edge in _RELEASES.items()]
        assert ends == sorted(ends)
        names = compiled(row["rule"]).names
        assert {*names} <= {*DERIVED, *TRAINING_STEP.problem_columns} | {
            *TRAINING_STEP.choice_columns,
            *RELATION.keys,
        }


_RELEASES = {"from_release": 0, "until_release": 99}


def test_no_rule_excludes_a_published_run(catalog: Catalog) -> None:
    steps = published_steps()
    resolved = resolve_rows(get("training_step"), RELATION, steps, catalog, PUBLISHED)
    of_program = [
        refusal.row
        for refusal in resolved.refusals
        if refusal.is_of_program and refusal.row is not None
    ]
    broken = steps[of_program].select(ROW, "published_step_seconds")
    # runs without a time failed: the assertion of nanotron's engine says why
    assert broken.filter(pl.col("published_step_seconds").is_not_null()).rows() == []
    assert broken.height == 7


@pytest.mark.parametrize(
    ("framework", "lacks"),
    [
        ("llm_foundry", {"pipeline_parallel": {2}, "context_parallel": {2}, "zero_stage": {1}}),
        ("deepspeed", {"virtual_pipeline": {2}}),
        ("nanotron", {"virtual_pipeline": {2}, "zero_stage": {2, 3}}),
        ("megatron_lm_2022", {"zero_stage": {2, 3}, "context_parallel": {2}}),
        ("megatron_lm_2021", {"zero_stage": {1, 2, 3}, "uses_sequence_parallel": {1}}),
        ("fsdp", {"zero_stage": {1}}),
    ],
)
def test_a_search_has_no_layout_that_the_program_lacks(
    framework: str, lacks: dict[str, set[int]], catalog: Catalog
) -> None:
    found = searched({**LLAMA, "framework": framework}, catalog)
    usual = searched(LLAMA, catalog)
    for name, values in lacks.items():
        assert found[name].isdisjoint(values)
        assert usual[name] >= values
    assert found["data_parallel"]


def test_a_program_without_a_recomputation_is_searched_without_it(catalog: Catalog) -> None:
    assert searched(LLAMA, catalog)["activation_recompute"] == {"none", "selective", "full"}
    found = searched({**LLAMA, "framework": "nanotron"}, catalog)
    assert found["activation_recompute"] == {"none", "full"}


DEEPSPEED = {**LLAMA, "framework": "deepspeed", "zero_stage": 3, "pipeline_parallel": 4}
SHAPE = {"num_layers": 36, "hidden_size": 4096, "num_heads": 32, "vocab_size": 32000}
DEGREES = {"tensor_parallel": 8, "pipeline_parallel": 6, "virtual_pipeline": 3}
CHUNKS = {**H100, **SHAPE, **DEGREES, "num_gpus": 48, "global_batch_size": 3}


@pytest.mark.parametrize(
    ("row", "words", "hint"),
    [
        (
            DEEPSPEED,
            "`pipeline_parallel` 4 is not run by deepspeed: The pipeline engine asserts a stage "
            "below gradients (deepspeedai/DeepSpeed @edaa7221 deepspeed/runtime/pipe/engine.py:"
            "76-77)",
            "use 1, or `zero_stage` at most 1",
        ),
        (
            CHUNKS,
            "`virtual_pipeline` 3 is not run by megatron_core from 24.11: Interleaved",
            "use 1, or `global_batch_size` 6",
        ),
        (
            {**CHUNKS, "global_batch_size": 8},
            "`virtual_pipeline` 3 is not run by megatron_core from 24.11: Interleaved",
            "use 1, or `global_batch_size` 6 or 12",
        ),
        (
            {**LLAMA, "framework": "megatron_lm_2021", "pipeline_parallel": 2, "zero_stage": 0}
            | {"layers_in_first_stage": 39, "attention": "unfused"},
            "`pipeline_parallel` 2 is not run by megatron_lm_2021: Only even",
            "leave out `layers_in_first_stage`",
        ),
        (
            {**LLAMA, "framework": "nanotron", "recompute_modules": "layernorm"},
            '`recompute_modules` "layernorm" is not run by nanotron: One flag for layers',
            "use none",
        ),
        (
            {**LLAMA, "framework": "nanotron", "pipeline_parallel": 8, "tensor_parallel": 8}
            | {"microbatch_size": 32},
            "`pipeline_parallel` 8 is not run by nanotron: The engine of 1F1B asserts it",
            "use `global_batch_size` 224",
        ),
        (
            {**H100, "model": "mixtral_8x7B", "framework": "fsdp", "framework_release": 25.02}
            | {"num_gpus": 8, "global_batch_size": 8},
            "`num_experts` 8 is not run by fsdp from 25.01 before 25.04: Llama 3 is the only",
            "use another `framework`",
        ),
    ],
)
def test_a_refusal_names_program_release_reason_and_place(
    row: dict[str, Any], words: str, hint: str, catalog: Catalog
) -> None:
    [refusal] = refused(row, catalog)
    assert refusal.is_of_program
    assert str(refusal).startswith(words)
    assert refusal.hint == hint


@pytest.mark.parametrize(
    "row",
    [
        {**DEEPSPEED, "zero_stage": 1},
        {**DEEPSPEED, "framework": "megatron_core"},
        {**CHUNKS, "global_batch_size": 12},
        # a group of eight in a row takes the eight
        {**CHUNKS, "global_batch_size": 8, "microbatch_group": 8},
        # PyTorch takes fewer microbatches than stages as one round
        {**CHUNKS, "framework": "fsdp", "zero_stage": 0},
        {**H100, "model": "mixtral_8x7B", "framework": "fsdp", "num_gpus": 8}
        | {"global_batch_size": 8, "framework_release": 25.04},
        # chunks that divide no rank, as on GB300
        {"model": "deepseek_v3", "accelerator": "GB300", "precision": "fp8", "num_gpus": 256}
        | {"global_batch_size": 2048, "expert_parallel": 32}
        | {"pipeline_parallel": 2, "virtual_pipeline": 8},
    ],
)
def test_what_a_program_runs_is_not_refused(row: dict[str, Any], catalog: Catalog) -> None:
    assert refused(row, catalog) == []
