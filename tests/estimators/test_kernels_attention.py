"""Rates of fused attention by program, against times worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.contract import Catalog
from estimators.kernels.attention import (
    BACKWARD_PRODUCTS,
    PROGRAMS,
    MeasuredAttention,
    default_program,
    record_of,
)
from estimators.kernels.gemms import FORMULA, measured_accelerators
from tests.estimators.training_step_cases import IDEAL, LLAMA, evaluate, resolve
from warehouse.database.catalog import packaged_catalog

RATE: dict[str, Any] = {
    "attention_program": "flash_2",
    "accelerator": "chip",
    "attention_flops_per_second": 8e11,
    "half_rate_length": 1024,
    "least_waves": 2,
    "backward_rate_ratio": 0.8,
    "backward_half_length": 0,
}


def catalog(*rates: dict[str, Any]) -> Catalog:
    rows = {str(place): {**RATE, "head_size": 128, **rate} for place, rate in enumerate(rates)}
    return Catalog(
        {
            "accelerator": {"chip": {"accelerator": "chip", "bf16_flops_per_second": 1e12}},
            "attention_rate": rows,
            "attention_default": {
                "given": {"attention_program": "flash_2"},
                "given@chip": {"attention_program": "triton"},
                "other@chip": {"attention_program": "cudnn"},
            },
            "framework": {"given": {"framework": "given"}},
            "step_constant": {},
        }
    )


def rates(known: Catalog, **values: Any) -> MeasuredAttention:
    case: dict[str, Any] = {"kernels": "chip", "accelerator": None, "program": "flash_2"}
    return MeasuredAttention(known, **{**case, "head_size": 128, **values})


def test_a_rate_grows_with_the_sequence_and_with_the_waves() -> None:
    found = rates(catalog({}))
    # 8e11 x 1024 / 2048 = 4e11 a second; backward 2.5 times the FLOPs at 0.8 of it
    assert found.seconds(4e11, 1024, 1000, 1e12, 4) == pytest.approx((1.0, 3.125))
    # four times as long: 8e11 x 3072 / 4096
    assert found.seconds(6e11, 3072, 1000, 1e12, 4)[0] == pytest.approx(1.0)
    # 4 blocks where 2 x 4 fill the chip: half of the rate
    assert found.seconds(4e11, 1024, 4, 1e12, 4)[0] == pytest.approx(2.0)
    # another peak, the same share of it
    assert found.seconds(4e11, 1024, 1000, 4e12, 4)[0] == pytest.approx(0.25)


def test_the_backward_pass_is_slower_on_short_sequences() -> None:
    found = rates(catalog({"backward_half_length": 1024}))
    # 0.8 x 1024 / 2048 = 0.4
    forward, backward = found.seconds(4e11, 1024, 1000, 1e12, 4)
    assert backward == pytest.approx(2.5 * forward / 0.4)


def test_the_row_is_that_of_the_largest_head_size_up_to_the_given() -> None:
    known = catalog({"head_size": 64}, {"head_size": 128}, {"head_size": 256})
    sizes = {64: 64, 80: 64, 128: 128, 200: 128, 512: 256, 32: 64}
    for given, expected in sizes.items():
        row = record_of(known, "chip", "flash_2", given)
        assert row is not None
        assert row["head_size"] == expected
    assert record_of(known, "chip", "cudnn", 128) is None


def test_rows_of_a_batch_each_have_their_program() -> None:
    known = catalog({}, {"attention_program": "triton", "attention_flops_per_second": 4e11})
    programs = np.array(["flash_2", "triton", FORMULA], dtype=object)
    found = rates(known, program=programs, kernels=np.array(["chip"] * 3, dtype=object))
    assert found
    forward = np.asarray(found.seconds(np.full(3, 4e11), 1024, 1000, 1e12, 4)[0])
    assert forward[:2] == pytest.approx([1.0, 2.0])
    assert np.isnan(forward[2])
    assert not rates(known, program=FORMULA)


def test_a_framework_has_its_program_and_another_one_where_the_table_says() -> None:
    known = catalog({})
    assert default_program(known, "given", "chip") == "triton"
    assert default_program(known, "given", "elsewhere") == "flash_2"
    assert default_program(known, "other", "elsewhere") == FORMULA


def test_a_step_takes_the_time_of_its_program() -> None:
    """LLAMA: 4 layers, 4 heads of 128, 1,024 tokens: 2 x 1024^2 x 512 = 2^30 FLOPs forward."""
    [accelerator] = [{**IDEAL, **LLAMA, "num_gpus": 1, "global_batch_size": 1}]
    known = packaged_catalog()
    row = {**accelerator, "kernels": "H100", "attention_program": "flash_2"}
    row |= {"matrix_flops_per_second": 989.5e12, "attention_rate_factor": 0.5, "num_sms": 1}
    found = evaluate([{**row, "framework": "megatron_core"}], known)
    rate = 344e12 * 1024 / (1024 + 330) / 2
    backward = rate * 0.945 * 1024 / (1024 + 200)
    expected = 4 * 2**30 * (1 / rate + 2.5 / backward)
    assert found["attention_seconds"][0] == pytest.approx(expected)


# ---- the packaged tables ----


def test_every_accelerator_with_kernels_knows_every_program_that_runs_there() -> None:
    known = packaged_catalog()
    for name in measured_accelerators(known):
        is_hopper = name.startswith(("H100", "H200"))
        for program in PROGRAMS:
            found = record_of(known, name, program, 128) is not None
            # FlashAttention has no kernels of Blackwell, FlashAttention-3 those of Hopper alone,
            # attention in MXFP8 those of Blackwell; version 9.22 of cuDNN is published for two
            is_blackwell = "B" in name.split()[0]
            runs = {"flash_1": not is_blackwell, "flash_3": is_hopper, "cudnn_mxfp8": is_blackwell}
            runs["cudnn_9_22"] = name.startswith("GB")
            assert found == runs.get(program, True), (name, program)


@pytest.mark.parametrize(
    ("accelerator", "head_size", "forward", "backward"),
    [
        ("GB200 (per GPU)", 128, (1330, 1685, 1902, 1999), (745, 1054, 1287, 1436)),
        ("GB200 (per GPU)", 192, (1535, 1925, 2219, 2355), (1047, 1364, 1494, 1552)),
        ("GB300 (per GPU)", 128, (1751, 2272, 2570, 2727), (811, 1143, 1404, 1563)),
        ("GB300 (per GPU)", 192, (2069, 2517, 2829, 2998), (1158, 1522, 1780, 1844)),
    ],
)
def test_attention_in_mxfp8_has_the_rates_of_its_benchmark(
    accelerator: str, head_size: int, forward: tuple[int, ...], backward: tuple[int, ...]
) -> None:
    """At 2,048, 4,096, 8,192 and 16,384 tokens, in TFLOP/s."""
    known = packaged_catalog()
    measured = MeasuredAttention(known, accelerator, None, "cudnn_mxfp8", head_size)
    peak = float(str(known.tables["accelerator"][accelerator]["bf16_flops_per_second"]))
    for number, length in enumerate((2048, 4096, 8192, 16384)):
        found = measured.seconds(1e12, length, 1e9, peak, 148)
        rates = (1 / found[0], BACKWARD_PRODUCTS / found[1])
        assert rates == pytest.approx((forward[number], backward[number]), rel=0.05)


def test_attention_in_mxfp8_does_not_skip_what_is_outside_a_window_backward() -> None:
    """LLAMA: 2^30 FLOPs forward; a window of 256 leaves what 448 of 1,024 tokens have."""
    row = {**IDEAL, **LLAMA, "num_gpus": 1, "global_batch_size": 1, "framework": "megatron_core"}
    row |= {"kernels": "GB200", "attention_program": "cudnn_mxfp8", "num_sms": 1}
    row |= {"precision": "fp8", "number_recipe": "mxfp8", "transposes_operands": False}
    row |= {"matrix_flops_per_second": 2.5e15, "fp8_flops_per_second": 5e15}
    row |= {"attention_window": 256, "window_period": 0}
    found = evaluate([row, {**row, "attention_window": 0}], packaged_catalog())
    whole, short = (2150e12 * length / (length + 1150) for length in (1024, 448))
    backward = whole * 0.73 * 1024 / (1024 + 650)
    expected = [4 * 2**30 * (448 / 1024 / short + 2.5 / backward)]
    expected += [4 * 2**30 * (1 / whole + 2.5 / backward)]
    assert found["attention_seconds"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("program", "head_size", "published"),
    [
        ("flash_2", 64, (232, 257, 273)),
        ("flash_2", 128, (265, 294, 308)),
        ("flash_1", 64, (136, 138, 149)),
        ("flash_1", 128, (108, 126, 135)),
    ],
)
def test_both_passes_on_h100_are_those_that_the_authors_show(
    program: str, head_size: int, published: tuple[int, ...]
) -> None:
    """TFLOP/s at 2, 4, 8 thousand tokens, causal (flash2_h100_fwd_bwd_benchmark.png)."""
    known = packaged_catalog()
    case = {"kernels": "H100 SXM 80GB", "program": program, "head_size": head_size}
    found = rates(known, **case)
    for length, both in zip((2048, 4096, 8192), published, strict=True):
        forward, backward = found.seconds(1.0, length, 1e9, 989.5e12, 132)
        assert 3.5 / (forward + backward) == pytest.approx(both * 1e12, rel=0.09)


@pytest.mark.parametrize(
    ("program", "head_size", "published"),
    [
        ("flash_2", 64, (262, 284, 295)),
        ("flash_2", 128, (298, 319, 333)),
        ("flash_2", 256, (278, 293, 297)),
        ("cudnn", 64, (334, 363, 379)),
        ("cudnn", 128, (484, 518, 529)),
        ("cudnn", 256, (450, 483, 497)),
    ],
)
def test_forward_passes_on_h100_are_those_that_the_authors_show(
    program: str, head_size: int, published: tuple[int, ...]
) -> None:
    """TFLOP/s at 2, 4, 8 thousand tokens, causal (flash3_fp16_fwd.png)."""
    known = packaged_catalog()
    case = {"kernels": "H100 SXM 80GB", "program": program, "head_size": head_size}
    found = rates(known, **case)
    for length, forward in zip((2048, 4096, 8192), published, strict=True):
        seconds, _ = found.seconds(1.0, length, 1e9, 989.5e12, 132)
        assert 1 / seconds == pytest.approx(forward * 1e12, rel=0.025)


def test_both_passes_of_flash_2_on_a100_are_those_that_its_authors_show() -> None:
    """173, 182, 189 TFLOP/s at 4, 8, 16 thousand tokens (flash2_a100_fwd_bwd_benchmark.png)."""
    known = packaged_catalog()
    found = rates(known, kernels="A100 SXM 80GB")
    for length, published in ((4096, 173), (8192, 182), (16384, 189)):
        forward, backward = found.seconds(1.0, length, 1e9, 312e12, 108)
        assert 3.5 / (forward + backward) == pytest.approx(published * 1e12, rel=0.03)


def test_a_row_with_an_efficiency_of_attention_takes_the_formula() -> None:
    known = packaged_catalog()
    row = {"accelerator": "A100 80GB", "framework": "llm_foundry", "num_layers": 2}
    row |= {"hidden_size": 256, "num_heads": 2, "seq_len": 1024, "num_gpus": 1}
    row |= {"global_batch_size": 1}
    columns, refusals = resolve(
        [
            row,
            {**row, "flash_backward_efficiency": 0.5},
            {**row, "accelerator": "H100"},
            {**row, "accelerator": "V100"},
        ],
        known,
    )
    assert not refusals
    assert columns["attention_program"].tolist() == ["triton", FORMULA, "flash_2", FORMULA]


def test_a_program_without_a_rate_is_refused() -> None:
    known = packaged_catalog()
    row = {"accelerator": "A100 80GB", "framework": "fsdp", "num_layers": 2, "hidden_size": 256}
    row |= {"num_heads": 2, "seq_len": 1024, "num_gpus": 1, "global_batch_size": 1}
    given = [
        {**row, "attention_program": "flash_3"},
        {**row, "attention_program": FORMULA},
        {**row, "accelerator": "V100", "attention_program": "flash_2"},
    ]
    _, refusals = resolve(given, known)
    found = [(one.row, one.column, one.value, one.reason, one.hint) for one in refusals]
    kept = "known: formula, cudnn, flash_2, flash_1, triton"
    on_a100 = "has no measured rate on A100 SXM 80GB"
    assert found == [
        (0, "attention_program", "flash_3", on_a100, kept),
        (2, "attention_program", "flash_2", "has no measured rate", "known: formula"),
    ]


def test_attention_in_mxfp8_needs_its_recipe() -> None:
    row = {"model": "llama3_8B", "accelerator": "GB200", "num_gpus": 1, "global_batch_size": 1}
    row |= {"framework": "megatron_core", "attention_program": "cudnn_mxfp8"}
    given = [{**row, "precision": "bf16"}, {**row, "precision": "fp8"}]
    _, refusals = resolve(given, packaged_catalog())
    assert [(one.row, one.column, one.reason) for one in refusals] == [
        (0, "attention_program", "has operands that only `number_recipe` mxfp8 makes")
    ]


@pytest.mark.parametrize(
    ("accelerator", "heads", "measured", "backward_share"),
    [
        # two sequences of 4096 tokens: TFLOP/s forward, and those backward over them
        ("GB200 (per GPU)@cudnn_9_22", 128, 1406e12, 1057 / 1406),
        ("GB300 (per GPU)@cudnn_9_22", 128, 1590e12, 1143 / 1590),
        # one sequence of 4096 tokens, 4096^2 x heads x 320 FLOPs over the measured seconds;
        # backward as SimuMax has it: passes of 4096 tokens have 0.81 of the forward rate
        ("GB200 (per GPU)", 128, 1195e12, 0.81),
        ("GB200 (per GPU)", 64, 1089e12, 0.81),
        ("GB300 (per GPU)", 128, 1375e12, 0.81),
        ("GB300 (per GPU)", 64, 1271e12, 0.81),
        ("B300 SXM", 128, 1290e12, 0.81),
        ("B300 SXM", 64, 1216e12, 0.81),
    ],
)
def test_latent_attention_has_the_rates_measured_with_keys_wider_than_values(
    accelerator: str, heads: int, measured: float, backward_share: float
) -> None:
    known = packaged_catalog()
    accelerator, _, program = accelerator.partition("@")
    found = MeasuredAttention(known, accelerator, None, program or "cudnn", 192.0)
    chip: dict[str, Any] = dict(known.tables["accelerator"][accelerator])
    flops = 4096.0**2 * heads * 320
    blocks = heads * 4096 / 128
    peak, sms = chip["bf16_flops_per_second"], chip["num_sms"]
    forward, backward = found.seconds(flops, 4096, blocks, peak, sms, 2.6)
    assert flops / forward == pytest.approx(measured, rel=0.08)
    assert 2.6 * forward / backward == pytest.approx(backward_share, rel=0.03)
