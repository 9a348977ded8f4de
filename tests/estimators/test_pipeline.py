"""Pipeline: the figures of both versions of the source, its refusals, and every mend."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import PUBLISHED, Catalog, Mends, RefusedError
from estimators.pipeline.estimator import PIPELINE, RELATION
from tests.estimators.parity import evaluated, read_golden, read_refused, resolved, worst_error
from tests.examples import examples

ALL_MENDS: Mends = frozenset(PIPELINE.mends)
README = {
    "accelerator": "A100_40GB",
    "num_layers": 120,
    "hidden_size": 12288,
    "global_batch_size": 30720,
    "microbatch_size": 48,
    "num_experts": 16,
    "experts_per_token": 2,
    "pipeline_parallel": 15,
    "virtual_pipeline": 8,
    "tensor_parallel": 8,
    "data_parallel": 12,
}


def run(catalog: Catalog, mends: Mends = PUBLISHED, **changes: Any) -> dict[str, Any]:
    """Return the figures of the README's run with `changes`."""
    values = {n: v for n, v in {**README, **changes}.items() if v is not None}
    frame = pl.DataFrame([values])
    return evaluated(PIPELINE, RELATION, frame, catalog, mends).row(0, named=True)


def refusals(catalog: Catalog, mends: Mends = PUBLISHED, **changes: Any) -> list[str]:
    values = {n: v for n, v in {**README, **changes}.items() if v is not None}
    found = resolved(PIPELINE, RELATION, pl.DataFrame([values]), catalog, mends)[1]
    return [str(refusal) for refusal in found]


def test_every_figure_of_every_golden_row_of_both_versions_is_reproduced(catalog: Catalog) -> None:
    golden = read_golden("pipeline")
    found = evaluated(PIPELINE, RELATION, golden, catalog)
    assert golden.height == 482
    assert max(worst_error(found, golden, RELATION.outputs).values()) < 1e-12


def test_the_figures_printed_in_the_readme_are_those_of_its_version(catalog: Catalog) -> None:
    found = run(catalog, source_version="readme")
    assert f"{found['bubble_seconds']:.4f}" == "0.0273"
    assert f"{found['steady_seconds']:.4f}" == "9.5150"
    assert f"{found['gradient_reduction_seconds']:.4f}" == "0.0050"
    assert f"{found['step_seconds']:.4f}" == "9.5473"
    assert f"{found['utilization']:.4f}" == "0.9966"
    assert f"{found['training_seconds'] / 86400:.1f}" == "101.8"
    assert found["step_seconds"] == pytest.approx(9.54730303172923, rel=1e-12)


def test_the_present_program_gives_other_figures_for_the_same_command(catalog: Catalog) -> None:
    found = run(catalog)
    assert found["step_seconds"] == pytest.approx(15.907947705895387, rel=1e-12)
    assert found["utilization"] == pytest.approx(0.5981289759716937, rel=1e-12)
    assert found["training_seconds"] / 86400 == pytest.approx(169.6847755295508, rel=1e-12)


@pytest.mark.parametrize(
    "case", read_refused("pipeline"), ids=lambda case: f"{case['source_version']} {case['case']}"
)
def test_what_the_source_refuses_is_refused_with_its_values(
    catalog: Catalog, case: dict[str, Any]
) -> None:
    frame = pl.DataFrame([{**case["arguments"], "source_version": case["source_version"]}])
    [first, *_] = resolved(PIPELINE, RELATION, frame, catalog)[1]
    assert str(first.value) in str(first)


def test_the_readmes_version_has_its_own_devices_and_no_override(catalog: Catalog) -> None:
    readme: dict[str, Any] = {"source_version": "readme"}
    pod = run(catalog, **readme, accelerator="H100_x64_pod", data_parallel=12)
    now = run(catalog, accelerator="H100_x64_pod", data_parallel=12)
    # 12.5 GB/s then, 1 GB/s now
    ratio = now["gradient_reduction_seconds"] / pod["gradient_reduction_seconds"]
    assert ratio == pytest.approx(12.5, rel=1e-12)
    [error] = refusals(catalog, **readme, accelerator="RTX4090")
    assert '"RTX4090" is not in the README\'s version' in error
    [error, *_] = refusals(catalog, **readme, accelerator=None)
    assert error.startswith("`accelerator` is missing")
    for name, value in {"network_bytes_per_second": 1e9, "base_utilization": 0.3}.items():
        given: dict[str, Any] = {name: value}
        [error] = refusals(catalog, **readme, **given)
        assert error.startswith(f"`{name}` {value}")
        assert "cannot be given in the README's version" in error
    own: dict[str, Any] = {"network_bytes_per_second": 600e9, "base_utilization": 1.0}
    assert run(catalog, **readme, **own) == run(catalog, **readme)


