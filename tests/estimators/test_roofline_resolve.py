"""Batches are completed from defaults and refused by named rules, row by row."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from estimators.contract import PUBLISHED, Catalog
from tests.estimators.evaluation import ALL_MENDS, evaluate_rows, resolve

GOOD: dict[str, Any] = {
    "model": "gpt3",
    "accelerator": "A100",
    "nvlink_size": 8,
    "num_gpus": 128,
    "global_batch_size": 512,
    "data_parallel": 4,
    "tensor_parallel": 8,
    "pipeline_parallel": 4,
    "microbatch_size": 2,
}


def test_missing_columns_take_the_defaults(catalog: Catalog) -> None:
    resolved, refusals = resolve(pl.DataFrame([{"model": "gpt3", "accelerator": "A100"}]), catalog)
    assert not refusals
    row = {name: column[0] for name, column in resolved.items()}
    assert row["num_layers"] == 96
    assert row["ffn_hidden_size"] == 49_152
    assert row["flops_efficiency"] == 0.8
    assert row["launch_seconds"] == 20e-6
    assert (row["strategy"], row["activation_recompute"]) == ("tensor_1d", "none")
    assert (row["num_gpus"], row["nvlink_size"], row["global_batch_size"]) == (1, 4, 4096)


def test_empty_cells_take_the_defaults_and_given_shapes_override_the_model(
    catalog: Catalog,
) -> None:
    rows = pl.DataFrame([GOOD, {**GOOD, "seq_len": 4096, "microbatch_size": None}])
    resolved, refusals = resolve(rows, catalog)
    assert not refusals
    assert resolved["seq_len"].tolist() == [2048, 4096]
    assert resolved["microbatch_size"].tolist() == [2, 1]


def test_an_alias_gives_way_to_the_name(catalog: Catalog) -> None:
    alias, names = next(iter(catalog.aliases["system"].items()))
    resolved, refusals = resolve(pl.DataFrame([{"model": "gpt3", "accelerator": alias}]), catalog)
    assert not refusals
    assert resolved["accelerator"].tolist() == [names]


def test_a_shape_needs_no_name(catalog: Catalog) -> None:
    shape = {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "seq_len": 256}
    resolved, refusals = resolve(pl.DataFrame([{**shape, "accelerator": "A100"}]), catalog)
    assert not refusals
    assert resolved["ffn_hidden_size"].tolist() == [2048]
    assert resolved["model"].tolist() == [None]


@pytest.mark.parametrize(
    ("degrees", "placement"),
    [
        ({"tensor_parallel": 8, "data_parallel": 4, "pipeline_parallel": 4}, (8, 1, 1)),
        ({"tensor_parallel": 2, "data_parallel": 16, "pipeline_parallel": 4}, (2, 4, 1)),
        ({"tensor_parallel": 2, "data_parallel": 2, "pipeline_parallel": 32}, (2, 2, 2)),
        ({"tensor_parallel": 32, "data_parallel": 4, "pipeline_parallel": 1}, (8, 1, 1)),
    ],
)
def test_domains_are_filled_in_rank_order_by_default(
    degrees: dict[str, int], placement: tuple[int, ...], catalog: Catalog
) -> None:
    resolved, refusals = resolve(pl.DataFrame([{**GOOD, **degrees}]), catalog)
    assert not refusals
    names = ("nvlink_tensor_parallel", "nvlink_data_parallel", "nvlink_pipeline_parallel")
    assert tuple(resolved[name][0] for name in names) == placement


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"model": "gpt9"}, "model", "is not in the `model` table"),
        ({"accelerator": "A1000"}, "accelerator", "is not in the `system` table"),
        ({"model": None}, "num_layers", "is missing"),
        ({"accelerator": None}, "matrix_flops_per_second", "is missing"),
        ({"num_heads": 95}, "num_heads", "does not divide `hidden_size` 12288"),
        (
            {"tensor_parallel": 5, "num_gpus": 80},
            "tensor_parallel",
            "does not divide `num_heads` 96",
        ),
        (
            {"pipeline_parallel": 5, "num_gpus": 160},
            "pipeline_parallel",
            "does not divide `num_layers` 96",
        ),
        (
            {"data_parallel": 3, "num_gpus": 96},
            "data_parallel",
            "does not divide `global_batch_size`",
        ),
        (
            {"microbatch_size": 3},
            "microbatch_size",
            "does not divide the 128 sequences of a replica",
        ),
        ({"num_gpus": 64}, "num_gpus", "is not the product of the degrees, 8 x 1 x 1 x 4 x 4"),
        (
            {"nvlink_tensor_parallel": 3},
            "nvlink_tensor_parallel",
            "does not divide `tensor_parallel`",
        ),
        (
            {"nvlink_tensor_parallel": 8, "nvlink_data_parallel": 2},
            "nvlink_size",
            "is smaller than",
        ),
        ({"virtual_pipeline": 5}, "virtual_pipeline", "does not divide the 24 layers of a stage"),
        (
            {"virtual_pipeline": 2, "pipeline_parallel": 1, "num_gpus": 32},
            "virtual_pipeline",
            "interleaves a pipeline of one stage",
        ),
        (
            {"virtual_pipeline": 2, "global_batch_size": 16, "microbatch_size": 2},
            "virtual_pipeline",
            "needs a multiple of 4 microbatches, not 2",
        ),
        ({"context_parallel": 2}, "context_parallel", "has no meaning in strategy tensor_1d"),
        ({"attention": "summa"}, "attention", "is not modelled in strategy tensor_1d"),
        (
            {"strategy": "summa_2d", "tensor_parallel_2": 5, "num_gpus": 640},
            "tensor_parallel_2",
            "does not divide `hidden_size` 12288",
        ),
        ({"strategy": "summa_2d", "summa_panels": 0}, "summa_panels", "is no number of panels"),
        ({"launch_seconds": 1e300}, "launch_seconds", "must be at most 1000000"),
        ({"strategy": "summa_2d", "summa_panels": 5}, "summa_panels", "does not divide"),
        ({"strategy": "summa_2d", "context_parallel": 2}, "context_parallel", "has no meaning"),
        (
            {"strategy": "context_2d", "context_parallel": 3, "num_gpus": 384},
            "context_parallel",
            "times `tensor_parallel` 8 does not divide the tokens of a microbatch 4096",
        ),
        ({"strategy": "3d"}, "strategy", "is not known"),
        ({"activation_recompute": "some"}, "activation_recompute", "is not known"),
        ({"microbatch_size": 0}, "microbatch_size", "must be at least 1"),
        ({"microbatch_size": -2}, "microbatch_size", "must be at least 1"),
        ({"microbatch_size": 1.5}, "microbatch_size", "must be a whole number"),
        ({"num_gpus": 2.0**40}, "num_gpus", "must be at most 2147483647"),
        ({"hbm_bytes_per_second": 0.0}, "hbm_bytes_per_second", "must be at least 1"),
        ({"nvlink_efficiency": 1.5}, "nvlink_efficiency", "must be at most 1"),
        ({"hbm_bytes": float("inf")}, "hbm_bytes", "is not a finite number"),
    ],
)
def test_a_faulty_row_is_refused_by_name_and_the_others_are_not(
    change: dict[str, Any], column: str, reason: str, catalog: Catalog
) -> None:
    rows = pl.DataFrame([GOOD, {**GOOD, **change}], infer_schema_length=None)
    _, refusals = resolve(rows, catalog)
    assert refusals
    assert {refusal.row for refusal in refusals} == {1}
    assert any(r.column == column and reason in r.reason for r in refusals), refusals


def test_lost_tokens_are_refused_only_under_the_mend(catalog: Catalog) -> None:
    # 12 does not divide 2048 tokens, but it divides the 6144 of a microbatch of three.
    row = {**GOOD, "tensor_parallel": 12, "num_gpus": 192, "global_batch_size": 384}
    rows = pl.DataFrame([{**row, "microbatch_size": 3}])
    assert not resolve(rows, catalog, PUBLISHED)[1]
    [refusal] = resolve(rows, catalog, ALL_MENDS)[1]
    assert refusal.column == "tensor_parallel"
    assert refusal.reason == "does not divide `seq_len` 2048"


def test_an_empty_batch_is_an_empty_result(catalog: Catalog) -> None:
    assert evaluate_rows(pl.DataFrame([GOOD]).head(0), catalog).height == 0


@pytest.mark.parametrize(("mends", "panels"), [(PUBLISHED, 6), (ALL_MENDS, 12)])
def test_panels_default_to_the_fewest_that_are_searched(
    mends: frozenset[str], panels: int, catalog: Catalog
) -> None:
    degrees = {"strategy": "summa_2d", "tensor_parallel": 6, "tensor_parallel_2": 4}
    rows = pl.DataFrame([{**GOOD, **degrees, "num_gpus": 384}])
    resolved, refusals = resolve(rows, catalog, mends)
    assert not refusals
    assert resolved["summa_panels"].tolist() == [panels]
