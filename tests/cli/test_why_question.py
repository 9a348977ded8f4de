"""`warehouse why`: the batch and the domain that it takes and prints where none is given."""

from __future__ import annotations

import pytest

from tests.shared import Command, Document

LARGE = ("model=llama3_70B", "accelerator=H100", "num_gpus=1024", "tensor_parallel=8")


def test_the_batch_is_that_of_a_plan(why: Document) -> None:
    # 80 layers of 855,654,400 parameters, 20 tokens for each: 6 x 68.45e9 x 1.369e12 = 5.62e23
    # FLOPs; (0.0562)^(1/6) x 2048^2 / 8192 = 317 sequences, of powers of two nearest 256
    found = why(*LARGE, "pipeline_parallel=8")
    question = found["question"]
    assert (question["global_batch_size"], question["is_default_batch"]) == (256, True)
    assert question["dataset_tokens"] == 20 * 80 * 855_654_400
    assert found["inputs"]["global_batch_size"] == 256
    # 15e12 tokens: (0.616)^(1/6) x 512 = 472 sequences
    found = why(*LARGE, "pipeline_parallel=8", "--tokens", 15e12)
    assert found["question"]["global_batch_size"] == 512


def test_a_batch_that_the_layout_cannot_take_becomes_a_multiple_that_it_can(
    why: Document, warehouse: Command
) -> None:
    # 48 replicas; 6.98e9 parameters, 1.396e11 tokens: 148 sequences, 128; 2.7 rounds, 3 x 48
    pairs = ("model=llama3_8B", "accelerator=H100", "num_gpus=96", "tensor_parallel=2")
    found = why(*pairs)
    assert found["inputs"]["global_batch_size"] == 144
    assert found["is_admitted"]
    _, out, _ = warehouse("why", *pairs)
    assert "rounded to a multiple of 48, which the layout takes at once" in out


@pytest.mark.parametrize(
    ("pairs", "batch"),
    [(("global_batch_size=128",), 128), (("num_microbatches=4",), 64)],
)
def test_a_batch_that_is_given_is_taken_without_a_rule(
    why: Document, warehouse: Command, pairs: tuple[str, ...], batch: int
) -> None:
    # 1,024 GPUs over 8 x 8: 16 replicas
    found = why(*LARGE, "pipeline_parallel=8", *pairs)
    assert found["inputs"]["global_batch_size"] == batch
    assert found["question"]["is_default_batch"] is False
    _, out, _ = warehouse("why", *LARGE, "pipeline_parallel=8", *pairs)
    assert f"batch {batch} sequences" in out
    assert "as `plan` takes" not in out


def test_the_request_comes_before_the_answer(warehouse: Command) -> None:
    code, out, _ = warehouse("why", *LARGE, "pipeline_parallel=8", "global_batch_size=512")
    assert code == 0
    assert out.splitlines()[:3] == [
        "llama3_70B on 1,024 x H100 SXM 80GB in fast domains of 8, sequences of 8,192, "
        "framework megatron_core",
        "batch 512 sequences (4,194,304 tokens)",
        "layout dp16 tp8 seq pp8 micro1 zero1",
    ]
    # also where a rule excludes the layout
    code, out, _ = warehouse("why", *LARGE, "pipeline_parallel=90", "global_batch_size=512")
    assert code == 0
    assert out.startswith("llama3_70B on 1,024 x H100 SXM 80GB")


def test_the_domain_of_a_system_is_as_it_is_sold(why: Document) -> None:
    pairs = ("model=gpt3_1T", "accelerator=B200", "num_gpus=64", "tensor_parallel=8")
    assert why(*pairs, "--estimator", "roofline")["inputs"]["nvlink_size"] == 8
    given = why(*pairs, "nvlink_size=4", "--estimator", "roofline")
    assert given["inputs"]["nvlink_size"] == 4


def test_an_unknown_model_says_how_to_find_one_or_to_give_a_shape(warehouse: Command) -> None:
    code, out, err = warehouse("why", "model=lama3_70B", "num_gpus=8", "accelerator=H100")
    assert (code, out) == (3, "")
    assert "did you mean llama3_70B" in err
    assert 'warehouse sql "select model from model"' in err


