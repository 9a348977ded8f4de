"""What users of named programs asked: each answer is one that the program can run, or says why not.

Texts are parts of the answer; one after `not` is in none. `SMALL` and `LARGE` are runs that several
questions have.
"""

from __future__ import annotations

import json

import pytest

from tests.shared import Command, Document

H100 = ("accelerator=H100",)
SMALL = ("model=llama3_8B", *H100, "num_gpus=64", "global_batch_size=64")
LARGE = ("model=llama3_70B", *H100, "num_gpus=64", "global_batch_size=64")
CUSTOM = ("hidden_size=4096", "num_heads=32", "seq_len=4096", "vocab_size=32000", *H100)
V100 = ("model=gpt3_1.3B", "accelerator=V100", "num_gpus=8", "global_batch_size=64")
SIXTEEN = ("model=llama3_8B", *H100, "num_gpus=16")

EXCLUDED = {
    "llm_foundry": (*LARGE, "framework=llm_foundry", "pipeline_parallel=4"),
    "deepspeed": (*SMALL, "framework=deepspeed", "zero_stage=3", "pipeline_parallel=4"),
    "deepspeed ": (*SMALL, "framework=deepspeed", "pipeline_parallel=4", "virtual_pipeline=2"),
    "nanotron": (*SMALL, "framework=nanotron", "pipeline_parallel=4", "virtual_pipeline=2"),
    "megatron_lm_2022": (*SMALL, "framework=megatron_lm_2022", "zero_stage=3"),
    "megatron_lm_2022 ": (
        *("model=llama3_8B", *H100, "num_gpus=64", "global_batch_size=160"),
        *("framework=megatron_lm_2022", "tensor_parallel=2", "pipeline_parallel=4"),
        *("virtual_pipeline=2", "microbatch_size=4"),
    ),
    # fewer microbatches than stages
    "megatron_core": (
        *(*CUSTOM, "num_layers=36", "num_gpus=48", "global_batch_size=3"),
        *("tensor_parallel=8", "pipeline_parallel=6", "virtual_pipeline=3"),
    ),
}
"""Program -> a layout that it cannot run."""


@pytest.mark.parametrize("program", EXCLUDED)
def test_why_says_that_a_program_does_not_run_a_layout(program: str, why: Document) -> None:
    answer = why(*EXCLUDED[program])
    assert not answer["is_admitted"]
    assert f"is not run by {program.strip()}" in json.dumps(answer)


SAID = {
    "a mixture of experts whose width is split fits": (
        *("model=mixtral_8x7B", *H100, "num_gpus=16", "tensor_parallel=2"),
        *("expert_parallel=8", "global_batch_size=128", "seq_len=4096"),
    ),
    "a V100 has no fused attention": V100,
    "embedding and loss count as layers": (
        *(*CUSTOM, "num_layers=46", "num_gpus=32", "global_batch_size=64"),
        *("tensor_parallel=4", "pipeline_parallel=4"),
    ),
    "the last stage has the rest": (
        *("model=deepseek_v3", "accelerator=GB300", "num_gpus=64", "global_batch_size=512"),
        *("pipeline_parallel=8", "expert_parallel=8"),
    ),
    "whole numbers print whole": (
        *(*CUSTOM, "num_layers=36", "num_gpus=48", "global_batch_size=12"),
        *("tensor_parallel=8", "pipeline_parallel=6", "virtual_pipeline=3", "microbatch_group=6"),
    ),
    "one replica shards nothing": (
        *(*LARGE, "tensor_parallel=8", "pipeline_parallel=8", "microbatch_size=16"),
    ),
    "the hint keeps every rule": (*SIXTEEN, "context_parallel=16", "seq_len=8200"),
}
TEXTS = {
    "a mixture of experts whose width is split fits": ("etp2", "not does not fit"),
    "a V100 has no fused attention": ("attention unfused", "not does not fit"),
    "embedding and loss count as layers": (
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
    ),
    "the last stage has the rest": ("--decoder-last-pipeline-num-layers 5",),
    "whole numbers print whole": ("group6 ", "not group 6.0", "not None"),
    "one replica shards nothing": ("microbatch_size       16    1 ",),
    "the hint keeps every rule": ("excluded by 1 rule", "not use 10 or 20"),
}


@pytest.mark.parametrize("question", SAID)
def test_why_answers_in_the_words_of_the_program(question: str, warehouse: Command) -> None:
    code, out, err = warehouse("why", *SAID[question])
    assert (code, "error" in err) == (0, False)
    assert_said(out, TEXTS[question])


def assert_said(answer: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        unwanted = text.removeprefix("not ") if text.startswith("not ") else ""
        assert unwanted not in answer if unwanted else text in answer, text


REFUSED = {
    (*V100, "precision=bf16"): ("is not possible on V100 SXM2", "use fp16"),
    (*V100, "precision=fp16", "attention=flash"): ("is not possible on V100 SXM2", "use unfused"),
}


@pytest.mark.parametrize("pairs", REFUSED, ids=lambda pairs: pairs[-1])
def test_why_refuses_what_there_is_not(pairs: tuple[str, ...], warehouse: Command) -> None:
    code, out, err = warehouse("why", *pairs)
    assert (code, out) == (3, "")
    assert_said(err, REFUSED[pairs])


def test_plan_names_the_rule_that_why_names(warehouse: Command) -> None:
    run = ("--model", "llama2_7B", "--tokens", "1T", "--accelerator", "A100", "--gpus", 8)
    code, _, err = warehouse("plan", *run, "tensor_parallel=2", "pipeline_parallel=8")
    assert code == 3
    assert "`num_gpus` 8 is not the product of the degrees, 16" in err
    assert "divides" not in err
