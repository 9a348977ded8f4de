"""The operations of a step: those of the source's own program, and sums that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Catalog, Mends
from estimators.roofline.breakdown import RELATION_OPERATION, operation_names, with_operations
from estimators.roofline.estimator import ROOFLINE
from estimators.roofline.strategies import ATTENTIONS, SECOND_AXIS
from tests.estimators.evaluation import (
    ALL_MENDS,
    NOTHING,
    cells_of,
    evaluate_cell,
    relative_error,
    resolve,
)
from tests.estimators.roofline_names import OPERATIONS

GOLDENS = Path(__file__).parents[1] / "goldens"
TOLERANCE = 1e-9

OURS = {
    **OPERATIONS,
    "dp_comms": "data_parallel_exchange",
    "pp_comms": "pipeline_transfer",
}
"""The source's name of each operation -> ours, in the order of a layer."""

ATTENTION = {
    "flash": "flash",
    "noflash": "unfused",
    "noflash_recompute": "unfused_recompute",
    "summa_attention": "summa",
}
PARTS = {"mlp": "feed_forward", "sa": "attention", "dp": "data", "pp": "pipeline"}
KINDS = [(strategy, kind) for strategy, known in ATTENTIONS.items() for kind in known]


def evaluate_operations(columns: dict[str, Any], mends: Mends = PUBLISHED) -> pl.DataFrame:
    """Return the results of resolved rows, each of one operation, with their keys."""
    size = len(columns["operation"])
    out: dict[str, Any] = {
        name: np.empty(size, dtype=COLUMNS[name].dtype) for name in RELATION_OPERATION.stored
    }
    ROOFLINE.estimate(RELATION_OPERATION, columns, columns, mends, out, NOTHING)
    return pl.DataFrame(out)