def test_rounding_errors_are_shown_as_zero() -> None:
    from warehouse.show.units import unless_rounding

    assert unless_rounding(1.11e-16, 3.5) == 0
    assert unless_rounding(-4.4e-16, 1.2) == 0
    assert unless_rounding(2.2e-5, 3.5) == 2.2e-5
    assert unless_rounding(-0.1, 3.5) == -0.1


def test_no_rounding_is_printed_of_the_best_layout(why: Document, warehouse: Command) -> None:
    pairs = ("model=gpt3_1.3B", "accelerator=H100 SXM 80GB", "num_gpus=8", "global_batch_size=64")
    best = why(*pairs)["best"]
    degrees = ("tensor_parallel", "context_parallel", "pipeline_parallel", "microbatch_size")
    names = (*degrees, "virtual_pipeline", "zero_stage", "activation_recompute")
    own = [f"{name}={best[name]}" for name in names]
    _, out, _ = warehouse("why", *pairs, *own)
    assert "rank 1 of" in out
    assert "e-1" not in out


def test_options_of_plan_give_the_same_problem_and_batch(why: Document, warehouse: Command) -> None:
    layout = ("tensor_parallel=8", "pipeline_parallel=8")
    options = ("--model", "llama3_70B", "--accelerator", "H100", "--gpus", 1024, "--tokens", "15T")
    found = why(*options, *layout)
    assert found["inputs"] == why(*LARGE, *layout[1:], "--tokens", 15e12)["inputs"]
    _, _, err = warehouse("plan", *options, "--dry-run")
    batch = found["inputs"]["global_batch_size"]
    assert f"batch {batch} (usual for its size)" in err
    _, out, _ = warehouse("why", *options, *layout)
    assert f"batch {batch} sequences (4,194,304 tokens), as `plan` takes for 15 T tokens;" in out
    assert why(*options, *layout, "--batch", 128)["inputs"]["global_batch_size"] == 128
    # without tokens it says where they come from
    _, out, _ = warehouse("why", *LARGE, "pipeline_parallel=8")
    assert "1.369 T tokens (20 per active parameter, as no --tokens is given)" in out
    code, _, err = warehouse("why", *options, *layout, "model=llama3_8B")
    assert code == 3
    assert "is given twice" in err


def test_a_layout_is_given_as_it_is_printed_or_by_the_flags_of_other_programs(
    why: Document,
) -> None:
    layout = ("pipeline_parallel=8", "context_parallel=2", "zero_stage=1")
    flags = ("--context-parallel-size", 2, "--pipeline-model-parallel-size=8")
    wanted = why(*LARGE, *layout)["inputs"]
    assert why(*LARGE, "pp8", "cp2", "zero1")["inputs"] == wanted
    assert why(*LARGE, *flags, "--use-distributed-optimizer")["inputs"] == wanted


def test_a_word_that_is_no_part_of_a_layout_is_refused(warehouse: Command) -> None:
    code, out, err = warehouse("why", *LARGE, "fast")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("or a layout as it is printed: dp8 tp4 pp2 micro1")


def test_a_rate_of_an_own_system_in_another_unit_is_questioned(warehouse: Command) -> None:
    rates = ("vector_flops_per_second=78e12", "hbm_bytes=80e9", "hbm_bytes_per_second=2e12")
    links = ("nvlink_bytes_per_second=3e11", "network_bytes_per_second=25e9", "nics_per_gpu=1")
    rest = ("nvlink_efficiency=0.7", "network_efficiency=0.7", "flops_efficiency=0.8")
    waits = ("nvlink_latency_seconds=1e-6", "network_latency_seconds=1e-6", "launch_seconds=1e-6")
    layout = ("--model", "gpt3_175B", "num_gpus=64", "nvlink_size=8", "tensor_parallel=8")
    given = (*layout, *rates, *links, *rest, *waits, "matrix_flops_per_second=312")
    code, out, err = warehouse("why", "--estimator", "roofline", *given)
    assert (code, out) == (3, "")
    assert "`matrix_flops_per_second` 312.0 is less than 1e+06 FLOP/s\n" in err
    assert "hint: it is in FLOP/s: write 1e12 for 1 TFLOP/s\n" in err
