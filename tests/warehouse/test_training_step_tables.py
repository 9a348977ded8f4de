"""What holds for the packaged tables of the training step: constants, shapes, measurements."""

from __future__ import annotations

import re
from typing import Any

import pytest

from estimators.columns import COLUMNS, Column, names_in
from estimators.training_step.recipes import WIDTHS
from warehouse.database import resources
from warehouse.database.catalog import packaged_catalog
from warehouse.database.reference import read_table


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a packaged reference table."""
    table = read_table(resources.reference_directory() / f"{name}.csv")
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


CONSTANT_ROWS = rows("step_constant")
CONSTANTS = names_in("Constants of a training step")
SYSTEM = (
    *("launch_seconds", "nvlink_efficiency", "nvlink_latency_seconds"),
    *("network_efficiency", "network_latency_seconds"),
)
"""Constants that other estimators have as attributes of a system."""


def value(key: str) -> float:
    """Return a constant by its key."""
    (found,) = (row for row in CONSTANT_ROWS if row["step_constant"] == key)
    return float(found["constant_value"])


# ---- constants ----


def test_every_constant_has_a_default() -> None:
    wanted = {*CONSTANTS, *SYSTEM} - {"num_sms"}
    defaults = {
        row["constant"]
        for row in CONSTANT_ROWS
        if row["accelerator"] is None and row["framework"] is None
    }
    assert defaults == wanted


def test_every_accelerator_says_how_many_multiprocessors_it_has() -> None:
    counts = {row["accelerator"]: row["num_sms"] for row in rows("accelerator")}
    assert all(counts.values())
    # NVIDIA's white papers of Volta, Ampere and Hopper; AMD's of CDNA 3
    assert counts["V100 SXM2"] == 80
    assert counts["A100 SXM 80GB"] == 108
    assert (counts["H100 SXM 80GB"], counts["H100 PCIe 80GB"]) == (132, 114)
    assert counts["MI300X"] == 304


def test_every_key_says_what_its_constant_holds_for() -> None:
    parts = {
        row["step_constant"]: (row["constant"], row["accelerator"], row["framework"])
        for row in CONSTANT_ROWS
    }
    made = {key: "@".join(part for part in named if part) for key, named in parts.items()}
    assert {key: of for key, of in made.items() if key != of} == {}


def test_no_two_constants_hold_for_the_same() -> None:
    keys = [row["step_constant"] for row in CONSTANT_ROWS]
    assert len(set(keys)) == len(keys)
    assert set(packaged_catalog().tables["step_constant"]) == set(keys)


def test_constants_hold_for_accelerators_and_frameworks_there_are() -> None:
    tables = packaged_catalog().tables
    assert {row["accelerator"] for row in CONSTANT_ROWS} - {None} <= set(tables["accelerator"])
    assert {row["framework"] for row in CONSTANT_ROWS} - {None} <= set(tables["framework"])


def test_every_recipe_of_a_program_has_the_same_constants() -> None:
    """A recipe without a row would take the constants of 16 bits in silence."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in rows("recipe_constant"):
        of_program = found.setdefault(row["framework"], {recipe: set() for recipe in WIDTHS})
        of_program[row["number_recipe"]].add(row["constant"])
    for of_program in found.values():
        assert not of_program.pop("none")
        assert len({frozenset(names) for names in of_program.values()}) == 1


def test_constants_of_older_releases_are_constants_of_programs() -> None:
    frameworks = packaged_catalog().tables["framework"]
    for row in rows("release_constant"):
        assert row["constant"] in CONSTANTS
        assert row["framework"] in frameworks
        key = f"{row['constant']}@{row['framework']} until {row['before_release']:.2f}"
        assert row["release_constant"] == key


def ranges() -> dict[str, tuple[Column, float, float, float]]:
    """Return each constant's column, lowest value, value and highest value."""
    names = ("lowest_value", "constant_value", "highest_value")
    return {
        row["step_constant"]: (COLUMNS[row["constant"]], *(row[name] for name in names))
        for row in CONSTANT_ROWS
    }


def test_every_value_lies_in_its_range() -> None:
    assert {key: of for key, of in ranges().items() if not of[1] <= of[2] <= of[3]} == {}


def test_every_range_lies_in_the_limits_of_its_column() -> None:
    for key, (column, low, _, high) in ranges().items():
        assert column.minimum is None or low >= column.minimum, key
        assert column.maximum is None or high <= column.maximum, key


def test_a_flag_is_0_or_1() -> None:
    flags = {key: {*values} for key, (column, *values) in ranges().items() if column.kind == "bool"}
    assert {key: values for key, values in flags.items() if values - {0, 1}} == {}
    assert flags


def test_what_is_assumed_is_explained() -> None:
    for row in CONSTANT_ROWS:
        assert row["note"] or not row["is_assumed"], row["step_constant"]


