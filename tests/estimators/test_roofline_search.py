"""The search enumerates what plain loops over the rules enumerate, and keeps to what is named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import PUBLISHED, Catalog, Mends, RefusedError
from estimators.roofline.estimator import RELATION, ROOFLINE
from estimators.roofline.strategies import ATTENTIONS
from tests.estimators.evaluation import ALL_MENDS, PARTS, cells_of, evaluate_cell, evaluate_rows
from tests.examples import examples

SMALL: dict[str, list[Any]] = {
    "num_layers": [12],
    "hidden_size": [768],
    "ffn_hidden_size": [3072],
    "num_heads": [12],
    "seq_len": [1000],
    "accelerator": ["A100"],
}
KEY = (
    "tensor_parallel",
    "tensor_parallel_2",
    "context_parallel",
    "pipeline_parallel",
    "data_parallel",
    "microbatch_size",
    "summa_panels",
    "nvlink_tensor_parallel",
    "nvlink_tensor_parallel_2",
    "nvlink_context_parallel",
    "nvlink_data_parallel",
    "nvlink_pipeline_parallel",
)
LAYERS, WIDTH, FFN, HEADS, TOKENS = 12, 768, 3072, 12, 1000


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _placements(split: tuple[int, ...], domain: int, mends: Mends) -> list[tuple[int, ...]]:
    every = list(itertools.product(*map(_divisors, split)))
    if "R9" not in mends:
        return [m for m in every if math.prod(m) == min(math.prod(split), domain)]
    fitting = [m for m in every if math.prod(m) <= domain]
    return [
        m
        for m in fitting
        if not any(o != m and all(a >= b for a, b in zip(o, m, strict=True)) for o in fitting)
    ]


def _panels(first: int, second: int, mends: Mends) -> list[int]:
    start = math.lcm(first, second) if "R11" in mends else max(first, second)
    if WIDTH / start < 512:
        return [start]
    ladder = [start * 2**i for i in range(math.ceil(math.log2(WIDTH // start)))]
    return [n for n in ladder if WIDTH % n == 0 and WIDTH // n >= 512]


def _axes(strategy: str, num_gpus: int) -> Iterator[tuple[int, int]]:
    """Yield degrees of both axes that the shape admits."""
    for first in _divisors(num_gpus):
        if HEADS % first or WIDTH % first or FFN % first:
            continue
        if strategy == "tensor_1d":
            if 3 * WIDTH // first >= 128:
                yield first, 1
            continue
        for second in _divisors(num_gpus // first):
            if WIDTH // first < 128 or TOKENS // second < 128:
                continue
            if strategy == "summa_2d" and WIDTH % second:
                continue
            yield first, second


def _loops(
    strategy: str, num_gpus: int, batch: int, domain: int, chunks: int, mends: Mends
) -> Iterator[tuple[int, ...]]:
    """Enumerate the space of `SMALL` by its rules, one candidate at a time."""
    for first, second in _axes(strategy, num_gpus):
        over_tokens = {"tensor_1d": first, "summa_2d": second, "context_2d": first * second}[
            strategy
        ]
        if "R4" in mends and TOKENS % over_tokens:
            continue
        for pipeline in _divisors(num_gpus // first // second):
            data = num_gpus // first // second // pipeline
            if LAYERS % pipeline or data > batch or batch % data:
                continue
            if LAYERS // pipeline % chunks or (chunks > 1 and pipeline == 1):
                continue
            for micro in _divisors(batch // data):
                if micro * TOKENS % over_tokens:
                    continue
                if chunks > 1 and batch // data // micro % pipeline:
                    continue
                choices = _panels(first, second, mends) if strategy == "summa_2d" else [0]
                for panels in choices:
                    for four, one, two, three in _placements(
                        (pipeline, first, second, data), domain, mends
                    ):
                        summa, context = second, 1
                        on_summa, on_context = two, 1
                        if strategy != "summa_2d":
                            summa, context = 1, second
                            on_summa, on_context = 1, two
                        yield (
                            *(first, summa, context, pipeline, data, micro, panels),
                            *(one, on_summa, on_context, three, four),
                        )


@examples(150)
@given(
    strategy=st.sampled_from(["tensor_1d", "summa_2d", "context_2d"]),
    num_gpus=st.sampled_from([1, 2, 6, 8, 12, 24, 48, 70]),
    batch=st.sampled_from([1, 8, 12, 48, 60]),
    domain=st.sampled_from([1, 2, 4, 6, 8, 72]),
    chunks=st.sampled_from([1, 1, 2, 3]),
    mends=st.sampled_from([PUBLISHED, *(frozenset({m}) for m in ("R4", "R9", "R11")), ALL_MENDS]),
)
def test_the_search_finds_what_plain_loops_find_in_the_same_order(
    catalog: Catalog,
    strategy: str,
    num_gpus: int,
    batch: int,
    domain: int,
    chunks: int,
    mends: Mends,
) -> None:
    expected = list(_loops(strategy, num_gpus, batch, domain, chunks, mends))
    space: dict[str, list[Any]] = {
        **SMALL,
        "strategy": [strategy],
        "num_gpus": [num_gpus],
        "global_batch_size": [batch],
        "nvlink_size": [domain],
        "virtual_pipeline": [chunks],
    }
    if not expected:
        with pytest.raises(RefusedError):
            cells_of(space, catalog, mends)
        return
    [cell] = cells_of(space, catalog, mends)
    found = evaluate_cell(cell)
    assert list(found.select(KEY).iter_rows()) == expected
    assert ROOFLINE.search.count(cell) == len(expected)


@pytest.mark.parametrize("max_rows", [1, 7, 100])
def test_chunks_do_not_change_the_rows(max_rows: int, catalog: Catalog) -> None:
    [cell] = cells_of({"model": ["gpt3_1T"], "accelerator": ["B200"], "num_gpus": [64]}, catalog)
    whole = evaluate_cell(cell)
    assert evaluate_cell(cell, max_rows).equals(whole)
    sizes = [len(chunk["microbatch_size"]) for chunk in ROOFLINE.search.layouts(cell, max_rows)]
    assert sum(sizes) == whole.height
    assert len(sizes) > 1


@pytest.mark.parametrize(
    ("mends", "recompute"),
    [
        pytest.param(PUBLISHED, "none", id="published-none"),
        pytest.param(ALL_MENDS, "full", id="corrected-full"),
        pytest.param(PUBLISHED, "full", id="published-full", marks=pytest.mark.long),
        pytest.param(ALL_MENDS, "none", id="corrected-none", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    ("strategy", "attention"),
    [(strategy, attention) for strategy, known in ATTENTIONS.items() for attention in known],
)
def test_a_search_gives_what_a_batch_of_the_same_layouts_gives(
    mends: Mends, recompute: str, strategy: str, attention: str, catalog: Catalog
) -> None:
    space: dict[str, list[Any]] = {
        "model": ["gpt3"],
        "accelerator": ["H200"],
        "nvlink_size": [8],
        "num_gpus": [96],
        "global_batch_size": [192],
        "virtual_pipeline": [2],
        "activation_recompute": [recompute],
        "strategy": [strategy],
        "attention": [attention],
    }
    [cell] = cells_of(space, catalog, mends)
    found = evaluate_cell(cell)
    named = {name: values[0] for name, values in space.items()}
    rows = found.select(RELATION.keys).with_columns(
        *(pl.lit(v).alias(name) for name, v in named.items())
    )
    assert found.select(RELATION.outputs).equals(evaluate_rows(rows, catalog, mends))
    total = found.select(pl.sum_horizontal(PARTS)).to_series()
    adds_up = (total / found["step_seconds"] - 1).abs() < 1e-12
    # Erratum R10: recomputed attention adds to the step but, as published, to no part of it.
    assert adds_up.all() is (attention != "unfused_recompute" or "R10" in mends)


def test_named_degrees_are_kept_to(catalog: Catalog) -> None:
    base: dict[str, list[Any]] = {
        "model": ["gpt3"],
        "accelerator": ["A100"],
        "num_gpus": [64],
        "nvlink_size": [8],
    }
    [whole] = cells_of(base, catalog)
    cells = cells_of({**base, "tensor_parallel": [4, 8], "nvlink_data_parallel": [2]}, catalog)
    assert [dict(cell.fixed) for cell in cells] == [
        {"tensor_parallel": 4, "nvlink_data_parallel": 2},
        {"tensor_parallel": 8, "nvlink_data_parallel": 2},
    ]
    every = evaluate_cell(whole)
    for cell in cells:
        same = every.filter(*(pl.col(name) == value for name, value in cell.fixed.items()))
        assert evaluate_cell(cell).equals(same)
        assert cell.problem.id == whole.problem.id
    assert len({whole.id, *(cell.id for cell in cells)}) == 3


def test_a_space_is_the_product_of_its_values_with_gpu_counts_fastest(catalog: Catalog) -> None:
    cells = cells_of(
        {
            "model": ["gpt3", "gpt3_1T"],
            "accelerator": ["A100", "B200"],
            "num_gpus": [64, 128],
            "hbm_bytes_per_second": [1e12, 2e12],
        },
        catalog,
    )
    named = [
        tuple(cell.values[n] for n in ("model", "accelerator", "hbm_bytes_per_second", "num_gpus"))
        for cell in cells
    ]
    assert named == list(
        itertools.product(["gpt3", "gpt3_1T"], ["A100", "B200"], [1e12, 2e12], [64, 128])
    )
    assert len({cell.problem.id for cell in cells}) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tensor_parallel": [7]},
            "`tensor_parallel` 7 does not divide `num_heads` 96\nhint: use 1",
        ),
        ({"num_gpus": [64, 0]}, "`num_gpus` 0 must be at least 1"),
        ({"nvlink_size": [0]}, "`nvlink_size` 0 must be at least 1"),
        ({"nvlink_size": [72]}, "`num_gpus` 96 leaves no layout in the whole space"),
        ({"num_gpus": [97]}, "`num_gpus` 97 leaves no layout in the whole space"),
        (
            {"model": ["gpt9"]},
            '`model` "gpt9" is not in the `model` table\nhint: known: gpt3, ',
        ),
        ({"num_heads": [7]}, "`num_heads` 7 does not divide `hidden_size` 12288"),
        ({"hbm_bytes": [-1.0]}, "`hbm_bytes` -1.0 must be at least 1"),
        ({"strategy": ["summa"]}, '`strategy` "summa" is not known'),
        ({"virtual_pipeline": [1, 5]}, "`virtual_pipeline` 5 leaves no layout in any cell"),
        ({"nvlink_data_parallel": [5]}, "`nvlink_data_parallel` 5 leaves no layout in any cell"),
    ],
)
def test_a_faulty_space_is_refused_with_the_value_and_the_rule(
    change: dict[str, list[Any]], message: str, catalog: Catalog
) -> None:
    base: dict[str, list[Any]] = {
        "model": ["gpt3"],
        "accelerator": ["A100"],
        "num_gpus": [96],
        "nvlink_size": [8],
    }
    with pytest.raises(RefusedError) as caught:
        cells_of({**base, **change}, catalog)
    assert message in str(caught.value)


def test_a_value_that_some_cells_cannot_take_leaves_those_cells_empty(catalog: Catalog) -> None:
    base: dict[str, list[Any]] = {
        "model": ["gpt3"],
        "accelerator": ["A100"],
        "num_gpus": [4, 64],
        "nvlink_size": [4],
    }
    cells = cells_of({**base, "tensor_parallel": [8]}, catalog)
    assert [ROOFLINE.search.count(cell) > 0 for cell in cells] == [False, True]
    assert evaluate_cell(cells[0]).height == 0
