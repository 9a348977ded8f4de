"""What a training step is taken to be where a row or a study leaves it open."""

from __future__ import annotations

from typing import Any

from estimators.contract import Catalog, Scalar
from tests.estimators.training_step_cases import (
    CATALOG,
    GPT,
    IDEAL,
    LLAMA,
    cells_of,
    resolve,
)
from tests.estimators.training_step_spaces import DENSE, KEYS
from warehouse.database.catalog import extended, packaged_catalog

# ---- defaults ----


def test_a_system_has_chip_power_and_constants_of_the_product_that_it_is_based_on() -> None:
    known = packaged_catalog()
    systems: dict[str, dict[str, Scalar]] = {
        "large": {"based_on": "H100 SXM 80GB", "hbm_bytes": 120e9},
        "larger": {"based_on": "large", "hbm_bytes": 200e9},
    }
    row = {"num_layers": 2, "hidden_size": 256, "num_heads": 2, "seq_len": 1024, "num_gpus": 1}
    names = ("H100 SXM 80GB", "large", "larger")
    found, refusals = resolve(
        [{**row, "accelerator": name} for name in names], extended(known, {}, systems)
    )
    assert not refusals
    assert found["hbm_bytes"].tolist() == [81_559 * 2**20, 120e9, 200e9]
    same = ("num_sms", "power_limit_watts", "clock_at_limit", "gpu_idle_watts", "hbm_efficiency")
    for name in (*same, "kernels", "attention_program"):
        assert len(set(found[name].tolist())) == 1, name
    assert found["power_limit_watts"][0] == 700


def test_recomputation_is_searched_where_it_is_not_named_and_attention_is_fused() -> None:
    silent = {name: v for name, v in IDEAL.items() if name not in ("attention",)}
    del silent["activation_recompute"]
    cells = cells_of({**silent, **DENSE})
    searched = ("attention", "activation_recompute")
    assert [tuple(cell.choices[name] for name in searched) for cell in cells] == [
        ("flash", recompute) for recompute in ("none", "selective", "full")
    ]
    # how a pipeline is placed and run is not searched
    others = {name: value for name, value in cells[0].choices.items() if name not in searched}
    assert {name for name, value in others.items() if value} == {"schedule"}
    assert others["schedule"] == "1f1b"


def test_a_row_has_one_of_everything_by_default() -> None:
    silent = dict(IDEAL)
    for name in ("attention", "activation_recompute", "precision", "nics_per_gpu"):
        del silent[name]
    [row], refusals = _resolved([{**silent, **GPT}])
    assert not refusals
    assert (row["attention"], row["activation_recompute"]) == ("flash", "none")
    assert (row["precision"], row["nics_per_gpu"], row["profile"]) == ("bf16", 1, "default")
    assert [row[name] for name in KEYS] == [1, 1, 1, 1, False, 1, 1, 1, 1, 0]
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
    frameworks: dict[str, dict[str, Any]] = {
        "given": {
            "framework": "given",
            "attention": "unfused",
            "zero_stage": 2,
            "uses_sequence_parallel": True,
        }
    }
    catalog = Catalog({"framework": frameworks})
    silent = {name: value for name, value in IDEAL.items() if name != "attention"}
    replicas = {**silent, **GPT, "data_parallel": 2}
    rows = [{**replicas, "tensor_parallel": t} for t in (1, 2)]
    others = [{**rows[1], "zero_stage": 0}, {**rows[1], "data_parallel": 1, "zero_stage": 1}]
    columns, refusals = resolve([*rows, *others], catalog)
    assert not refusals
    # one replica shards nothing
    assert columns["zero_stage"].tolist() == [2, 2, 0, 0]
    # One tensor splits nothing.
    assert columns["uses_sequence_parallel"].tolist() == [False, True, True, True]
    assert columns["attention"].tolist() == ["unfused"] * 4


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
            "accelerator": {"chip": {"accelerator": "chip", "hbm_bytes": 7e9, "num_sms": 9}},
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
        "hbm_bytes": 7e9,
    }
    # What a row gives is taken.
    columns, _ = resolve([{**IDEAL, **GPT, "accelerator": "chip"}], catalog)
    assert columns["launch_seconds"].tolist() == [0.0]


def _resolved(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Any]]:
    columns, refusals = resolve(rows)
    found = [{name: column[i] for name, column in columns.items()} for i in range(len(rows))]
    return found, refusals


# ---- shapes ----

OF_GPT_OSS = {
    "num_layers": 36,
    "hidden_size": 2880,
    "ffn_hidden_size": 2880,
    "uses_glu": True,
    "num_heads": 64,
    "num_kv_heads": 8,
    "head_size": 64,
    "seq_len": 8192,
    "vocab_size": 201088,
    "ties_embedding": False,
    "num_experts": 128,
    "experts_per_token": 4,
    "expert_ffn_hidden_size": 2880,
}


def resolved(row: dict[str, Any]) -> dict[str, Any]:
    """Return a completed row, with the packaged tables."""
    columns, refusals = resolve([{**row, "accelerator": "H100 SXM 80GB"}], packaged_catalog())
    assert not refusals
    return {name: column[0] for name, column in columns.items()}


def test_the_shape_of_a_known_model_has_its_windows_and_biases() -> None:
    unnamed: dict[str, Any] = OF_GPT_OSS
    row = resolved(unnamed)
    assert (row["attention_window"], row["window_period"]) == (128, 2)
    assert row["uses_linear_bias"]
    assert row["uses_router_bias"]
    # what is given counts
    assert resolved({**unnamed, "attention_window": 0, "window_period": 0})["window_period"] == 0
    # one layer more is another model
    other = resolved({**unnamed, "num_layers": 37})
    assert other["attention_window"] == 0
    assert not other["uses_linear_bias"]


def test_other_shapes_have_heads_of_one_width_and_no_windows() -> None:
    row = resolved({**GPT, "num_experts": 4, "num_shared_experts": 2, "route_groups": 2})
    assert (row["qk_head_size"], row["qk_rotary_size"], row["v_head_size"]) == (128, 0, 128)
    assert (row["q_lora_rank"], row["kv_lora_rank"]) == (0, 0)
    assert (row["attention_window"], row["window_period"]) == (0, 0)
    assert row["shared_ffn_hidden_size"] == 2 * row["expert_ffn_hidden_size"]
    assert (row["route_groups"], row["route_groups_kept"]) == (2, 2)
    assert row["uses_linear_bias"]
    assert not resolved({**GPT, "uses_glu": True, "ffn_hidden_size": 1024})["uses_linear_bias"]


def test_a_period_says_how_many_layers_are_dense() -> None:
    row = resolved({**GPT, "num_layers": 9, "num_experts": 4, "moe_period": 4})
    # the fourth and the eighth have experts
    assert row["num_dense_layers"] == 7