def test_every_profile_says_what_it_overlaps_keeps_and_moves() -> None:
    of_frameworks = {
        row["constant"] for row in CONSTANT_ROWS if row["framework"] and not row["accelerator"]
    }
    own = of_frameworks & {*CONSTANTS}
    assert own >= {"uses_dropout", "stored_gradient_bytes", "optimizer_traffic_bytes"}
    said = {(row["framework"], row["constant"]) for row in CONSTANT_ROWS}
    for framework in packaged_catalog().tables["framework"]:
        for name in ("gradient_overlap_fraction", "parameter_overlap_fraction", "uses_dropout"):
            assert (framework, name) in said
        for name in own:
            kinds = ("stored_", "reduced_", "optimizer_", "accumulation_", "loss_")
            if name.startswith(kinds) and name.endswith("_bytes"):
                assert (framework, name) in said


def test_the_defaults_are_those_of_megatron_core() -> None:
    for row in CONSTANT_ROWS:
        if row["framework"] == "megatron_core" and not row["accelerator"]:
            assert row["constant_value"] == value(row["constant"]), row["step_constant"]


# NVIDIA/Megatron-LM docs/source/distrib_optimizer.md, bytes of a parameter that is not sharded
@pytest.mark.parametrize(
    ("framework", "published"),
    [("megatron_core", 18), ("megatron_lm_2021", 20), ("megatron_lm_2022", 20)],
)
def test_a_parameter_takes_the_bytes_that_megatron_documents(
    framework: str, published: int
) -> None:
    parts = ("stored_weight_bytes", "stored_gradient_bytes", "stored_optimizer_bytes")
    assert sum(value(f"{part}@{framework}") for part in parts) == published


BEST_PRODUCTS = {
    # stas00/ml-engineering: TFLOP/s, depth and full waves of 256 x 128 tiles of the best shape
    "A100 SXM 80GB": (271.2, 5120, 320 / 3 / 108),
    "H100 SXM 80GB": (794.5, 13312, 128 / 132),
}


@pytest.mark.parametrize(("name", "best"), BEST_PRODUCTS.items())
def test_the_range_of_products_ends_at_the_best_that_was_measured(
    name: str, best: tuple[float, int, float]
) -> None:
    rate, depth, waves = best
    (row,) = (row for row in CONSTANT_ROWS if row["step_constant"] == f"gemm_efficiency@{name}")
    (accelerator,) = (row for row in rows("accelerator") if row["accelerator"] == name)
    assert accelerator["measured_max_matmul_flops_per_second"] == rate * 1e12
    share = rate * 1e12 / accelerator["bf16_flops_per_second"]
    asymptote = share * (depth + value("gemm_half_depth")) / depth / waves
    assert row["highest_value"] == pytest.approx(asymptote, abs=0.001)


def test_the_products_of_a100_are_those_of_random_data() -> None:
    # 258 TFLOP/s at 8192^3: 2048 tiles in 19 waves of 108
    asymptote = 258 / 312 * (8192 + value("gemm_half_depth")) / 8192 * 19 * 108 / 2048
    assert value("gemm_efficiency@A100 SXM 80GB") == pytest.approx(asymptote, abs=0.001)


def test_both_passes_of_attention_on_a100_make_the_published_rate() -> None:
    forward, backward = (
        value(f"flash_{way}_efficiency@A100 SXM 80GB") for way in ("forward", "backward")
    )
    both = 3.5 / (1 / forward + 2.5 / backward)
    assert both * 312 == pytest.approx(173, rel=0.01)  # arXiv 2307.08691 figure 4 (d), 4096


@pytest.mark.parametrize(
    ("accelerator", "published"), [("A100 SXM 80GB", 188e9), ("H100 SXM 80GB", 328e9)]
)
def test_links_have_the_bus_bandwidth_that_was_measured(accelerator: str, published: float) -> None:
    # Gathers of 4 to 268 MB by NCCL; H100: the mean of 325 (H100) and 332 GB/s (H200)
    (row,) = (row for row in rows("accelerator") if row["accelerator"] == accelerator)
    reached = row["nvlink_bytes_per_second"] * value(f"nvlink_efficiency@{accelerator}")
    assert reached == pytest.approx(published, rel=0.01)


# ---- frameworks ----


def test_every_spelling_of_a_framework_leads_to_a_profile() -> None:
    catalog = packaged_catalog()
    spellings = [row["alias"] for row in rows("framework_alias")]
    assert len(set(spellings)) == len(spellings)
    assert not set(spellings) & set(catalog.tables["framework"])
    assert set(catalog.aliases["framework"]) == set(spellings)
    assert catalog.find("framework", "Megatron-LM 2021")["framework"] == "megatron_lm_2021"
    assert catalog.find("framework", "NeMo")["framework"] == "megatron_core"


