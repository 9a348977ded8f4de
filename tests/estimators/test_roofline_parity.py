"""The `published` figures agree with those of the source's own program (arXiv 2410.00273)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.contract import PUBLISHED, Catalog
from estimators.roofline.estimator import RELATION, ROOFLINE
from estimators.roofline.operations import Shard
from estimators.roofline.strategies import SECOND_AXIS, Sizes, operations_of
from tests.estimators.evaluation import cells_of, evaluate_cell, evaluate_rows, relative_error
from tests.estimators.roofline_names import OPERATIONS

GOLDENS = Path(__file__).parents[1] / "goldens"
TOLERANCE = 1e-9


def test_random_configurations_agree_in_every_column(catalog: Catalog) -> None:
    expected = pl.read_parquet(GOLDENS / "roofline_random.parquet")
    assert expected.height == 2250
    found = evaluate_rows(expected, catalog)
    for name in RELATION.outputs:
        if name == "fits_memory":
            assert found[name].equals(expected[name])
        else:
            assert relative_error(found[name], expected[name]) < TOLERANCE, name


BEST = pl.read_parquet(GOLDENS / "roofline_best.parquet")
BEST_KEY = ("strategy", "model", "accelerator", "nvlink_size", "num_gpus", "global_batch_size")


@pytest.mark.parametrize(
    "key",
    sorted(BEST.select(BEST_KEY).unique().iter_rows()),
    ids=lambda key: "-".join(map(str, key)),
)
def test_the_ten_best_layouts_come_in_the_order_of_the_source(
    key: tuple[Any, ...], catalog: Catalog
) -> None:
    expected = BEST.filter(
        *(pl.col(name) == value for name, value in zip(BEST_KEY, key, strict=True))
    ).sort("rank")
    [cell] = cells_of({name: [v] for name, v in zip(BEST_KEY, key, strict=True)}, catalog)
    found = evaluate_cell(cell).filter("fits_memory").sort("step_seconds").head(expected.height)
    assert found.select(RELATION.keys).equals(expected.select(RELATION.keys))
    for name in set(RELATION.outputs) - {"fits_memory", "gradients_bytes"}:
        assert relative_error(found[name], expected[name]) < TOLERANCE, name


@pytest.mark.long
def test_every_cell_of_the_published_space_has_as_many_candidates(catalog: Catalog) -> None:
    expected = pl.read_csv(GOLDENS / "roofline_candidate_counts.csv")
    assert expected.height == 234
    for row in expected.iter_rows(named=True):
        space = {
            name: [row[name]]
            for name in ("model", "strategy", "nvlink_size", "num_gpus", "global_batch_size")
        }
        [cell] = cells_of({**space, "accelerator": ["H200"]}, catalog)
        assert ROOFLINE.search.count(cell) == row["candidates"], row
        chunks = ROOFLINE.search.layouts(cell, 16_384)
        found = sum(len(layouts["microbatch_size"]) for layouts in chunks)
        assert found == row["candidates"], row


ATTENTION = {
    "flash": "flash",
    "noflash": "unfused",
    "noflash_recompute": "unfused_recompute",
    "summa_attention": "summa",
}


def test_each_operation_of_a_layer_agrees(catalog: Catalog) -> None:
    rows = pl.read_parquet(GOLDENS / "roofline_operations.parquet")
    layers = rows.filter(pl.col("module").is_in(["mlp", "sa"])).group_by(
        "config_id", "attention_variant", maintain_order=True
    )
    kinds = set()
    for _, layer in layers:
        first = layer.row(0, named=True)
        system: Mapping[str, Any] = catalog.find("system", first["accelerator"])
        ratio = system["matrix_flops_per_second"] / system["vector_flops_per_second"]
        values = {**first, **system, "bytes_per_element": 2}
        second = first[SECOND_AXIS.get(first["strategy"], "context_parallel")]
        shard = Shard(
            *(
                np.array([float(value)])
                for value in (
                    first["microbatch_size"],
                    first["tensor_parallel"],
                    second,
                    first["summa_panels"],
                )
            )
        )
        kind = (first["strategy"], ATTENTION[first["attention_variant"]])
        kinds.add(kind)
        operations = {
            operation.name: operation
            for operation in operations_of(*kind, Sizes.of(values), shard, PUBLISHED)
        }
        # Attentions other than the searched one are recorded without the feed-forward part.
        listed = [OPERATIONS[name] for name in layer["operation"]]
        assert listed == list(operations)[-len(listed) :]
        for row in layer.iter_rows(named=True):
            operation = operations[OPERATIONS[row["operation"]]]
            assert operation.uses_matrix_units == row["uses_tensor_cores"]
            found = {
                "weights_bytes": operation.weights_bytes,
                "activations_bytes": operation.activations_bytes,
            }
            for direction in ("forward", "backward"):
                part = getattr(operation, direction)
                # The source bills vector work in matrix kernels as matrix work.
                billed = ratio if operation.uses_matrix_units else 1.0
                found[f"{direction}_flops"] = part.matrix_flops + billed * part.vector_flops
                found[f"{direction}_hbm_bytes"] = part.hbm_bytes
                found[f"{direction}_comm_bytes"] = sum(t.volume for t in part.traffic)
            for name, value in found.items():
                wrong = (first["config_id"], row["operation"], name)
                assert value == pytest.approx(row[name], rel=TOLERANCE), wrong
    assert len(kinds) == 8
