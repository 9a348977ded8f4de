"""Names in any spelling, and the columns and rows that a misspelt word means."""

from __future__ import annotations

import pytest

from estimators.columns import COLUMNS
from estimators.names import did_you_mean, folded, joined_hint, nearest, nearest_columns

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
        ("hidden_sise", ["hidden_size", "ffn_hidden_size", "expert_ffn_hidden_size"]),
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