# ---- shapes ----

MIXTURES = {
    # parameters, active parameters (billions), and the tolerance of what the shape leaves out
    "mixtral_8x7B": (46.7, 12.9, 0.005),  # arXiv 2401.04088: 47B and 13B
    "mixtral_8x22B": (140.6, 39.1, 0.005),  # Mistral: 141B and 39B
    "qwen1.5_moe_A2.7B": (14.3, 2.7, 0.01),  # its model card
    "qwen3_30B_A3B": (30.5, 3.3, 0.02),  # its model card
    "qwen3_235B_A22B": (235, 22, 0.02),  # its model card
    "dbrx_132B": (132, 36, 0.02),  # its model card
}
COUNTED_ELSEWHERE = {
    *("deepseek_v2", "deepseek_v3", "kimi_k2", "llama4_scout", "llama4_maverick"),
    "gpt_oss_120B",
}
"""Mixtures with other attention, windows or biases: tests/estimators/test_decoder_parameters.py."""


@pytest.mark.parametrize(("name", "published"), MIXTURES.items())
def test_a_mixture_has_the_parameters_its_publication_counts(
    name: str, published: tuple[float, float, float]
) -> None:
    row = {key: value or 0 for key, value in packaged_catalog().tables["model"][name].items()}
    hidden, layers, dense = (
        int(row[key]) for key in ("hidden_size", "num_layers", "num_dense_layers")
    )
    heads, kv, head = (int(row[key]) for key in ("num_heads", "num_kv_heads", "head_size"))
    attention = 2 * hidden * head * (heads + kv)
    expert = 3 * hidden * int(row["expert_ffn_hidden_size"])
    shared, experts = int(row["num_shared_experts"]), int(row["num_experts"])
    router = hidden * experts
    embedding = int(row["vocab_size"]) * hidden * (1 if row["ties_embedding"] else 2)
    rest = layers * attention + dense * 3 * hidden * int(row["ffn_hidden_size"]) + embedding
    sparse = layers - dense
    total = rest + sparse * (router + (experts + shared) * expert)
    active = rest + sparse * (router + (int(row["experts_per_token"]) + shared) * expert)
    parameters, active_parameters, tolerance = published
    assert total / 1e9 == pytest.approx(parameters, rel=tolerance)
    assert active / 1e9 == pytest.approx(active_parameters, rel=max(tolerance, 0.02))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("megatron_22B", 22.0),
        ("megatron_175B", 175.0),
        ("mpt_7B", 6.65),
        ("mpt_30B", 29.96),
        ("gpt_neox_20B", 20.55),
        ("bloom_176B", 176.2),
    ],
)
def test_a_dense_model_has_the_parameters_its_publication_counts(
    name: str, published: float
) -> None:
    row = packaged_catalog().tables["model"][name]
    layers, hidden = int(row["num_layers"] or 0), int(row["hidden_size"] or 0)
    assert row["ffn_hidden_size"] == 4 * hidden
    assert row["num_kv_heads"] == row["num_heads"]
    times = 1 if row["ties_embedding"] else 2
    parameters = 12 * layers * hidden**2 + times * int(row["vocab_size"] or 0) * hidden
    assert parameters / 1e9 == pytest.approx(published, rel=0.015)


def test_dense_models_have_no_experts_and_mixtures_say_all_of_theirs() -> None:
    columns = (
        *("num_experts", "experts_per_token", "expert_ffn_hidden_size"),
        *("num_shared_experts", "num_dense_layers"),
    )
    mixtures = set()
    for name, row in packaged_catalog().tables["model"].items():
        given = [row[column] is not None for column in columns]
        assert all(given) or not any(given), name
        mixtures |= {name} if all(given) else set()
    assert {*MIXTURES, *COUNTED_ELSEWHERE} <= mixtures


# ---- published measurements ----

RECOMPUTE, H100, TRAINING_TIME = (
    [row for row in rows("printed_step") if row["reference"] == f"published_megatron_{name}"]
    for name in ("recompute", "h100_scaling", "training_time")
)


@pytest.mark.parametrize(("table", "count"), [(RECOMPUTE, 8), (H100, 9), (TRAINING_TIME, 12)])
def test_every_published_row_is_unchanged(table: list[dict[str, Any]], count: int) -> None:
    assert len(table) == count


def test_degrees_multiply_to_the_gpus_and_divide_the_batch() -> None:
    for row in RECOMPUTE + H100:
        tensor, pipeline, data = (
            row[f"{name}_parallel"] for name in ("tensor", "pipeline", "data")
        )
        assert tensor * pipeline * data == row["num_gpus"], row
        assert row["num_heads"] % tensor == 0, row
        assert row["global_batch_size"] % (data * (row["microbatch_size"] or 1)) == 0, row
        assert row["hidden_size"] % row["num_heads"] == 0, row


