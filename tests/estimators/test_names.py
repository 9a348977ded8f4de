"""Names in any spelling, and the columns and rows that a misspelt word means."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from estimators import names
from estimators.columns import COLUMNS
from estimators.names import (
    did_you_mean,
    folded,
    hint_on_word,
    joined_hint,
    nearest,
    nearest_columns,
)
from warehouse.database.catalog import packaged_catalog

KNOWN_ELSEWHERE = [name for name, column in COLUMNS.items() if column.other_names]
ACCELERATORS = ("A100 SXM 80GB", "H100 PCIe 80GB", "H100 SXM 80GB", "H200 SXM 141GB", "MI300X")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gpt3_1T", "GPT3-1t"),
        ("gpt3_1.3B", "GPT-3 1.3b"),
        ("A100 SXM 80GB", "a100_sxm_80gb"),
        ("mixtral_8x7B", "Mixtral 8 x 7B"),
        ("megatron_lm_2021", "Megatron-LM 2021"),
    ],
)
def test_capitals_and_separators_do_not_matter(name: str, other: str) -> None:
    assert folded(name) == folded(other)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("megatron_1.7B", "megatron_17B"),
        ("megatron_7.5B", "megatron_75B"),
        ("gpt3_13B", "gpt3_1.3B"),
        ("gpt3_13B", "gpt3_1_3B"),
        ("gpt3_1.3B", "gpt31.3B"),
        ("mpt_7B", "mpt_.7B"),
        ("qwen1.5_moe", "qwen15_moe"),
    ],
)
def test_other_numbers_make_other_names(name: str, other: str) -> None:
    assert folded(name) != folded(other)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("H10", ["H100 SXM 80GB", "H100 PCIe 80GB"]),  # the shorter name first
        ("mi300", ["MI300X"]),
        ("H200 SMX 141GB", ["H200 SXM 141GB", "H100 SXM 80GB"]),
        ("PCIe", ["H100 PCIe 80GB"]),
        ("RTX5090", []),
        ("x", []),
    ],
)
def test_the_nearest_names_are_at_most_three(word: str, near: list[str]) -> None:
    assert nearest(word, ACCELERATORS) == near


@pytest.mark.parametrize(
    ("word", "columns"),
    [
        ("tp", ["tensor_parallel"]),
        ("TP", ["tensor_parallel"]),
        ("flops", ["matrix_flops_per_second"]),
        ("num_attention_heads", ["num_heads"]),
        ("hidden_sise", ["hidden_size", "ffn_hidden_size", "shared_ffn_hidden_size"]),
        (
            "bandwidth",
            ["hbm_bytes_per_second", "nvlink_bytes_per_second", "network_bytes_per_second"],
        ),
        ("colour", []),
    ],
)
def test_columns_are_known_by_their_names_in_other_programs(word: str, columns: list[str]) -> None:
    inputs = (*KNOWN_ELSEWHERE, "expert_tensor_parallel", "zero_stage")
    assert nearest_columns(word, inputs) == columns


def test_other_names_are_in_lower_case() -> None:
    words = {word for name in KNOWN_ELSEWHERE for word in COLUMNS[name].other_names}
    assert "d_model" in words
    assert words == {word.lower() for word in words}


@pytest.mark.parametrize(
    ("near", "question"),
    [
        ([], ""),
        (["a"], "did you mean a?"),
        (["a", "b"], "did you mean a or b?"),
        (["a", "b", "c"], "did you mean a, b or c?"),
    ],
)
def test_the_question_names_what_may_be_meant(near: list[str], question: str) -> None:
    assert did_you_mean(near) == question


@pytest.mark.parametrize(
    ("parts", "hint"),
    [
        ((), ""),
        (("", "b"), "b"),
        (("a", "", "b"), "a; b"),
        (("did you mean a?", "b", "c"), "did you mean a? b; c"),
    ],
)
def test_no_semicolon_follows_a_question_in_a_hint(parts: tuple[str, ...], hint: str) -> None:
    assert joined_hint(*parts) == hint


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("lora_rank", "LoRA is not modelled: all weights are trained"),
        ("cpu-offload", "offload to the host is not modelled"),
        ("num_layers_per_virtual_pipeline_stage", "give `virtual_pipeline`"),
        ("use_distributed_optimizer", "give `zero_stage` 1"),
        ("untie_embeddings_and_output_weights", "give `ties_embedding`, which is its opposite"),
        ("decoder_first_pipeline_num_layers", "did you mean layers_in_first_stage?"),
        ("account_for_embedding_in_pipeline_split", "did you mean counts_embedding?"),
        ("first_k_dense_replace", "did you mean num_dense_layers?"),
        ("save_interval", "checkpoint files are not modelled"),
        ("load", "checkpoint files are not modelled"),
        ("checkpoint_file", "checkpoint files are not modelled"),
        ("ckpt-format", "checkpoint files are not modelled"),
        ("checkpoint_activations", "give `activation_recompute` full"),
        ("optimizer", "the optimizer is Adam, and 8-bit optimizers are not modelled"),
        ("use_8bit_adam", "8-bit optimizers are not modelled"),
        ("colour", ""),
    ],
)
def test_words_of_other_programs_lead_to_an_input_or_a_sentence(word: str, hint: str) -> None:
    assert hint_on_word(word, tuple(COLUMNS)).startswith(hint)
    assert bool(hint) == bool(hint_on_word(word, tuple(COLUMNS)))


def test_a_word_leads_to_no_input_that_an_estimator_lacks() -> None:
    assert "zero_stage" not in hint_on_word("use_distributed_optimizer", ("num_layers",))


@pytest.mark.parametrize("accelerator", ["A10", "H30", "A100-60GB"])
def test_another_product_is_not_suggested_alone(accelerator: str) -> None:
    assert packaged_catalog().hint_on_name("accelerator", accelerator).count(", ") > 3


@pytest.mark.parametrize("accelerator", ["TPU v4", "tpu", "v5p-128", "v4-8", "v6e", "Trillium"])
def test_tpus_are_not_modelled(accelerator: str) -> None:
    assert hint_on_word(accelerator, (), "accelerator").startswith("TPUs are not modelled")


def test_other_words_name_columns_that_exist() -> None:
    with (Path(names.__file__).parent / "other_words.csv").open(encoding="utf-8") as lines:
        columns = {row["column"] for row in csv.DictReader(lines)}
    assert columns <= {"", *COLUMNS}
