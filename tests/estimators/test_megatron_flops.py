"""Equations 2 to 4 of arXiv 2104.04473: the paper's figures, and what holds of any GPT."""

from __future__ import annotations

import csv
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import Catalog
from estimators.megatron_flops.estimator import MEGATRON_FLOPS, RELATION
from estimators.training_step.estimator import RELATION as STEP_RELATION
from estimators.training_step.estimator import TRAINING_STEP
from tests.estimators.parity import evaluated
from tests.examples import examples
from warehouse.database import resources

TINY = {
    "num_layers": 2,
    "hidden_size": 8,
    "seq_len": 6,
    "vocab_size": 10,
    "global_batch_size": 8,
    "num_gpus": 4,
    "matrix_flops_per_second": 1e6,
}
"""P = 1,872; a step has 663,552 + 23,040 FLOPs with recomputation, 497,664 + 23,040 without."""

GPT3 = {
    "model": "megatron_175B",
    "accelerator": "A100 SXM 80GB",
    "num_gpus": 1024,
    "global_batch_size": 1536,
    "dataset_tokens": 300e9,
    "achieved_flops_per_second_per_gpu": 140e12,
}
"""The first example of section 5.1."""


def run(catalog: Catalog, **values: Any) -> dict[str, Any]:
    return evaluated(MEGATRON_FLOPS, RELATION, pl.DataFrame([values]), catalog).row(0, named=True)


def published(reference: str) -> list[dict[str, str]]:
    path = resources.reference_directory() / "printed_step.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["reference"] == reference]


# ---- the paper's figures ----


@pytest.mark.parametrize(
    "row", published("published_megatron_scaling"), ids=lambda row: str(row["printed_model"])
)
def test_parameters_are_those_of_table_1(catalog: Catalog, row: dict[str, str]) -> None:
    found = run(
        catalog,
        model=f"megatron_{row['printed_model']}",
        accelerator=row["accelerator"],
        num_gpus=int(row["num_gpus"]),
        global_batch_size=int(row["global_batch_size"]),
    )
    # printed in billions with one digit behind the point: 1.7 to 1008.0
    assert found["parameters"] == pytest.approx(float(row["parameters"]), abs=0.05e9)


def test_the_step_of_the_largest_model_is_equation_3_in_whole_numbers(catalog: Catalog) -> None:
    # B s (96 l h^2 + 16 l h s + 6 h V), the brackets multiplied out, in integers of any size
    batch, length, layers, hidden, vocabulary = 3072, 2048, 128, 25600, 51200
    a_token = 96 * layers * hidden**2 + 16 * layers * hidden * length + 6 * hidden * vocabulary
    found = run(
        catalog,
        model="megatron_1T",
        accelerator="A100 SXM 80GB",
        num_gpus=3072,
        global_batch_size=batch,
    )
    assert batch * length * a_token > 2**63
    assert found["step_flops"] == pytest.approx(batch * length * a_token, rel=1e-14)


def test_the_rate_of_table_1_times_its_gpus_is_its_aggregate(catalog: Catalog) -> None:
    # the paper divides equation 3 by the measured time: at 163 TFLOP/s, 502.0 PFLOP/s on 3,072
    found = run(
        catalog,
        model="megatron_1T",
        accelerator="A100 SXM 80GB",
        num_gpus=3072,
        global_batch_size=3072,
        achieved_flops_per_second_per_gpu=163e12,
    )
    aggregate = found["step_flops"] / found["step_seconds"]
    assert aggregate == pytest.approx(502.0e15, rel=0.5 / 163)
    # 163 of 312 TFLOP/s is printed as 52 %
    assert found["hfu"] == pytest.approx(0.52, abs=0.005)


@pytest.mark.parametrize(
    ("changes", "days"),
    [
        ({}, 34),
        (
            {
                "model": "megatron_1T",
                "num_gpus": 3072,
                "global_batch_size": 3072,
                "dataset_tokens": 450e9,
                "achieved_flops_per_second_per_gpu": 163e12,
            },
            84,
        ),
    ],
    ids=["GPT-3", "1T"],
)
def test_equation_4_gives_the_days_of_section_5_1(
    catalog: Catalog, changes: dict[str, Any], days: int
) -> None:
    found = run(catalog, **{**GPT3, **changes})
    assert round(found["approximate_training_seconds"] / 86400) == days