def test_stages_of_the_recomputation_table_have_whole_chunks() -> None:
    for row in RECOMPUTE:
        assert row["num_layers"] % (row["pipeline_parallel"] * row["virtual_pipeline"]) == 0


def test_the_recomputation_table_pairs_full_with_selective_and_the_latter_is_faster() -> None:
    for full, selective in zip(RECOMPUTE[::2], RECOMPUTE[1::2], strict=True):
        same = ("printed_model", "num_gpus", "global_batch_size", "microbatch_size", "hidden_size")
        assert [full[name] for name in same] == [selective[name] for name in same]
        assert full["activation_recompute"] == "full"
        assert not full["uses_sequence_parallel"]
        assert selective["activation_recompute"] == "selective"
        assert selective["uses_sequence_parallel"]
        assert selective["published_step_seconds"] < full["published_step_seconds"]
        assert full["mfu"] is None
        assert selective["mfu"] < selective["hfu"] < 1


def test_printed_utilisation_is_that_of_the_printed_time() -> None:
    # arXiv 2205.05198 equation 7 of model FLOPs, printed to a tenth of a percent
    for row in RECOMPUTE:
        if row["mfu"] is None:
            continue
        hidden, length = row["hidden_size"], row["seq_len"]
        tokens = float(row["global_batch_size"] * length)
        layers = 72 * tokens * row["num_layers"] * hidden**2 * (1 + length / (6 * hidden))
        flops = layers + 6 * tokens * hidden * row["vocab_size"]
        mfu = flops / row["published_step_seconds"] / row["num_gpus"] / 312e12
        assert mfu == pytest.approx(row["mfu"], abs=0.003), row["printed_model"]


def test_rates_of_one_gpu_add_up_to_the_aggregate() -> None:
    for row in H100:
        # printed in tenths of a TFLOP/s and of a PFLOP/s
        rate, total = row["achieved_flops_per_second_per_gpu"], row["aggregate_flops_per_second"]
        assert rate * row["num_gpus"] == pytest.approx(
            total, abs=0.05e12 * row["num_gpus"] + 0.05e15
        )
        assert rate / 989.5e12 == pytest.approx(row["mfu"], abs=0.0055)


def test_shapes_of_the_h100_table_have_its_parameters_and_are_models() -> None:
    models = packaged_catalog().tables["model"]
    for row in H100:
        shape = models[f"megatron_h100_{row['printed_model']}"]
        for name in ("num_layers", "hidden_size", "num_heads", "seq_len", "vocab_size"):
            assert shape[name] == row[name], row["printed_model"]
        assert shape["ties_embedding"] is False
        hidden = row["hidden_size"]
        parameters = 12 * row["num_layers"] * hidden**2 + 2 * row["vocab_size"] * hidden
        assert parameters == pytest.approx(row["parameters"], rel=0.03), row["printed_model"]


def test_shapes_of_the_recomputation_table_are_models() -> None:
    models = packaged_catalog().tables["model"]
    for row in RECOMPUTE:
        shape = models[f"megatron_{row['printed_model']}"]
        for name in ("num_layers", "hidden_size", "num_heads", "seq_len", "vocab_size"):
            assert shape[name] == row[name], row["printed_model"]
        assert shape["ties_embedding"] is True


def test_training_times_are_the_printed_days() -> None:
    for row in TRAINING_TIME:
        assert row["training_seconds"] == row["training_days_as_printed"] * 86400
        assert row["num_gpus"] % row["model_parallel"] == 0
        replicas = row["num_gpus"] // row["model_parallel"]
        assert row["global_batch_size"] % (replicas * row["microbatch_size"]) == 0


def test_training_times_follow_from_the_printed_rates() -> None:
    # arXiv 2104.04473 equation 4, 8 T P / (n X), which leaves the scores of attention and the
    # logits out: printed times are 1.4 to 3.1 % longer
    for row in TRAINING_TIME:
        rate = row["num_gpus"] * row["achieved_flops_per_second_per_gpu"]
        days = 8 * row["dataset_tokens"] * row["parameters"] / rate / 86400
        assert 1.01 < row["training_days_as_printed"] / days < 1.035, row


@pytest.mark.parametrize("name", ["step_constant", "framework", "framework_alias", "printed_step"])
def test_numbers_carry_no_noise_of_floating_point(name: str) -> None:
    text = (resources.reference_directory() / f"{name}.csv").read_text("utf-8")
    lines = text.splitlines()
    noisy = ("published_megatron_scaling,", "published_measurement,")  # as copied from their source
    checked = [line for line in lines if not line.startswith(noisy)]
    assert len(checked) > 5
    assert not re.search(r"\d\.\d*(0{6,}|9{6,})[1-9]", "\n".join(checked))
