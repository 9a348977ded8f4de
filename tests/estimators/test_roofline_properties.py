"""What must hold for every configuration, whatever the figures are."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from estimators.contract import PUBLISHED, Catalog, Mends, RefusedError
from estimators.roofline.estimator import RELATION, ROOFLINE
from estimators.roofline.strategies import ATTENTIONS
from tests.estimators.evaluation import ALL_MENDS, PARTS, cells_of, evaluate_cell, evaluate_rows
from tests.examples import examples

PROBLEM = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["gpt3", "gpt3_1T", "vit_era5", "megatron_76B"]),
        "accelerator": st.sampled_from(["A100", "H200", "B200", "A100 SXM 80GB"]),
        "num_gpus": st.sampled_from([32, 64, 240, 512]),
        "nvlink_size": st.sampled_from([4, 8]),
        "global_batch_size": st.sampled_from([240, 1024]),
        "virtual_pipeline": st.sampled_from([1, 2]),
        "activation_recompute": st.sampled_from(["none", "full"]),
        "strategy": st.sampled_from(["tensor_1d", "summa_2d", "context_2d"]),
    }
)
MENDS = st.sampled_from([PUBLISHED, ALL_MENDS, *(frozenset({m}) for m in ROOFLINE.mends)])
FASTER = (
    "matrix_flops_per_second",
    "hbm_bytes_per_second",
    "nvlink_bytes_per_second",
    "network_bytes_per_second",
    "nics_per_gpu",
)


def _cell(problem: dict[str, Any], catalog: Catalog, mends: Mends = PUBLISHED) -> pl.DataFrame:
    try:
        [cell] = cells_of({name: [value] for name, value in problem.items()}, catalog, mends)
    except RefusedError:  # no layout at all
        reject()
    return evaluate_cell(cell).with_columns(*(pl.lit(v).alias(n) for n, v in problem.items()))


@examples(40)
@given(problem=PROBLEM, mends=MENDS)
def test_parts_add_up_and_nothing_is_negative(
    problem: dict[str, Any], mends: Mends, catalog: Catalog
) -> None:
    found = _cell(problem, catalog, mends)
    total = found.select(pl.sum_horizontal(PARTS)).to_series()
    assert ((total / found["step_seconds"] - 1).abs() < 1e-12).all()
    for name in set(RELATION.outputs) - {"fits_memory"}:
        assert np.isfinite(found[name].to_numpy()).all(), name
        assert (found[name] >= 0).all(), name
    memory = found.select(
        pl.sum_horizontal(
            "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"
        )
    ).to_series()
    assert ((memory / found["memory_bytes"] - 1).abs() < 1e-12).all()
    capacity = catalog.find("system", problem["accelerator"])["hbm_bytes"]
    assert found["fits_memory"].equals(found["memory_bytes"] <= capacity, null_equal=True)


@examples(25)
@given(problem=PROBLEM, mends=MENDS, name=st.sampled_from(FASTER), factor=st.floats(1.0, 100.0))
def test_a_faster_system_never_makes_a_layout_slower(
    problem: dict[str, Any], mends: Mends, name: str, factor: float, catalog: Catalog
) -> None:
    before = _cell(problem, catalog, mends)
    rate = float(catalog.find("system", problem["accelerator"])[name] or 0)
    changes: dict[str, Any] = {name: rate * factor}
    if name == "matrix_flops_per_second":
        # Vector work of fused attention is billed at the ratio of both rates.
        vector = float(
            catalog.find("system", problem["accelerator"])["vector_flops_per_second"] or 0
        )
        changes["vector_flops_per_second"] = vector * factor
    after = evaluate_rows(before, catalog, mends, **changes)
    assert (after["step_seconds"] <= before["step_seconds"] * (1 + 1e-12)).all()


@examples(25)
@given(problem=PROBLEM, mends=MENDS)
def test_more_shards_at_the_same_microbatch_never_hold_more(
    problem: dict[str, Any], mends: Mends, catalog: Catalog
) -> None:
    one_axis = {"virtual_pipeline": 1, "strategy": "tensor_1d"}
    found = _cell({**problem, **one_axis}, catalog, mends).unique(
        ["tensor_parallel", "pipeline_parallel", "data_parallel", "microbatch_size"]
    )
    keys = ["data_parallel", "microbatch_size"]
    for degree, other in (
        ("tensor_parallel", "pipeline_parallel"),
        ("pipeline_parallel", "tensor_parallel"),
    ):
        # Data parallelism shards the optimizer: it has to be the same on both sides, so the
        # number of GPUs is not.
        rows = found.drop(degree).with_columns(found[degree])
        more = rows.filter(pl.col(degree) > 1)
        fewer = _with_degree(more, degree, 1)
        before = evaluate_rows(fewer, catalog, mends)
        for name in ("weights_bytes", "optimizer_bytes"):
            assert (more[name] <= before[name] * (1 + 1e-12)).all(), (name, degree, other, keys)
        if degree == "tensor_parallel":
            assert (more["memory_bytes"] <= before["memory_bytes"] * (1 + 1e-12)).all()


def _with_degree(rows: pl.DataFrame, degree: str, value: int) -> pl.DataFrame:
    """Return rows with another degree, on correspondingly fewer GPUs and placed alone."""
    return rows.with_columns(
        (pl.col("num_gpus") * value // pl.col(degree)).alias("num_gpus"),
        pl.lit(value).alias(degree),
        pl.lit(1).alias(f"nvlink_{degree}"),
    )


def test_full_recomputation_adds_one_forward_pass_and_keeps_only_inputs(catalog: Catalog) -> None:
    problem = {
        "model": "gpt3",
        "accelerator": "A100",
        "num_gpus": 8,
        "nvlink_size": 8,
        "global_batch_size": 64,
        "tensor_parallel": 4,
        "pipeline_parallel": 1,
        "data_parallel": 2,
        "microbatch_size": 1,
    }
    rows = pl.DataFrame([{**problem, "activation_recompute": r} for r in ("none", "full")])
    none, full = evaluate_rows(rows, catalog).iter_rows(named=True)
    # Every collective of 1D has a twin in the other direction, so one pass more is 3/2.
    assert full["tensor_comm_seconds"] == pytest.approx(1.5 * none["tensor_comm_seconds"])
    # Matrix work backward is twice that forward, but for lower-order terms.
    assert full["flops_per_gpu"] == pytest.approx(4 / 3 * none["flops_per_gpu"], rel=2e-3)
    # 96 layers of 2048/4 tokens of 12288 elements of 2 bytes, one microbatch in flight.
    assert full["activations_bytes"] == 96 * 512 * 12_288 * 2
    assert full["weights_bytes"] == none["weights_bytes"]


def test_interleaving_divides_the_bubble_and_multiplies_the_transfers(catalog: Catalog) -> None:
    problem = {
        "model": "gpt3",
        "accelerator": "A100",
        "num_gpus": 64,
        "nvlink_size": 8,
        "global_batch_size": 64,
        "tensor_parallel": 8,
        "pipeline_parallel": 8,
        "microbatch_size": 1,
    }
    rows = pl.DataFrame([{**problem, "virtual_pipeline": v} for v in (1, 3)])
    plain, chunked = evaluate_rows(rows, catalog).iter_rows(named=True)
    assert chunked["pipeline_comm_seconds"] == pytest.approx(3 * plain["pipeline_comm_seconds"])
    busy = {
        name: row["step_seconds"] - row["bubble_seconds"] - row["data_comm_seconds"]
        for name, row in (("plain", plain), ("chunked", chunked))
    }
    assert plain["bubble_seconds"] == pytest.approx(7 / 64 * busy["plain"])
    assert chunked["bubble_seconds"] == pytest.approx(7 / 64 / 3 * busy["chunked"])
    for name in ("compute_seconds", "memory_seconds", "memory_bytes", "flops_per_gpu"):
        assert chunked[name] == plain[name]


TIMES = {"step_seconds", "bubble_seconds"}
CHANGED_BY: dict[str, set[str]] = {
    "R1": {*RELATION.outputs} - {"tensor_comm_seconds", "fits_memory"},
    "R2": {"pipeline_comm_seconds", *TIMES},
    "R3": {"tensor_comm_seconds", "data_comm_seconds", *TIMES},
    "R4": set(),
    "R5": {
        *("compute_seconds", "memory_seconds", "data_comm_seconds", "flops_per_gpu", *TIMES),
        *("weights_bytes", "gradients_bytes", "optimizer_bytes", "memory_bytes"),
    },
    "R6": {"flops_per_gpu"},
    "R7": {"compute_seconds", "memory_seconds", "tensor_comm_seconds", "data_comm_seconds", *TIMES},
    "R8": {"tensor_comm_seconds", "data_comm_seconds", *TIMES},
    "R9": set(),
    "R10": {"compute_seconds", "memory_seconds", "flops_per_gpu"},
    "R11": set(),
}
"""Mend -> the results that it may change."""

KINDS = st.sampled_from(
    [(strategy, attention) for strategy, known in ATTENTIONS.items() for attention in known]
)


@pytest.mark.parametrize("mend", ROOFLINE.mends)
@examples(10)
@given(problem=PROBLEM, kind=KINDS)
def test_a_mend_changes_only_what_it_says(
    mend: str, problem: dict[str, Any], kind: tuple[str, str], catalog: Catalog
) -> None:
    kinds = {"strategy": kind[0], "attention": kind[1]}
    rows = _cell({**problem, **kinds}, catalog, ALL_MENDS)  # layouts that every variant admits
    rows = rows.sample(min(rows.height, 500), seed=1)
    before = evaluate_rows(rows, catalog)
    after = evaluate_rows(rows, catalog, frozenset({mend}))
    changed = {name for name in RELATION.outputs if not after[name].equals(before[name])}
    assert changed - {"fits_memory"} <= CHANGED_BY[mend]


@pytest.mark.parametrize("mend", [mend for mend in CHANGED_BY if CHANGED_BY[mend]])
def test_each_mend_that_changes_figures_changes_all_it_may(mend: str, catalog: Catalog) -> None:
    problem = {"model": "gpt3", "accelerator": "A100", "num_gpus": 64, "nvlink_size": 8}
    kinds = {
        "R2": [("tensor_1d", "flash")],
        "R5": [("tensor_1d", "flash"), ("context_2d", "flash")],
        "R6": [("tensor_1d", "flash")],
        "R10": [("tensor_1d", "unfused_recompute")],
    }
    changed: set[str] = set()
    for strategy, attention in kinds.get(mend, [("summa_2d", "flash")]):
        kind = {"strategy": strategy, "attention": attention}
        rows = _cell({**problem, **kind, "global_batch_size": 64}, catalog)
        before = evaluate_rows(rows, catalog)
        after = evaluate_rows(rows, catalog, frozenset({mend}))
        changed |= {name for name in RELATION.outputs if not after[name].equals(before[name])}
    assert changed - {"fits_memory"} == CHANGED_BY[mend]


def test_slow_links_between_stages_cost_what_the_mend_says(catalog: Catalog) -> None:
    # 8 stages, 2 in a domain: 7 links, 3 of them between domains; one microbatch of one.
    row = {
        "model": "gpt3",
        "accelerator": "A100",
        "num_gpus": 8,
        "nvlink_size": 2,
        "global_batch_size": 1,
        "pipeline_parallel": 8,
        "nvlink_pipeline_parallel": 2,
    }
    volume = 2048 * 12_288 * 2
    fast, slow = 2.5e-6 + volume / 210e9, 5e-6 + volume / 17.5e9
    published = evaluate_rows(pl.DataFrame([row]), catalog)["pipeline_comm_seconds"][0]
    mended = evaluate_rows(pl.DataFrame([row]), catalog, frozenset({"R2"}))
    assert published == pytest.approx(2 * 4 / 7 * fast)
    assert mended["pipeline_comm_seconds"][0] == pytest.approx(2 * (4 / 7 * fast + 3 / 7 * slow))


def test_flops_counted_once_do_not_depend_on_the_system(catalog: Catalog) -> None:
    problem = {"model": "vit_era5", "num_gpus": 64, "nvlink_size": 8, "global_batch_size": 64}
    rows = [_cell({**problem, "accelerator": name}, catalog) for name in ("A100", "H200")]
    counted = [evaluate_rows(r, catalog, frozenset({"R6"}))["flops_per_gpu"] for r in rows]
    billed = [evaluate_rows(r, catalog)["flops_per_gpu"] for r in rows]
    assert counted[0].equals(counted[1])
    assert not billed[0].equals(billed[1])
    assert (counted[0] < billed[0]).all()


def test_a_context_of_one_is_one_dimensional(catalog: Catalog) -> None:
    """With R5 both put every bias on the same rows, and are the same in every result."""
    problem = {"model": "gpt3_1T", "accelerator": "H200", "num_gpus": 256, "nvlink_size": 8}
    mends = frozenset({"R5"})
    whole = _cell({**problem, "strategy": "context_2d"}, catalog, mends)
    rows = whole.filter(pl.col("context_parallel") == 1)
    assert rows.height > 100
    one = evaluate_rows(rows.with_columns(strategy=pl.lit("tensor_1d")), catalog, mends)
    assert one.equals(rows.select(one.columns))
    # As published, the biases of projection and second product are on other rows.
    published = evaluate_rows(rows, catalog)
    other = evaluate_rows(rows.with_columns(strategy=pl.lit("tensor_1d")), catalog)
    changed = {name for name in one.columns if not published[name].equals(other[name])}
    assert changed
    assert not changed & {"tensor_comm_seconds", "pipeline_comm_seconds", "activations_bytes"}


def test_summa_on_one_gpu_does_what_one_dimension_does(catalog: Catalog) -> None:
    """Without a split and in one panel, only the forward products differ: 2K - 1 or 2K a dot."""
    row = {"model": "gpt3", "accelerator": "A100", "global_batch_size": 1}
    summa = {**row, "strategy": "summa_2d", "summa_panels": 1}
    mends = frozenset({"R1", "R6"})
    one, two = (
        evaluate_rows(pl.DataFrame([each]), catalog, mends).row(0, named=True)
        for each in (row, summa)
    )
    outputs = 49_152 + 12_288 + 3 * 12_288 + 12_288
    assert two["flops_per_gpu"] - one["flops_per_gpu"] == 96 * 2048 * outputs
    for name in ("weights_bytes", "activations_bytes", "tensor_comm_seconds", "memory_bytes"):
        assert two[name] == one[name], name


def test_a_panel_more_hides_more_transfers_until_they_are_all_hidden(catalog: Catalog) -> None:
    """Under R7 one panel hides nothing; with many only the first one's transfer shows."""
    row = {
        "model": "gpt3",
        "accelerator": "A100",
        "strategy": "summa_2d",
        "nvlink_size": 4,
        "global_batch_size": 1,
        "microbatch_size": 1,
        "tensor_parallel": 2,
        "tensor_parallel_2": 2,
    }
    rows = pl.DataFrame([{**row, "summa_panels": n} for n in (2, 4, 8, 16)])
    free_launch = rows.with_columns(launch_seconds=0.0, nvlink_latency_seconds=0.0)
    shown = evaluate_rows(free_launch, catalog, frozenset({"R7"}))["tensor_comm_seconds"]
    assert shown.to_list() == sorted(shown.to_list(), reverse=True)
    assert shown[0] / shown[3] > 2
