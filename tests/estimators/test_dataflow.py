"""Dataflow: the source's figures, its refusals, its search, and what must hold of any run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import PUBLISHED, Catalog, RefusedError
from estimators.dataflow.estimator import DATAFLOW, RELATION
from tests.estimators.parity import evaluated, read_golden, read_refused, resolved, worst_error
from tests.examples import examples

README = {
    "num_experts": 8,
    "global_batch_size": 8192,
    "seq_len": 8192,
    "dataset_tokens": 13e12,
    "num_layers": 120,
    "hidden_size": 15360,
    "data_parallel": 16,
    "pipeline_parallel": 15,
    "expert_parallel": 8,
    "tensor_parallel": 8,
    "cluster_flops_per_second": 156e12,
}
FIGURES = [name for name in RELATION.outputs if name != "efficient_microbatch_sizes"]


def run(catalog: Catalog, **changes: Any) -> dict[str, Any]:
    """Return the figures of the README's run with `changes`."""
    given_values = {n: v for n, v in {**README, **changes}.items() if v is not None}
    return evaluated(DATAFLOW, RELATION, pl.DataFrame([given_values]), catalog).row(0, named=True)


def refusals(catalog: Catalog, **changes: Any) -> list[str]:
    frame = pl.DataFrame([{n: v for n, v in {**README, **changes}.items() if v is not None}])
    return [str(refusal) for refusal in resolved(DATAFLOW, RELATION, frame, catalog)[1]]


def test_every_figure_of_every_golden_row_is_reproduced(catalog: Catalog) -> None:
    golden = read_golden("dataflow")
    found = evaluated(DATAFLOW, RELATION, golden, catalog)
    assert golden.height == 370
    assert max(worst_error(found, golden, FIGURES).values()) < 1e-12
    sizes = "efficient_microbatch_sizes"
    assert found[sizes].to_list() == golden[sizes].to_list()


def test_rates_are_absent_without_a_rate_of_a_cluster(catalog: Catalog) -> None:
    figures = run(catalog, cluster_flops_per_second=None)
    assert np.isnan(figures["training_seconds"])
    assert np.isnan(figures["cluster_network_bytes_per_second"])
    assert figures["total_flops"] == run(catalog)["total_flops"]


@pytest.mark.parametrize("case", read_refused("dataflow"), ids=lambda case: case["case"])
def test_what_the_source_refuses_is_refused_with_its_values(
    catalog: Catalog, case: dict[str, Any]
) -> None:
    frame = pl.DataFrame([case["arguments"]])
    [first, *_] = resolved(DATAFLOW, RELATION, frame, catalog)[1]
    assert str(first.value) in str(first)
    assert first.row == 0


def test_a_ratio_that_binary_fractions_do_not_hold_is_taken_as_meant(catalog: Catalog) -> None:
    widths = {"hidden_size": 6400, "ffn_ratio": 1.1, "attention_width_ratio": 1.1}
    figures = run(catalog, **widths, tensor_parallel=1)
    assert figures["resolved_ffn_hidden_size"] == 7040
    assert figures["resolved_num_heads"] == 110


def test_a_width_of_heads_that_a_head_does_not_divide_is_reported_once(catalog: Catalog) -> None:
    [error] = refusals(catalog, attention_width_ratio=0.3001)
    assert error.startswith("`head_size` 64 does not divide the width of all heads")


def test_a_share_of_a_peak_needs_a_peak(catalog: Catalog) -> None:
    [error] = refusals(catalog, base_utilization=0.5)
    assert error.startswith("`base_utilization` 0.5 has nothing to apply to")


def test_an_accelerator_gives_the_rate_of_a_cluster(catalog: Catalog) -> None:
    system = {"cluster_flops_per_second": None, "accelerator": "A100", "base_utilization": 0.5}
    assert run(catalog, **system) == run(catalog)
    eight = run(catalog, **system, gpus_per_cluster=8)
    assert eight["training_seconds"] == pytest.approx(run(catalog)["training_seconds"] / 8)


def test_an_unknown_accelerator_is_refused(catalog: Catalog) -> None:
    [error] = refusals(catalog, cluster_flops_per_second=None, accelerator="A1000")
    assert error.startswith('`accelerator` "A1000" is not in the `system` table')


def test_one_cluster_has_no_traffic(catalog: Catalog) -> None:
    alone = dict.fromkeys(("data_parallel", "pipeline_parallel", "expert_parallel"), 1)
    figures = run(catalog, **alone, tensor_parallel=1)
    assert figures["total_network_elements"] == 0


def test_a_batch_of_half_the_data_set_is_one_step_and_of_more_is_refused(catalog: Catalog) -> None:
    batch = 8192 * 8192
    assert run(catalog, dataset_tokens=0.51 * batch)["num_steps"] == 1
    assert run(catalog, dataset_tokens=2.5 * batch)["num_steps"] == 2  # half to even
    [error] = refusals(catalog, dataset_tokens=0.5 * batch)
    assert "is at most half of one batch" in error


runs = st.fixed_dictionaries(
    {
        "use_glu": st.booleans(),
        "multi_query_attention": st.booleans(),
        "sequential_attention_ffn": st.booleans(),
        "activation_recompute": st.sampled_from(["none", "full"]),
        "data_parallel": st.sampled_from([1, 4, 16]),
        "pipeline_parallel": st.sampled_from([1, 3, 15]),
        "expert_parallel": st.sampled_from([1, 2, 8]),
        "sequence_parallel": st.sampled_from([1, 2]),
        "tensor_parallel": st.sampled_from([1, 4, 8]),
        "tensor_parallel_external": st.sampled_from([1, 2]),
        "skip_efficiency_check": st.just(True),
    }
)