def break_down(
    rows: pl.DataFrame, catalog: Catalog, mends: Mends = PUBLISHED
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the operations of each configuration, numbered `place`, and their numbers."""
    resolved, refusals = resolve(rows, catalog, mends)
    assert not refusals, refusals[:3]
    resolved["place"] = np.arange(rows.height)
    columns = with_operations(resolved)
    place = columns.pop("place")
    stages = columns["pipeline_parallel"]
    microbatches = (
        columns["global_batch_size"] // columns["data_parallel"] // columns["microbatch_size"]
    )
    found = evaluate_operations(columns, mends).with_columns(
        place=place,
        layers=columns["num_layers"] // stages,
        microbatches=microbatches,
        kept=np.minimum(stages, microbatches),
    )
    return found.filter(pl.col("part").is_in(["feed_forward", "attention"])), found


def test_every_figure_of_every_operation_agrees(catalog: Catalog) -> None:
    expected = pl.read_parquet(GOLDENS / "roofline_operations.parquet").with_columns(
        operation=pl.col("operation").replace_strict(OURS),
        attention=pl.col("attention_variant").replace_strict(ATTENTION),
        part=pl.col("module").replace_strict(PARTS),
        uses_matrix_units=pl.col("uses_tensor_cores"),
    )
    assert expected.height == 2114
    assert set(expected.select("strategy", "attention").unique().rows()) == set(KINDS)
    resolved, refusals = resolve(expected, catalog)
    assert not refusals
    found = evaluate_operations({**resolved, "operation": expected["operation"].to_numpy()})
    compared = [
        *("weights_bytes", "activations_bytes", "forward_flops", "backward_flops"),
        *(
            f"{way}_{name}"
            for way in ("forward", "backward")
            for name in (
                *("hbm_bytes", "comm_bytes", "seconds", "comm_seconds"),
                *("compute_seconds", "memory_seconds"),
            )
        ),
    ]
    assert set(compared) == {n for n, kind in expected.schema.items() if kind == pl.Float64}
    for name in compared:
        assert relative_error(found[name], expected[name]) < TOLERANCE, name
    assert found["part"].equals(expected["part"])
    assert found["uses_matrix_units"].equals(expected["uses_matrix_units"])


def test_operations_come_in_the_order_of_the_source() -> None:
    expected = pl.read_parquet(GOLDENS / "roofline_operations.parquet").filter(
        pl.col("module").is_in(["mlp", "sa"])
    )
    for key, layer in expected.group_by("strategy", "attention_variant", "config_id"):
        names = [OURS[name] for name in layer["operation"]]
        every = operation_names(str(key[0]), ATTENTION[str(key[1])])[:-2]
        # Attentions other than the searched one are recorded without the feed-forward part.
        assert names == list(every[-len(names) :])


@pytest.mark.parametrize(
    ("mends", "recompute"),
    [
        pytest.param(PUBLISHED, "none", id="published-none"),
        pytest.param(ALL_MENDS, "full", id="corrected-full"),
        pytest.param(PUBLISHED, "full", id="published-full", marks=pytest.mark.long),
        pytest.param(ALL_MENDS, "none", id="corrected-none", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_operations_add_up_to_the_configuration(
    kind: tuple[str, str], mends: Mends, recompute: str, catalog: Catalog
) -> None:
    choices = {"strategy": kind[0], "attention": kind[1], "activation_recompute": recompute}
    problem = {"model": "gpt3", "accelerator": "H200", "nvlink_size": 8, "num_gpus": 64}
    named: dict[str, Any] = {**problem, **choices, "global_batch_size": 256}
    [cell] = cells_of({name: [value] for name, value in named.items()}, catalog, mends)
    rows = evaluate_cell(cell).sample(60, seed=1)
    rows = rows.with_columns(pl.lit(value).alias(name) for name, value in named.items())
    layer, every = break_down(rows, catalog, mends)

    passes = pl.col("layers") * pl.col("microbatches")
    sums = layer.group_by("place", maintain_order=True).agg(
        *(
            ((pl.col(f"forward_{name}") + pl.col(f"backward_{name}")) * passes).sum().alias(ours)
            for name, ours in (
                ("compute_seconds", "compute_seconds"),
                ("memory_seconds", "memory_seconds"),
                ("comm_seconds", "tensor_comm_seconds"),
                ("flops", "flops_per_gpu"),
            )
        ),
        (pl.col("weights_bytes") * pl.col("layers")).sum(),
        (pl.col("activations_bytes") * pl.col("layers") * pl.col("kept")).sum(),
    )
    for name in sums.columns[1:]:
        assert relative_error(sums[name], rows[name]) < 1e-12, name

    seconds = pl.col("forward_seconds") + pl.col("backward_seconds")
    transfers = every.filter(pl.col("part") == "data").select(seconds).to_series()
    assert relative_error(transfers, rows["data_comm_seconds"]) < 1e-12
    transfers = every.filter(pl.col("part") == "pipeline").select(seconds).to_series()
    assert relative_error(transfers, rows["pipeline_comm_seconds"]) < 1e-12

    in_step = pl.when(pl.col("part").is_in(["data", "pipeline"])).then(1).otherwise(passes)
    step = every.group_by("place", maintain_order=True).agg((seconds * in_step).sum())
    whole = rows["step_seconds"] - rows["bubble_seconds"]
    assert relative_error(step["forward_seconds"], whole) < 1e-12
    assert (
        every["step_seconds"].gather_every(len(operation_names(*kind))).equals(rows["step_seconds"])
    )


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_parts_of_an_operation_add_up_to_it(kind: tuple[str, str], catalog: Catalog) -> None:
    row = {
        **dict(zip(("strategy", "attention"), kind, strict=True)),
        "model": "vit_era5",
        "accelerator": "B200",
        "nvlink_size": 8,
        "tensor_parallel": 4,
        SECOND_AXIS.get(kind[0], "context_parallel"): 1 if kind[0] == "tensor_1d" else 2,
        "pipeline_parallel": 2,
        "num_gpus": 64,
        "global_batch_size": 64,
    }
    _, every = break_down(pl.DataFrame([row]), catalog, ALL_MENDS)
    for way in ("forward", "backward"):
        parts = pl.sum_horizontal(
            f"{way}_compute_seconds", f"{way}_memory_seconds", f"{way}_comm_seconds"
        )
        assert relative_error(every.select(parts).to_series(), every[f"{way}_seconds"]) < 1e-12


def test_collectives_and_groups_are_named_only_where_bytes_move(catalog: Catalog) -> None:
    kinds = (
        {"strategy": "tensor_1d", "tensor_parallel": 4, "pipeline_parallel": 16},
        {"strategy": "tensor_1d", "nvlink_data_parallel": 4},
        {"strategy": "summa_2d", "tensor_parallel": 2, "tensor_parallel_2": 4},
        {"strategy": "context_2d", "context_parallel": 8, "nvlink_context_parallel": 2},
    )
    common = {"model": "gpt3", "accelerator": "A100", "num_gpus": 64}
    rows = pl.DataFrame([{**common, **kind} for kind in kinds])
    _, every = break_down(rows, catalog)

    def shown(place: int, operation: str) -> tuple[Any, ...]:
        return (
            every.filter(pl.col("place") == place, pl.col("operation") == operation)
            .select(
                *("forward_collectives", "backward_collectives"),
                *("comm_group_size", "nvlink_comm_group"),
                *("comm_group_size_2", "nvlink_comm_group_2"),
            )
            .row(0)
        )

    assert shown(0, "fc1") == ("", "reduce_scatter", 4, 4, 1, 1)
    assert shown(0, "fc2") == ("reduce_scatter", "", 4, 4, 1, 1)
    assert shown(0, "layer_norm_1") == ("all_gather", "reduce_scatter", 4, 4, 1, 1)
    assert shown(0, "attention") == ("", "", 1, 1, 1, 1)
    assert shown(0, "data_parallel_exchange") == ("", "", 1, 1, 1, 1)
    assert shown(0, "pipeline_transfer") == ("send", "send", 16, 1, 1, 1)
    assert shown(1, "fc1") == ("", "", 1, 1, 1, 1)
    assert shown(1, "data_parallel_exchange") == ("all_gather", "reduce_scatter", 64, 4, 1, 1)
    assert shown(1, "pipeline_transfer") == ("", "", 1, 1, 1, 1)
    assert shown(2, "fc1") == ("broadcast", "broadcast+reduce", 2, 2, 4, 2)
    assert shown(2, "layer_norm_1") == ("all_reduce", "all_reduce", 2, 2, 1, 1)
    assert shown(2, "attention") == ("all_gather", "all_gather+reduce_scatter", 1, 1, 4, 2)
    # Context ranks hold the same weights as replicas: 8 replicas of 8 ranks.
    assert shown(3, "data_parallel_exchange") == ("all_gather", "reduce_scatter", 64, 4, 1, 1)
    assert shown(3, "attention") == ("all_gather", "all_gather+reduce_scatter", 1, 1, 8, 2)


def test_full_recomputation_is_part_of_the_backward_pass(catalog: Catalog) -> None:
    common = {"model": "gpt3", "accelerator": "A100", "num_gpus": 8, "tensor_parallel": 4}
    rows = pl.DataFrame([{**common, "activation_recompute": r} for r in ("none", "full")])
    layer, _ = break_down(rows, catalog)
    none, full = (layer.filter(pl.col("place") == place) for place in (0, 1))
    for name in ("flops", "hbm_bytes", "comm_bytes", "seconds", "comm_seconds"):
        assert full[f"forward_{name}"].equals(none[f"forward_{name}"])
        twice = none[f"forward_{name}"] + none[f"backward_{name}"]
        assert relative_error(full[f"backward_{name}"], twice) < 1e-12
    fc2 = full.filter(pl.col("operation") == "fc2")
    assert fc2["backward_collectives"].to_list() == ["reduce_scatter"]
    # Kept is only what comes into the layer: 2048/4 tokens of 12288 elements of two bytes.
    kept = full.filter(pl.col("activations_bytes") > 0)
    assert kept["operation"].to_list() == ["layer_norm_1"]
    assert kept["activations_bytes"].to_list() == [512 * 12_288 * 2]


def test_recomputed_attention_shows_in_the_parts_when_mended(catalog: Catalog) -> None:
    row = {"model": "gpt3", "accelerator": "A100", "attention": "unfused_recompute"}
    rows = pl.DataFrame([{**row, "num_gpus": 8}])
    published, _ = break_down(rows, catalog)
    mended, _ = break_down(rows, catalog, frozenset({"R10"}))
    again = published["operation"].is_in(["logits", "softmax", "attention_dropout"])
    for name in ("flops", "hbm_bytes", "compute_seconds", "memory_seconds"):
        grown = mended[f"backward_{name}"] - published[f"backward_{name}"]
        expected = published[f"forward_{name}"] * again
        assert np.allclose(grown, expected, rtol=1e-9, atol=0), name
    assert mended["backward_seconds"].equals(published["backward_seconds"])


def test_the_dictionary_knows_exactly_the_operations_there_are() -> None:
    every = {name for kind in KINDS for name in operation_names(*kind)}
    assert set(COLUMNS["operation"].choices) == every


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({}, "`operation` is missing"),
        ({"operation": "fc3"}, '`operation` "fc3" is not known'),
        ({"operation": "softmax"}, "is no operation with strategy tensor_1d and attention flash"),
    ],
)
def test_an_operation_that_is_not_there_is_refused(
    row: dict[str, str], says: str, catalog: Catalog
) -> None:
    columns = {
        name: np.array([value], dtype=object if isinstance(value, str) else float)
        for name, value in {"model": "gpt3", "accelerator": "A100", "num_gpus": 8, **row}.items()
    }
    _, refusals = ROOFLINE.resolve(RELATION_OPERATION, columns, catalog, PUBLISHED)
    [refusal] = refusals
    assert says in str(refusal)


def test_a_batch_of_many_kinds_gives_each_row_what_it_gives_alone(catalog: Catalog) -> None:
    rows = pl.DataFrame(
        [
            {"model": "gpt3", "accelerator": "A100", "num_gpus": 64, "strategy": s, "attention": a}
            for s, a in KINDS
        ]
    )
    together, _ = break_down(rows, catalog, ALL_MENDS)
    for place in range(0, rows.height, 3):
        alone, _ = break_down(rows[place], catalog, ALL_MENDS)
        mine = together.filter(pl.col("place") == place)
        assert mine.drop("place").equals(alone.drop("place"))