def test_mends_leave_the_readmes_version_alone(catalog: Catalog) -> None:
    readme: dict[str, Any] = {"source_version": "readme", "precision_bits": 16}
    assert run(catalog, ALL_MENDS, **readme) == run(catalog, **readme)


SLOW_MEMORY: dict[str, Any] = {
    # one product of 7680 x 12288 by 1024 tokens, memory-bound
    "accelerator": None,
    "flops_8bit_per_second": 1e18,
    "memory_bytes_per_second": 1e9,
    "network_bytes_per_second": 1e15,
    "base_utilization": 0.5,
}


@pytest.mark.parametrize(("bits", "factor"), [(4, 0.5), (8, 1), (16, 2), (32, 4)])
def test_p1_counts_bytes_where_elements_were_counted(
    catalog: Catalog, bits: int, factor: float
) -> None:
    elements = 7680 * 12288 + 12288 * 1024 + 7680 * 1024
    published = run(catalog, **SLOW_MEMORY, precision_bits=bits)["matmul_seconds"]
    mended = run(catalog, frozenset({"P1"}), **SLOW_MEMORY, precision_bits=bits)["matmul_seconds"]
    assert published == pytest.approx(elements / 0.5e9, rel=1e-14)
    assert mended == pytest.approx(factor * elements / 0.5e9, rel=1e-14)


def test_p2_counts_both_sides_of_a_hop_in_the_bubble(catalog: Catalog) -> None:
    # hop: 48 x 2048 tokens of 12288 over 12 x 8 x 16 devices, a byte each, sent and received
    hop = 2 * 48 * 2048 * 12288 / (12 * 8 * 16) / 600e9
    gained = run(catalog, frozenset({"P2"}))["bubble_seconds"] - run(catalog)["bubble_seconds"]
    assert gained == pytest.approx(14 * hop, rel=1e-9)


def test_p2_lets_an_expert_stay_where_it_is_in_the_steady_phase_too(catalog: Catalog) -> None:
    alone: dict[str, Any] = {
        "experts_per_token": 1,
        "tensor_parallel": 1,
        "num_experts": 4,
        "virtual_pipeline": 2,
    }
    # 120 layers in 15 stages of 2 chunks: 4 layers a chunk, of which the last always crosses
    published = run(catalog, **alone)["steady_network_seconds"]
    mended = run(catalog, frozenset({"P2"}), **alone)["steady_network_seconds"]
    assert mended / published == pytest.approx((1 + 3 * 3 / 4) / 4, rel=1e-12)


def test_p3_takes_twenty_tokens_for_each_active_parameter(catalog: Catalog) -> None:
    parameters = 16 * 2 * 120 * 12288 * 61440
    batch = 30720 * 2048
    assert run(catalog)["tokens"] == 20 * parameters // batch * batch
    mended = run(catalog, frozenset({"P3"}))["tokens"]
    assert mended == 20 * parameters // 8 // batch * batch


def test_p4_refuses_a_data_set_below_one_batch(catalog: Catalog) -> None:
    few: dict[str, Any] = {"dataset_tokens": 30720 * 2048 - 1.0}
    assert run(catalog, **few)["training_seconds"] == 0
    [error] = refusals(catalog, frozenset({"P4"}), **few)
    assert "is less than one batch" in error
    one = run(catalog, frozenset({"P4"}), dataset_tokens=30720 * 2048.0)
    assert one["num_steps"] == 1


layouts = st.fixed_dictionaries(
    {
        "pipeline_parallel": st.sampled_from([3, 15, 30]),
        "virtual_pipeline": st.sampled_from([1, 2, 4]),
        "data_parallel": st.sampled_from([1, 2, 12]),
        "tensor_parallel": st.sampled_from([1, 4, 8]),
        "tensor_parallel_external": st.sampled_from([1, 2]),
        "experts_per_token": st.sampled_from([1, 2, 4]),
        "precision_bits": st.sampled_from([4, 8, 16]),
    }
)
variants = st.sampled_from([PUBLISHED, ALL_MENDS, frozenset({"P2"})])


