"""The search of training steps enumerates what plain loops over the rules do; refusals say why."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from training_step_cases import (
    CATALOG,
    GPT,
    IDEAL,
    LLAMA,
    MOE,
    cells_of,
    estimate,
    estimate_cell,
    layouts_of,
    resolve,
)

from estimators.contract import Catalog, RefusedError
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.rules import (
    LAYER_RULES,
    PROBLEM_RULES,
    SHARDING_NEEDS_REPLICAS,
    SPLIT_RULES,
)

KEYS = (
    *("tensor_parallel", "context_parallel", "expert_parallel", "uses_sequence_parallel"),
    *("microbatch_size", "pipeline_parallel", "virtual_pipeline", "data_parallel", "zero_stage"),
)
DENSE = {
    "num_layers": 6,
    "hidden_size": 512,
    "num_heads": 8,
    "seq_len": 1024,
    "vocab_size": 512,
    "num_gpus": 16,
    "global_batch_size": 8,
}
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
    experts = problem.get("num_experts", 1)
    found = set()
    degrees = range(1, gpus + 1)
    for t, c, p, d in itertools.product(degrees, repeat=4):
        if t * c * p * d != gpus or p > layers:
            continue
        if heads % t or ffn % t or (keys % t and t % keys):
            continue
        if c > 1 and (attention != "flash" or s % (2 * c) or s / c < 256):
            continue
        for e in range(1, experts + 1):
            if experts % e or (d * c) % e:
                continue
            for splits in (0, 1):
                if splits and (t == 1 or s % (t * c)):
                    continue
                if experts > 1 and t > 1 and not splits:
                    continue
                for b in range(1, batch + 1):
                    if batch % (d * b):
                        continue
                    m = batch // (d * b)
                    for v in range(1, layers + 1):
                        if v > 1 and (p == 1 or layers % (p * v) or m % p):
                            continue
                        for zero in range(4):
                            if zero == 0 or d * c > 1:
                                found.add((t, c, e, splits, b, p, v, d, zero))
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
    assert unused <= {"context_parallel", "expert_parallel"}


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
    assert dict(cell.kept) == kept
    assert len(found) == len(expected) > 0
    assert set(found) == expected


def test_lists_of_degrees_make_a_cell_each_and_batches_problems() -> None:
    space = {**IDEAL, **MIXTURE, "tensor_parallel": [1, 2], "global_batch_size": [16, 32]}
    cells = cells_of(space)
    named = [(cell.values["global_batch_size"], dict(cell.kept)) for cell in cells]
    assert named == [(batch, {"tensor_parallel": t}) for batch in (16, 32) for t in (1, 2)]
    assert len({cell.problem.id for cell in cells}) == 2
    assert len({cell.id for cell in cells}) == 4


def test_a_study_may_name_everything_that_a_problem_is_made_of() -> None:
    # more names than numpy's arrays have dimensions; None is what is left to its default
    [cell] = cells_of({**IDEAL, **DENSE})
    named = {n: v for n, v in {**cell.problem.values, **cell.choices}.items() if v is not None}
    assert len(named) > 64
    assert [again.id for again in cells_of(named)] == [cell.id]


# ---- defaults ----


def test_recomputation_is_searched_where_it_is_not_named_and_attention_is_fused() -> None:
    silent = {name: v for name, v in IDEAL.items() if name not in ("attention",)}
    del silent["activation_recompute"]
    cells = cells_of({**silent, **DENSE})
    assert [dict(cell.choices) for cell in cells] == [
        {"attention": "flash", "activation_recompute": recompute}
        for recompute in ("none", "selective", "full")
    ]


def test_a_row_has_one_of_everything_by_default() -> None:
    silent = dict(IDEAL)
    for name in ("attention", "activation_recompute", "precision", "nics_per_gpu"):
        del silent[name]
    [row], refusals = _resolved([{**silent, **GPT}])
    assert not refusals
    assert (row["attention"], row["activation_recompute"]) == ("flash", "none")
    assert (row["precision"], row["nics_per_gpu"], row["profile"]) == ("bf16", 1, "default")
    assert [row[name] for name in KEYS] == [1, 1, 1, False, 1, 1, 1, 1, 0]
    assert (row["num_gpus"], row["global_batch_size"]) == (1, 1)
    # Four times the hidden size; as many key heads as heads; h/a; a tied output layer.
    assert (row["ffn_hidden_size"], row["num_kv_heads"], row["head_size"]) == (2048, 4, 128)
    assert (row["uses_glu"], row["ties_embedding"]) == (False, True)
    assert (row["num_experts"], row["experts_per_token"], row["num_dense_layers"]) == (1, 1, 0)
    assert row["expert_ffn_hidden_size"] == 2048


def test_what_is_left_of_the_gpus_are_replicas_and_the_batch_is_theirs() -> None:
    degrees = {"tensor_parallel": 2, "pipeline_parallel": 2, "context_parallel": 2}
    rows = [
        {**IDEAL, **GPT, **degrees, "num_gpus": 32, "global_batch_size": 64},
        {**IDEAL, **GPT, **degrees, "data_parallel": 4, "microbatch_size": 2},
        {**IDEAL, **GPT, **degrees, "data_parallel": 4, "num_microbatches": 5},
    ]
    found, refusals = _resolved(rows)
    assert not refusals
    assert [row["data_parallel"] for row in found] == [4, 4, 4]
    assert [row["num_gpus"] for row in found] == [32, 32, 32]
    assert [row["global_batch_size"] for row in found] == [64, 8, 20]


def test_a_gated_model_has_an_output_layer_of_its_own() -> None:
    [row], _ = _resolved([{**IDEAL, **LLAMA}])
    assert not row["ties_embedding"]


def test_a_framework_says_how_it_shards_and_splits() -> None:
    frameworks = {
        "given": {
            "framework": "given",
            "attention": "unfused",
            "zero_stage": 2,
            "uses_sequence_parallel": True,
        }
    }
    catalog = Catalog({"framework": frameworks})
    silent = {name: value for name, value in IDEAL.items() if name != "attention"}
    rows = [{**silent, **GPT, "tensor_parallel": t} for t in (1, 2)]
    columns, refusals = resolve([*rows, {**rows[1], "zero_stage": 0}], catalog)
    assert not refusals
    assert columns["zero_stage"].tolist() == [2, 2, 0]
    # One tensor splits nothing.
    assert columns["uses_sequence_parallel"].tolist() == [False, True, True]
    assert columns["attention"].tolist() == ["unfused"] * 3


def test_constants_are_those_of_the_framework_on_the_accelerator_before_others() -> None:
    table = {
        name: {"constant_value": value}
        for name, value in {
            "launch_seconds": 1.0,
            "launch_seconds@chip": 2.0,
            "launch_seconds@given": 3.0,
            "launch_seconds@chip@given": 4.0,
            "gemm_efficiency": 0.1,
            "gemm_efficiency@chip": 0.2,
            "gemm_efficiency@given": 0.3,
            "hbm_efficiency": 0.1,
            "hbm_efficiency@chip": 0.2,
            "collective_seconds": 0.5,
            "uses_dropout": 1.0,
            "reduces_all_gradients": 0.0,
            "fuses_elementwise": 0.0,
        }.items()
    }
    catalog = Catalog(
        {
            **CATALOG.tables,
            "step_constant": table,
            "accelerator": {"chip": {"accelerator": "chip", "hbm_bytes": 7.0, "num_sms": 9}},
        }
    )
    wanted = {name.split("@")[0] for name in table} | {"num_sms", "hbm_bytes"}
    silent = {name: value for name, value in IDEAL.items() if name not in wanted}
    columns, refusals = resolve([{**silent, **GPT, "accelerator": "chip"}], catalog)
    assert not refusals
    assert {name: columns[name].item() for name in wanted} == {
        "launch_seconds": 4.0,
        "gemm_efficiency": 0.3,
        "hbm_efficiency": 0.2,
        "collective_seconds": 0.5,
        "uses_dropout": True,
        "reduces_all_gradients": False,
        "fuses_elementwise": False,
        "num_sms": 9,
        "hbm_bytes": 7.0,
    }
    # What a row gives is taken.
    columns, _ = resolve([{**IDEAL, **GPT, "accelerator": "chip"}], catalog)
    assert columns["launch_seconds"].tolist() == [0.0]


# ---- refusals ----

WIDE = {**GPT, "num_heads": 8, "vocab_size": 512}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "fp8 has a rate",
        {"precision": "fp8", "fp8_flops_per_second": None},
        "precision",
        '"fp8" has no published peak rate on this accelerator',
    ),
    (
        "key heads divide heads",
        {"num_kv_heads": 3},
        "num_kv_heads",
        "3 does not divide `num_heads` 8",
    ),
    (
        "a token has so many experts",
        {"num_experts": 4, "experts_per_token": 5},
        "experts_per_token",
        "5 is more than `num_experts` 4",
    ),
    (
        "dense layers are layers",
        {"num_dense_layers": 5},
        "num_dense_layers",
        "5 is more than `num_layers` 4",
    ),
    (
        "tensor_parallel divides num_heads",
        {"tensor_parallel": 16},
        "tensor_parallel",
        "16 does not divide `num_heads` 8",
    ),
    (
        "tensor_parallel divides ffn_hidden_size",
        {"tensor_parallel": 8, "ffn_hidden_size": 1028},
        "tensor_parallel",
        "8 does not divide `ffn_hidden_size` 1028",
    ),
    (
        "key heads are split or copied evenly",
        {"tensor_parallel": 4, "num_heads": 12, "num_kv_heads": 6},
        "tensor_parallel",
        "4 neither divides `num_kv_heads` 6 nor is divided by it",
    ),
    (
        "context parallelism needs fused attention",
        {"context_parallel": 2, "attention": "unfused"},
        "context_parallel",
        "2 needs fused attention, not unfused",
    ),
    (
        "shares of a sequence fill blocks of attention",
        {"context_parallel": 8},
        "context_parallel",
        "8 does not split `seq_len` 1024 into two shares a rank of 128 tokens or more",
    ),
    (
        "tensor_parallel divides expert_ffn_hidden_size",
        {"num_experts": 4, "expert_ffn_hidden_size": 102, "tensor_parallel": 4}
        | {"uses_sequence_parallel": True},
        "tensor_parallel",
        "4 does not divide `expert_ffn_hidden_size` 102",
    ),
    (
        "experts are split evenly",
        {"num_experts": 4, "expert_parallel": 3, "data_parallel": 3},
        "expert_parallel",
        "3 does not divide `num_experts` 4",
    ),
    (
        "sequence parallelism splits over tensors",
        {"uses_sequence_parallel": True, "tensor_parallel": 4, "seq_len": 1022},
        "uses_sequence_parallel",
        "True needs `tensor_parallel` above 1 that splits `seq_len` 1022 evenly; it is 4",
    ),
    (
        "sequence parallelism splits over tensors",
        {"uses_sequence_parallel": True, "tensor_parallel": 4, "seq_len": 1022},
        "uses_sequence_parallel",
        "True needs `tensor_parallel` above 1 that splits `seq_len` 1022 evenly; it is 4",
    ),
    (
        "experts over tensors need sequence parallelism",
        {"num_experts": 4, "tensor_parallel": 2, "uses_sequence_parallel": False},
        "uses_sequence_parallel",
        "False is needed by a mixture of experts under tensor parallelism",
    ),
    (
        "degrees multiply to the GPUs",
        {"num_gpus": 16, "tensor_parallel": 2, "data_parallel": 4},
        "num_gpus",
        "16 is not the product of the degrees, 8",
    ),
    (
        "stages have a layer each",
        {"pipeline_parallel": 5},
        "pipeline_parallel",
        "5 is more than `num_layers` 4",
    ),
    (
        "chunks are even and interleaved over stages",
        {"virtual_pipeline": 2},
        "virtual_pipeline",
        "2 does not split `num_layers` 4 into even chunks on 1 stages",
    ),
    (
        "chunks are even and interleaved over stages",
        {"virtual_pipeline": 4, "pipeline_parallel": 2},
        "virtual_pipeline",
        "4 does not split `num_layers` 4 into even chunks on 2 stages",
    ),
    (
        "expert groups lie within replicas",
        {"num_experts": 4, "expert_parallel": 4, "data_parallel": 2},
        "expert_parallel",
        "4 does not divide `data_parallel` x `context_parallel` 2",
    ),
    (
        "replicas divide the batch",
        {"data_parallel": 4, "microbatch_size": 3, "global_batch_size": 16},
        "microbatch_size",
        "3 times `data_parallel` 4 does not divide `global_batch_size` 16",
    ),
]
SEARCHED_ONLY: dict[str, tuple[dict[str, Any], str]] = {
    # A batch may have what a search leaves out: a schedule that pads, a stage that shards nothing.
    "interleaving takes microbatches by stages": (
        {"virtual_pipeline": 2, "pipeline_parallel": 2, "microbatch_size": 2, "data_parallel": 1},
        "`virtual_pipeline` 2 needs microbatches in multiples of `pipeline_parallel` 2",
    ),
    "sharding needs replicas": (
        {"zero_stage": 1, "data_parallel": 1, "context_parallel": 1},
        "`zero_stage` 1 has nothing to shard over: there is one replica",
    ),
}


def _resolved(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Any]]:
    columns, refusals = resolve(rows)
    found = [{name: column[i] for name, column in columns.items()} for i in range(len(rows))]
    return found, refusals


def test_every_rule_has_a_case_that_breaks_it() -> None:
    rules = (*PROBLEM_RULES, *LAYER_RULES, *SPLIT_RULES, SHARDING_NEEDS_REPLICAS)
    assert {name for name, *_ in REFUSED} | set(SEARCHED_ONLY) == {rule.name for rule in rules}


@pytest.mark.parametrize(("rule", "change", "column", "message"), REFUSED)
def test_a_faulty_row_is_refused_by_its_value_and_the_others_are_not(
    rule: str, change: dict[str, Any], column: str, message: str
) -> None:
    _, refusals = resolve([{**IDEAL, **WIDE}, {**IDEAL, **WIDE, **change}])
    assert [refusal.row for refusal in refusals] == [1], rule
    assert str(refusals[0]).split("\n")[0] == f"`{column}` {message}"


@pytest.mark.parametrize("rule", SEARCHED_ONLY)
def test_a_search_leaves_out_what_a_batch_may_have(rule: str) -> None:
    change, message = SEARCHED_ONLY[rule]
    # Six sequences: three microbatches of two.
    base = {**IDEAL, **WIDE, "global_batch_size": 6}
    gpus = change.get("pipeline_parallel", 1)
    assert not resolve([{**base, **change}])[1]
    with pytest.raises(RefusedError) as caught:
        cells_of({**base, **change, "num_gpus": gpus})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor_parallel": 3}, "`tensor_parallel` 3 does not divide `num_heads` 8"),
        ({"pipeline_parallel": 8}, "`pipeline_parallel` 8 is more than `num_layers` 4"),
        ({"microbatch_size": 5}, "`microbatch_size` 5 leaves no layout in any cell"),
        ({"num_gpus": 7}, "`num_gpus` 7 leaves no layout in the whole space"),
        ({"num_gpus": None}, "`num_gpus` (none) is missing"),
        ({"global_batch_size": None}, "`global_batch_size` (none) is missing"),
        ({"num_sms": None}, "`num_sms` (none) is missing"),
        ({"framework": "gavin"}, '`framework` "gavin" is not in the `framework` table'),
        (
            {"accelerator": "chip"},
            '`accelerator` "chip" is neither in the `accelerator` nor in the `system` table',
        ),
        ({"attention": "sparse"}, '`attention` "sparse" is not known'),
        ({"precision": "fp4"}, '`precision` "fp4" is not known'),
        ({"gemm_efficiency": 1.5}, "`gemm_efficiency` 1.5 must be at most 1"),
        ({"tensor_overlap_fraction": -0.1}, "`tensor_overlap_fraction` -0.1 must be at least 0"),
    ],
)
def test_a_faulty_space_is_refused_with_its_value(change: dict[str, Any], message: str) -> None:
    base = {**IDEAL, **WIDE, "num_gpus": 8, "global_batch_size": 8}
    space = {name: value for name, value in {**base, **change}.items() if value is not None}
    with pytest.raises(RefusedError) as caught:
        cells_of(space)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zero_stage": 4}, "`zero_stage` 4 must be at most 3"),
        ({"tensor_parallel": 0}, "`tensor_parallel` 0 must be at least 1"),
        ({"microbatch_size": 1.5}, "`microbatch_size` 1.5 must be a whole number"),
        ({"num_layers": None}, "`num_layers` (none) is missing"),
        ({"nvlink_bytes_per_second": None}, "`nvlink_bytes_per_second` (none) is missing"),
        ({"hbm_bytes": -1.0}, "`hbm_bytes` -1.0 must be at least 1"),
    ],
)
def test_values_outside_their_limits_are_refused(change: dict[str, Any], message: str) -> None:
    _, refusals = resolve([{**IDEAL, **WIDE, **change}])
    assert message in "\n".join(map(str, refusals))