@pytest.mark.parametrize(
    "row",
    published("published_megatron_training_time"),
    ids=lambda row: f"{row['published_group']} {row['parameters']} {row['num_gpus']}",
)
def test_the_days_of_table_2_are_those_of_equation_3_and_not_of_equation_4(
    catalog: Catalog, row: dict[str, str]
) -> None:
    shape = ("hidden_size", "num_layers", "vocab_size", "seq_len", "num_gpus", "global_batch_size")
    whole = {"dataset_tokens": 300e9, **{name: int(row[name]) for name in shape}}
    rate, days = (
        float(row[name])
        for name in ("achieved_flops_per_second_per_gpu", "training_days_as_printed")
    )
    # whole TFLOP/s and whole days are printed
    shortest, found, longest = (
        run(catalog, **whole, achieved_flops_per_second_per_gpu=rate + change)
        for change in (0.5e12, 0, -0.5e12)
    )
    assert shortest["training_seconds"] / 86400 <= days + 0.5
    assert longest["training_seconds"] / 86400 >= days - 0.5
    # s / (6 h) + V / (16 l h) less 13 / (12 h) + (V + s) / (12 l h): 2.6 % and 1.6 %
    short = 0.0259 if whole["hidden_size"] == 12288 else 0.0158
    assert found["approximation_error"] == pytest.approx(-short, abs=1e-4)


# ---- by hand ----


def test_every_figure_of_a_tiny_model_by_hand(catalog: Catalog) -> None:
    # B 8, s 6, l 2, h 8, V 10: 48 x 2 x 64 x 1.125 x 96 = 663,552, and 6 x 48 x 8 x 10 = 23,040
    found = run(catalog, **TINY, dataset_tokens=100, achieved_flops_per_second_per_gpu=5e5)
    expected = {
        # 12 x 2 x 64 + 13 x 2 x 8 + (10 + 6) x 8
        "parameters": 1872,
        "step_flops": 686_592,
        "model_flops": 520_704,
        "step_seconds": 0.343296,
        "mfu": 520_704 / (0.343296 * 4e6),
        "hfu": 0.5,
        "tokens_per_second_per_gpu": 48 / 0.343296 / 4,
        # 100 tokens in batches of 48: the third step is taken whole
        "num_steps": 3,
        "total_flops": 3 * 686_592,
        "training_seconds": 1.029888,
        "approximate_training_seconds": 8 * 100 * 1872 / 2e6,
        "approximation_error": 0.7488 / 1.029888 - 1,
    }
    assert found == {name: pytest.approx(value, rel=1e-12) for name, value in expected.items()}


def test_without_recomputation_a_step_has_three_quarters_of_the_layers_flops(
    catalog: Catalog,
) -> None:
    none = run(catalog, **TINY, dataset_tokens=96, activation_recompute="none")
    assert none["step_flops"] == none["model_flops"] == 520_704
    # 72 / 12 = 6 FLOPs a parameter and token
    seconds = 6 * 96 * 1872 / 4e6
    assert none["approximate_training_seconds"] == pytest.approx(seconds, rel=1e-14)


def test_what_is_not_known_has_no_figure_or_leaves_its_terms_out(catalog: Catalog) -> None:
    given = {**TINY, "vocab_size": None, "matrix_flops_per_second": None}
    found = run(catalog, **given, achieved_flops_per_second_per_gpu=1e6)
    assert (found["parameters"], found["step_flops"]) == (1792, 663_552)
    missing = ("mfu", "hfu", "num_steps", "total_flops", "training_seconds")
    for name in (*missing, "approximate_training_seconds", "approximation_error"):
        assert found[name] != found[name], name


def test_a_share_of_the_peak_is_a_rate_and_the_peak_is_the_default(catalog: Catalog) -> None:
    whole = {**TINY, "dataset_tokens": 100}
    half = run(catalog, **whole, flops_efficiency=0.5)
    assert half == run(catalog, **whole, achieved_flops_per_second_per_gpu=5e5)
    peak = run(catalog, **whole)
    assert peak == run(catalog, **whole, flops_efficiency=1)
    assert (peak["hfu"], peak["step_seconds"]) == (1, 686_592 / 4e6)


# ---- what must hold of any GPT ----

SHAPES = st.fixed_dictionaries(
    {
        "num_layers": st.integers(1, 200),
        "hidden_size": st.integers(8, 50_000),
        "seq_len": st.integers(1, 200_000),
        "vocab_size": st.integers(1, 500_000),
        "global_batch_size": st.integers(1, 10_000),
        "num_gpus": st.integers(1, 50_000),
        "matrix_flops_per_second": st.floats(1e12, 1e16),
        "dataset_tokens": st.floats(1e9, 1e14),
    }
)
SECONDS = ("step_seconds", "training_seconds", "approximate_training_seconds")