@given(layouts, variants)
@examples(60)
def test_the_parts_of_a_step_add_up(
    catalog: Catalog, changes: dict[str, Any], mends: Mends
) -> None:
    found = run(catalog, mends, **changes)
    parts = ("bubble_seconds", "steady_seconds", "gradient_reduction_seconds")
    assert found["step_seconds"] == pytest.approx(sum(found[p] for p in parts), rel=1e-14)
    larger = max(found["steady_compute_seconds"], found["steady_network_seconds"])
    assert found["steady_seconds"] == larger
    assert 0 < found["utilization"] <= 0.6 + 1e-12


@given(layouts, variants)
@examples(40)
def test_a_step_is_never_slower_on_a_faster_device(
    catalog: Catalog, changes: dict[str, Any], mends: Mends
) -> None:
    device = {
        "accelerator": None,
        "flops_8bit_per_second": 1e15,
        "memory_bytes_per_second": 1e12,
        "network_bytes_per_second": 1e11,
    }
    step = run(catalog, mends, **changes, **device)["step_seconds"]
    for name in list(device)[1:]:
        faster = {**device, name: 2 * float(device[name] or 0)}
        assert run(catalog, mends, **changes, **faster)["step_seconds"] <= step * (1 + 1e-14)


PROBLEMS = st.fixed_dictionaries(
    {
        "num_layers": st.sampled_from([4, 6, 12]),
        "hidden_size": st.sampled_from([8, 12, 30]),
        "internal_ratio": st.sampled_from([3, 4, 5]),
        "num_experts": st.sampled_from([1, 2, 4]),
        "experts_per_token": st.sampled_from([1, 2]),
        "global_batch_size": st.sampled_from([4, 6, 12]),
        "seq_len": st.sampled_from([4, 6]),
        "num_gpus": st.sampled_from([1, 4, 8, 12, 24, 48]),
    }
)


def valid(v: dict[str, Any]) -> set[tuple[int, ...]]:
    """Return the layouts that the source's assertions leave, by a plain loop."""
    found: set[tuple[int, ...]] = set()
    experts, routed = v["num_experts"], v["experts_per_token"]
    if experts % routed or v["num_gpus"] % experts:
        return found
    ranks, batch, length = v["num_gpus"] // experts, v["global_batch_size"], v["seq_len"]
    every = range(1, ranks + 1)
    for stages, data, inner in itertools.product(every, repeat=3):
        if ranks % (stages * data * inner):
            continue
        outer = ranks // (stages * data * inner)
        for chunks, micro in itertools.product(range(1, v["num_layers"] + 1), range(1, batch + 1)):
            if (
                batch % micro == 0
                and micro * length * routed % (data * experts) == 0
                and v["num_layers"] % (stages * chunks) == 0
                and (stages > 1 or chunks == 1)
                and micro * length % data == 0
                and v["internal_ratio"] * v["hidden_size"] % inner == 0
                and v["hidden_size"] % outer == 0
            ):
                found.add((stages, data, inner, outer, chunks, micro))
    return found


@given(PROBLEMS)
@examples(60)
def test_the_search_finds_what_a_plain_loop_over_the_rules_finds(
    catalog: Catalog, problem: dict[str, Any]
) -> None:
    expected = valid(problem)
    space = {name: (value,) for name, value in {**problem, "accelerator": "H100"}.items()}
    try:
        PIPELINE.search.check(space, catalog, PUBLISHED)
    except RefusedError:
        assert not expected
        return
    [cell] = PIPELINE.search.cells(space, catalog, PUBLISHED)
    tables = list(PIPELINE.search.layouts(cell, 10**6))
    rows = [tuple(row) for t in tables for row in np.stack([t[n] for n in RELATION.keys], 1)]
    assert {tuple(int(x) for x in row) for row in rows} == expected
    assert len(rows) == len(expected)


def test_a_sweep_of_the_readmes_version_takes_no_mends(catalog: Catalog) -> None:
    space: dict[str, list[Any]] = {
        "source_version": ["readme"],
        "num_gpus": [64],
        "accelerator": ["H100"],
    }
    space |= {"num_layers": [12], "hidden_size": [1024]}
    assert len(list(PIPELINE.search.cells(space, catalog, PUBLISHED))) == 1
    with pytest.raises(RefusedError, match="has no mends"):
        list(PIPELINE.search.cells(space, catalog, ALL_MENDS))
