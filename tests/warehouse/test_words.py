"""Layouts as they are printed, and other programs' names of inputs, are read as inputs."""

from __future__ import annotations

from typing import Any

import pytest

from estimators import registry
from warehouse.errors import UsageError
from warehouse.evaluate.one import read_pairs, read_values
from warehouse.show.units import layout_in_words

USUAL = registry.get(registry.default("plan"))
OTHER = registry.get(registry.default("operations"))


def read(*words: str, estimator: Any = USUAL) -> dict[str, str]:
    return read_pairs(estimator, estimator.relations[0], words)


def test_a_part_of_a_layout_gives_its_words_alone() -> None:
    assert read("dp32", "tp4", "cp2", "pp4", "vp20", "zero1") == {
        "data_parallel": "32",
        "tensor_parallel": "4",
        "context_parallel": "2",
        "pipeline_parallel": "4",
        "virtual_pipeline": "20",
        "zero_stage": "1",
    }


LAYOUTS = (
    {"data_parallel": 6, "tensor_parallel": 8, "uses_sequence_parallel": True},
    {"data_parallel": 2, "pipeline_parallel": 4, "virtual_pipeline": 5, "zero_stage": 0},
    {"data_parallel": 2, "activation_recompute": "full", "attention": "unfused"},
    {"data_parallel": 2, "pipeline_parallel": 4, "counts_embedding": True, "counts_loss": True},
    {"data_parallel": 2, "pipeline_parallel": 4, "schedule": "dualpipe", "expert_parallel": 8},
    {"data_parallel": 2, "pipeline_layout": "Et*3|(tt|)*29,m|L", "layers_in_last_stage": 7},
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_printed_layout_is_read_as_it_was(layout: dict[str, Any]) -> None:
    usual = {"tensor_parallel": 1, "pipeline_parallel": 1, "microbatch_size": 1, "zero_stage": 1}
    whole = {**usual, "uses_sequence_parallel": False, **layout}
    found = read(layout_in_words(whole))
    typed = read_values(USUAL.relations[0], found)
    assert layout_in_words(typed) == layout_in_words(whole)
    assert found["uses_sequence_parallel"] == str(whole["uses_sequence_parallel"]).lower()
    assert found["attention"] == layout.get("attention", "flash")


def test_parts_in_one_domain_and_a_second_axis_are_read() -> None:
    words = "summa_2d dp4 tp8x2 pp128 micro1 panels32 (nvlink dp2 tp4)"
    found = read(words, estimator=OTHER)
    assert found["strategy"] == "summa_2d"
    assert (found["tensor_parallel"], found["tensor_parallel_2"]) == ("8", "2")
    assert found["summa_panels"] == "32"
    assert (found["nvlink_data_parallel"], found["nvlink_tensor_parallel"]) == ("2", "4")
    assert found["nvlink_pipeline_parallel"] == "1"


def test_what_is_given_as_well_comes_before_what_a_layout_leaves_out() -> None:
    found = read("dp2 tp4 micro1", "activation_recompute=full")
    assert (found["activation_recompute"], found["uses_sequence_parallel"]) == ("full", "false")


MEGATRON = {
    "tensor-model-parallel-size=4": {"tensor_parallel": "4"},
    "--pipeline-model-parallel-size=8": {"pipeline_parallel": "8"},
    "num-virtual-stages-per-pipeline-rank=5": {"virtual_pipeline": "5"},
    "use-distributed-optimizer=true": {"zero_stage": "1"},
    "use-distributed-optimizer=false": {},
    "recompute-granularity=full": {"activation_recompute": "full"},
    "bf16=true": {"precision": "bf16"},
    "parallelism.tensor_parallel_degree=8": {"tensor_parallel": "8"},
    "parallelism.data_parallel_shard_degree=-1": {"zero_stage": "3"},
    "parallelism.data_parallel_shard_degree=16": {"zero_stage": "3", "data_parallel": "16"},
    "activation_checkpoint.mode=selective": {"activation_recompute": "selective"},
}


@pytest.mark.parametrize(("pair", "columns"), MEGATRON.items())
def test_names_of_other_programs_are_read(pair: str, columns: dict[str, str]) -> None:
    assert read(pair) == columns


@pytest.mark.parametrize("word", ["tensor_parallel", "xx4", "(tp4)x", "recompute"])
def test_other_words_are_refused_with_both_forms(word: str) -> None:
    with pytest.raises(UsageError, match="is not of the form key=value") as refused:
        read(word)
    assert "dp8 tp4 pp2 micro1" in str(refused.value.hint)