@given(SHAPES, st.floats(0.01, 0.49))
@examples(50)
def test_time_halves_with_twice_the_gpus_and_with_twice_the_rate(
    catalog: Catalog, shape: dict[str, Any], share: float
) -> None:
    one = run(catalog, **shape, flops_efficiency=share)
    more = run(catalog, **{**shape, "num_gpus": 2 * shape["num_gpus"]}, flops_efficiency=share)
    fast = run(catalog, **shape, flops_efficiency=2 * share)
    for name in SECONDS:
        assert one[name] == pytest.approx(2 * more[name], rel=1e-14)
        assert one[name] == pytest.approx(2 * fast[name], rel=1e-14)
    # nothing is faster than the peak rate
    assert run(catalog, **shape)["step_seconds"] < fast["step_seconds"]


@given(SHAPES)
@examples(50)
def test_recomputation_repeats_a_third_of_all_but_the_logits(
    catalog: Catalog, shape: dict[str, Any]
) -> None:
    none = run(catalog, **shape, activation_recompute="none")
    full = run(catalog, **shape, activation_recompute="full")
    tokens = float(shape["global_batch_size"] * shape["seq_len"])
    logits = 6 * tokens * shape["hidden_size"] * shape["vocab_size"]
    layers = none["step_flops"] - logits
    assert full["step_flops"] == pytest.approx(layers * 4 / 3 + logits, rel=1e-12)
    assert none["hfu"] == pytest.approx(1, rel=1e-12)
    assert full["model_flops"] == none["model_flops"]
    assert full["mfu"] < none["mfu"]


@given(SHAPES, st.sampled_from(["none", "full"]))
@examples(50)
def test_estimator_and_macros_agree(
    catalog: Catalog,
    macros: duckdb.DuckDBPyConnection,
    shape: dict[str, Any],
    recompute: str,
) -> None:
    found = run(catalog, **shape, activation_recompute=recompute)
    query = (
        "select megatron_flops($global_batch_size, $seq_len, $num_layers, $hidden_size,"
        " $vocab_size, $activation_recompute),"
        " megatron_parameters($num_layers, $hidden_size, $vocab_size, $seq_len)"
    )
    names = ("global_batch_size", "seq_len", "num_layers", "hidden_size", "vocab_size")
    given = {name: shape[name] for name in names}
    row = macros.execute(query, {**given, "activation_recompute": recompute}).fetchone()
    assert row == (
        pytest.approx(found["step_flops"], rel=1e-12),
        pytest.approx(found["parameters"], rel=1e-12),
    )


@given(SHAPES, st.sampled_from(["none", "full"]), st.integers(1, 8))
@examples(50)
def test_a_dense_gpt_has_the_flops_that_training_step_counts(
    catalog: Catalog, shape: dict[str, Any], recompute: str, heads: int
) -> None:
    # the same products: 24 h^2 + 4 s h a token and layer, 2 h V for the logits, forward; neither
    # counts norms, softmax and optimizer
    shape = {**shape, "num_gpus": 1, "hidden_size": shape["hidden_size"] // heads * heads}
    ours = run(catalog, **shape, activation_recompute=recompute)
    dense = {n: v for n, v in shape.items() if n != "dataset_tokens"}
    system = {"accelerator": "A100 SXM 80GB", "num_heads": heads}
    frame = pl.DataFrame([{**dense, **system, "activation_recompute": recompute}])
    step = evaluated(TRAINING_STEP, STEP_RELATION, frame, catalog).row(0, named=True)
    rate = step["step_seconds"] * shape["matrix_flops_per_second"]
    assert step["mfu"] * rate == pytest.approx(ours["model_flops"], rel=1e-12)
    assert step["hfu"] * rate == pytest.approx(ours["step_flops"], rel=1e-12)


def test_its_step_is_a_lower_bound_of_training_steps(catalog: Catalog) -> None:
    given = {"accelerator": "A100 SXM 80GB", "num_gpus": 64, "global_batch_size": 64}
    layout = {"tensor_parallel": 8, "pipeline_parallel": 8, "activation_recompute": "full"}
    frame = pl.DataFrame([{"model": "megatron_175B", **given, **layout}])
    step = evaluated(TRAINING_STEP, STEP_RELATION, frame, catalog).row(0, named=True)
    bound = run(catalog, model="megatron_175B", **given)["step_seconds"]
    assert bound < step["step_seconds"]
    assert bound / step["step_seconds"] == pytest.approx(step["hfu"], rel=1e-12)