@given(runs)
@examples(60)
def test_parts_add_up_and_what_is_sent_backward_comes_back(
    catalog: Catalog, changes: dict[str, Any]
) -> None:
    found = run(catalog, **changes)
    for what in ("flops", "sent_elements", "received_elements", "network_elements"):
        both = found[f"forward_{what}"] + found[f"backward_{what}"]
        assert found[f"total_{what}"] == pytest.approx(both, rel=1e-14)
    sent, received = found["total_sent_elements"], found["total_received_elements"]
    assert found["total_network_elements"] == pytest.approx(sent + received, rel=1e-14)
    again = 2 if changes["activation_recompute"] == "full" else 1
    assert found["backward_received_elements"] == pytest.approx(
        again * found["forward_received_elements"], rel=1e-14
    )
    seconds = found["total_flops"] / found["fleet_flops_per_second"]
    assert found["training_seconds"] == pytest.approx(seconds, rel=1e-14)


@given(runs)
@examples(40)
def test_more_bytes_an_element_mean_more_bandwidth_and_the_same_time(
    catalog: Catalog, changes: dict[str, Any]
) -> None:
    one, four = (run(catalog, **changes, network_bytes_per_element=n) for n in (1, 4))
    assert four["training_seconds"] == one["training_seconds"]
    rate = "cluster_network_bytes_per_second"
    assert four[rate] == pytest.approx(4 * one[rate], rel=1e-14)


SMALL = st.fixed_dictionaries(
    {
        "num_experts": st.sampled_from([1, 2, 3, 4, 6]),
        "global_batch_size": st.sampled_from([8, 12, 24, 49, 96, 512, 2048]),
        "seq_len": st.sampled_from([48, 96, 768, 1536, 8192]),
        "num_layers": st.sampled_from([1, 4, 6, 30]),
        "hidden_size": st.sampled_from([48, 96, 768, 3072, 4096]),
        "head_size": st.sampled_from([1, 2, 12, 16]),
        "num_heads": st.sampled_from([1, 3, 6, 64, 256]),
        "ffn_hidden_size": st.sampled_from([24, 1024, 3072, 12288]),
        "multi_query_attention": st.booleans(),
        "sequential_attention_ffn": st.booleans(),
        "skip_efficiency_check": st.booleans(),
        "num_clusters": st.sampled_from([1, 2, 6, 8, 12, 24, 36]),
        "dataset_tokens": st.just(1e12),
    }
)


def factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield every ordered product of `parts` factors that is `number`."""
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in factorisations(number // first, parts - 1):
                yield (first, *rest)


def is_efficient(v: dict[str, Any], degrees: tuple[int, ...]) -> bool:
    data, pipe, _, sequence, inner, outer = degrees
    batch, tokens = v["global_batch_size"], v["seq_len"] // v["num_experts"]
    if batch * tokens > 8388608 or (pipe > 1 and batch // data < 4 * pipe):
        return False
    high = batch // (4 * pipe) if pipe > 1 else batch
    low = data * -(-1024 * sequence // tokens)
    if not any(batch % size == 0 for size in range(low, high + 1, data)):
        return False
    heads = v["num_heads"] * v["head_size"]
    return bool(
        1024 * inner <= min(v["ffn_hidden_size"], heads) and 1024 * outer <= v["hidden_size"]
    )


def is_valid(v: dict[str, Any], degrees: tuple[int, ...]) -> bool:
    """Apply the source's rules, one by one, to one layout."""
    data, pipe, expert, sequence, inner, outer = degrees
    experts, d, f, h = (
        v[n] for n in ("num_experts", "hidden_size", "ffn_hidden_size", "head_size")
    )
    if v["seq_len"] % experts or v["global_batch_size"] % data:
        return False
    if not v["skip_efficiency_check"] and not is_efficient(v, degrees):
        return False
    whole = v["seq_len"] // experts
    split = ((v["num_layers"], pipe), (experts, expert), (whole, sequence), (whole, outer))
    wholes = (*split, (d, outer), (f, inner), (v["num_heads"], inner))
    if any(number % degree for number, degree in wholes):
        return False
    e, t, width, ffn = experts // expert, whole // sequence, d // outer, f // inner
    heads = v["num_heads"] // inner
    kept = h if v["multi_query_attention"] else heads * h
    pairs = [
        (e * width * heads * h, data * sequence),
        (e * width * ffn, data * sequence),
        (e * t * heads * h, outer),
        (e * (whole // outer) * kept, sequence),
        (experts * (whole // outer) * kept, sequence * expert),
        (e * t * heads, outer),
        (e * t * ffn, outer),
        (e * t * width, inner),
    ]
    if v["multi_query_attention"]:
        pairs.append((e * width * h, data * sequence * inner))
    return not any(number % ranks for number, ranks in pairs)


@given(SMALL)
@examples(120)
def test_the_search_finds_what_a_plain_loop_over_the_rules_finds(
    catalog: Catalog, problem: dict[str, Any]
) -> None:
    expected = {d for d in factorisations(problem["num_clusters"], 6) if is_valid(problem, d)}
    space = {name: (value,) for name, value in problem.items()}
    try:
        DATAFLOW.search.check(space, catalog, PUBLISHED)
    except RefusedError:
        assert not expected
        return
    [cell] = DATAFLOW.search.cells(space, catalog, PUBLISHED)
    [table] = DATAFLOW.search.layouts(cell, 10**6)
    found = list(zip(*(table[name].tolist() for name in RELATION.keys), strict=True))
    assert set(found) == expected
    assert len(found) == len(expected) == DATAFLOW.search.count(cell)
