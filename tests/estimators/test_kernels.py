"""Measured kernels: surfaces through nodes worked out by hand, and who reads which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.contract import Catalog, MeasuredTables
from estimators.kernels.gemms import (
    FORMATS,
    FORMULA,
    Chip,
    MeasuredGemms,
    kernels_of,
    measured_accelerators,
    roof_seconds,
    surface_of,
)
from estimators.training_step.gemm import IN_16_BITS, Gemm, gemm_seconds
from tests.estimators.training_step_cases import IDEAL, LLAMA, problem_with, resolve
from warehouse.database.catalog import extended, packaged_catalog

CHIP: dict[str, Any] = {
    "bf16_flops_per_second": 1e12,
    "fp8_flops_per_second": 2e12,
    "fp4_flops_per_second": 4e12,
    "hbm_bytes_per_second": 1e30,
    "num_sms": 4,
    "kernels": "chip",
}
SIDES = (1024, 4096)
FP8, FP8_BLOCK, FP4 = "tensorwise", "blockwise", "nvfp4"
"""Recipes with scales of a tensor and of blocks in 8 bits, and of blocks in 4 bits."""


def catalog(follows_waves: bool = False, **rates: float) -> Catalog:
    """Return a catalog in which every product of `chip` has the rate of its format."""
    nodes = [
        (number_format, *place, rate)
        for number_format, rate in (rates or {"bf16": 5e11}).items()
        for place in np.ndindex(2, 2, 2)
    ]
    table = {
        "accelerator": np.array(["chip"] * len(nodes), dtype=object),
        "number_format": np.array([node[0] for node in nodes], dtype=object),
        **{
            name: np.array([SIDES[node[axis]] for node in nodes])
            for axis, name in enumerate(("product_rows", "product_columns", "product_depth"), 1)
        },
        "product_flops_per_second": np.array([node[4] for node in nodes]),
        "follows_waves": np.full(len(nodes), follows_waves),
    }
    return Catalog(
        {
            "accelerator": {
                "chip": {"accelerator": "chip", **CHIP},
                "twin": {"accelerator": "twin", **CHIP, "bf16_flops_per_second": 2e12},
                "other": {"accelerator": "other", **CHIP, "kernels": None},
            },
            "priced_as": {"known": {"priced_as": "twin"}},
            "system": {"known": {"accelerator": "known", "hbm_bytes": 1e9}},
            "step_constant": {"small_tile_efficiency": {"constant_value": 0.5}},
            "framework": {"given": {"framework": "given"}},
        },
        measured=MeasuredTables({"matrix_product_rate": lambda: table}),
    )


VALUES: dict[str, Any] = {
    "matrix_flops_per_second": 1e12,
    "fp8_flops_per_second": 2e12,
    "fp4_flops_per_second": 4e12,
    "hbm_bytes_per_second": 1e30,
    "num_sms": 4,
    "small_tile_efficiency": 0.5,
    "product_rate_factor": 1.0,
    "narrow_product_rate_factor": 1.0,
    "short_product_rate_factor": 1.0,
    "fp8_product_rate_factor": 1.0,
    "fp4_product_rate_factor": 1.0,
}


A_CHIP = Chip((1e12, 2e12, 2e12, 4e12), 1e30, 4, 0.5)


def chip_named(known: Catalog, name: str, small_tile_efficiency: float) -> Chip:
    """Return the rates of an accelerator."""
    row: dict[str, Any] = dict(known.tables["accelerator"][name])
    peaks = (row["bf16_flops_per_second"], np.nan, np.nan, np.nan)
    return Chip(peaks, row["hbm_bytes_per_second"], row["num_sms"], small_tile_efficiency)


def seconds(
    known: Catalog, rows: float, columns: float, depth: float, batch: float = 1.0, **changes: Any
) -> Any:
    problem = problem_with(known, **{**VALUES, "kernels": "chip", **changes})
    return gemm_seconds(Gemm(rows, columns, depth, batch), problem, problem.formats.low_format)


# ---- a surface ----


def test_between_nodes_the_logarithm_is_linear_in_the_logarithms_of_the_sizes() -> None:
    rows, columns = np.meshgrid([1.0, 4.0, 16.0], [1.0, 100.0], indexing="ij")
    # 0.1 to 0.4 to 0.4 along rows; a tenth of that at 100 columns
    efficiency = np.array([[0.1, 0.01], [0.4, 0.04], [0.4, 0.04]])
    surface = surface_of((rows.ravel(), columns.ravel()), efficiency.ravel())
    sizes = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 1.0, 10.0, 100.0])
    expected = [0.1, 0.2, 0.4 / 10**0.5, 0.04]
    assert surface.efficiency(*sizes) == pytest.approx(expected)


def test_beyond_the_grid_the_efficiency_of_the_edge_holds() -> None:
    surface = surface_of((np.array([2.0, 8.0]),), np.array([0.2, 0.8]))
    assert surface.efficiency(np.array([0.5, 2.0, 8.0, 1e9])) == pytest.approx([0.2, 0.2, 0.8, 0.8])


def test_the_order_of_the_nodes_does_not_matter_and_a_gap_is_refused() -> None:
    surface = surface_of((np.array([8.0, 2.0]),), np.array([0.8, 0.2]))
    assert surface.efficiency(4.0) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="1 nodes of the grid are missing"):
        surface_of((np.array([1, 1, 2]), np.array([1, 2, 1])), np.array([0.1, 0.2, 0.3]))


# ---- products ----


def test_a_roof_is_arithmetic_or_operands_and_result_once() -> None:
    # 2 x 8 x 4 x 2 = 128 FLOPs; 2 x (8 + 4) x 2 + 2 x 8 x 4 = 112 bytes
    assert roof_seconds(8, 4, 2, 2.0, 64.0, 1e9) == 2.0
    assert roof_seconds(8, 4, 2, 2.0, 1e9, 56.0) == 2.0


def test_a_product_has_the_measured_rate_on_the_chip_that_was_measured() -> None:
    # 2 x 2048 x 1024 x 4096 FLOPs at 5e11
    assert seconds(catalog(), 2048.0, 1024.0, 4096.0) == pytest.approx(2**34 / 5e11)


def test_a_chip_with_other_rates_has_the_measured_share_of_its_own_roof() -> None:
    found = seconds(catalog(), 2048.0, 1024.0, 4096.0, matrix_flops_per_second=4e12)
    assert found == pytest.approx(2**34 / 2e12)
    # 2 x (2048 + 1024) x 4096 + 2 x 2048 x 1024 = 29,360,128 bytes: half the roof's rate, too
    slow = seconds(catalog(), 2048.0, 1024.0, 4096.0, hbm_bytes_per_second=1e6)
    assert slow == pytest.approx(29_360_128 / 5e5)


def test_products_of_one_kernel_have_the_efficiency_of_all_their_rows() -> None:
    known = catalog()
    table = known.measured["matrix_product_rate"]
    is_tall = table["product_rows"] == SIDES[1]
    table["product_flops_per_second"][:] = np.where(is_tall, 8e11, 2e11)
    # 4 x 1024 rows are a product of 4096
    found = seconds(known, 1024.0, 1024.0, 1024.0, batch=4.0)
    assert found == pytest.approx(4 * 2**31 / 8e11)


def test_fp8_reads_its_own_surface_and_the_formula_where_there_is_none() -> None:
    known = catalog(bf16=5e11, fp8=1.5e12)
    low = seconds(known, 2048.0, 1024.0, 4096.0, number_recipe=FP8)
    assert low == pytest.approx(2**34 / 1.5e12)
    problem = problem_with(known, **VALUES, kernels="chip", number_recipe=FP8)
    in_16_bits = gemm_seconds(Gemm(2048.0, 1024.0, 4096.0), problem, IN_16_BITS)
    assert in_16_bits == pytest.approx(2**34 / 5e11)
    fp8 = np.int64(FORMATS.index("fp8"))
    assert np.isnan(MeasuredGemms(catalog(), "chip").seconds((64, 64, 64, 1), fp8, A_CHIP))


def test_blocks_of_scales_and_four_bits_read_their_own_surfaces() -> None:
    known = catalog(bf16=5e11, fp8=1.5e12, fp8_block=1e12, nvfp4=3e12)
    for place, rate in ((FP8, 1.5e12), (FP8_BLOCK, 1e12), (FP4, 3e12)):
        found = seconds(known, 2048.0, 1024.0, 4096.0, number_recipe=place)
        assert found == pytest.approx(2**34 / rate)
    # a rate factor of their own; that of FP8 holds for blocks, too
    factors = {"fp8_product_rate_factor": 0.5, "fp4_product_rate_factor": 2.0}
    block = seconds(known, 2048.0, 1024.0, 4096.0, 1.0, number_recipe=FP8_BLOCK, **factors)
    assert block == pytest.approx(2**34 / 0.5e12)
    four = seconds(known, 2048.0, 1024.0, 4096.0, 1.0, number_recipe=FP4, **factors)
    assert four == pytest.approx(2**34 / 6e12)


def test_a_factor_scales_the_rate_of_its_format() -> None:
    known = catalog(bf16=5e11, fp8=1.5e12)
    slow = seconds(known, 2048.0, 1024.0, 4096.0, product_rate_factor=0.5)
    assert slow == pytest.approx(2**35 / 5e11)
    low = {"number_recipe": FP8, "fp8_product_rate_factor": 2.0, "product_rate_factor": 0.5}
    assert seconds(known, 2048.0, 1024.0, 4096.0, 1.0, **low) == pytest.approx(2**33 / 1.5e12)


def test_where_kernels_follow_waves_a_wave_that_is_not_full_costs_time() -> None:
    # nodes have 4 x 8 tiles and more of 256 x 128 on 4 multiprocessors: full waves
    full = seconds(catalog(follows_waves=True), 1024.0, 1024.0, 1024.0)
    assert full == pytest.approx(2**31 / 5e11)
    # 9 x 4 tiles of 128 x 256 are full waves, too, but the last row of tiles hangs over the edge
    edge = seconds(catalog(follows_waves=True), 1040.0, 1024.0, 1024.0)
    assert edge == pytest.approx(2 * 1152 * 2**20 / 5e11)


def test_fewer_rows_never_take_longer_on_a100() -> None:
    known = packaged_catalog()
    rows = np.array([8.0, 16.0, 64.0, 128.0, 256.0])
    products = MeasuredGemms(known, "A100 SXM 80GB")
    sizes = (rows, 3072.0, 4096.0, 1.0)
    found = np.asarray(products.seconds(sizes, IN_16_BITS, chip_named(known, "A100 SXM 80GB", 0.7)))
    assert (np.diff(found) >= 0).all()
    assert found[0] < 1e-4


def test_no_product_is_shorter_than_the_shortest_measured() -> None:
    assert seconds(catalog(), 1.0, 1.0, 1.0) == pytest.approx(2**31 / 5e11)


def test_rows_of_a_batch_each_read_their_own() -> None:
    known = catalog(bf16=5e11, fp8=1.5e12)
    kernels = np.array(["chip", FORMULA, "chip"], dtype=object)
    products = MeasuredGemms(known, kernels)
    sizes = (np.full(3, 2048.0), 1024.0, 4096.0, 1.0)
    found = np.asarray(products.seconds(sizes, np.array([0, 0, 1]), A_CHIP))
    assert found[[0, 2]] == pytest.approx([2**34 / 5e11, 2**34 / 1.5e12])
    assert np.isnan(found[1])


# ---- whose kernels ----


def test_a_system_has_the_kernels_of_the_product_that_it_is_or_is_based_on() -> None:
    known = extended(catalog(), {}, {"mine": {"based_on": "known"}, "own": {"hbm_bytes": 1e9}})
    of = {name: kernels_of(known, name) for name in ("chip", "twin", "other", "known", "mine")}
    assert of == {"chip": "chip", "twin": "chip", "other": FORMULA, "known": "chip", "mine": "chip"}
    assert kernels_of(known, "own") == kernels_of(known, None) == FORMULA


def test_kernels_that_were_not_measured_are_refused() -> None:
    given = {**IDEAL, **LLAMA}
    for name in ("other", "nonsense"):
        _, [refusal] = resolve([{**given, "kernels": name}], catalog())
        said = f'`kernels` "{name}" has no measured kernels\nhint: known: formula, chip'
        assert str(refusal) == said


@pytest.mark.parametrize("name", ["H200", "h200", "H200 SXM 141GB"])
def test_kernels_have_the_names_that_accelerators_have(name: str) -> None:
    given = {"accelerator": "H100", "num_layers": 2, "hidden_size": 256, "num_heads": 2}
    given |= {"seq_len": 1024, "num_gpus": 1, "global_batch_size": 1, "kernels": name}
    columns, refusals = resolve([given], packaged_catalog())
    assert not refusals
    assert columns["kernels"].tolist() == ["H200 SXM 141GB"]


def test_a_row_with_a_constant_of_the_formula_takes_the_formula() -> None:
    known = packaged_catalog()
    names = ("gemm_efficiency", "fp8_gemm_efficiency", "gemm_half_depth", "small_tile_efficiency")
    row = {"accelerator": "H100", "num_layers": 2, "hidden_size": 256, "num_heads": 2}
    row |= {"seq_len": 1024, "num_gpus": 1, "global_batch_size": 1}
    rows = [row, *({**row, name: 0.5} for name in names)]
    columns, refusals = resolve(rows, known)
    assert not refusals
    assert columns["kernels"].tolist() == ["H100 SXM 80GB", *[FORMULA] * 4]


# ---- the packaged table ----


def test_the_packaged_surfaces_are_those_of_known_accelerators_below_their_peak() -> None:
    known = packaged_catalog()
    table = known.measured["matrix_product_rate"]
    assert len(table["accelerator"]) == 14_904
    assert len(measured_accelerators(known)) == 7
    for name in measured_accelerators(known):
        assert kernels_of(known, name) == name
        own = np.equal(table["accelerator"], name) & np.equal(table["number_format"], "bf16")
        best = float(table["product_flops_per_second"][own].max())
        peak = float(known.tables["accelerator"][name]["bf16_flops_per_second"] or 0)
        assert 0.6 * peak < best < 0.95 * peak


def test_a_large_product_on_a100_has_the_rate_of_random_numbers() -> None:
    """258 TFLOP/s at 8192^3 (Horace He, thonking.ai, 2024), not the 294 of zeros."""
    known = packaged_catalog()
    products = MeasuredGemms(known, "A100 SXM 80GB")
    chip = chip_named(known, "A100 SXM 80GB", 0.9)
    found = products.seconds((8192.0, 8192.0, 8192.0, 1.0), IN_16_BITS, chip)
    assert 2 * 8192**3 / found == pytest.approx(258e12, rel=0.03)
