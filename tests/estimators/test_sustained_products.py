"""Long runs of products: how much longer random weights take than weights that are not filled."""

from __future__ import annotations

import polars as pl
import pytest

from benchmarks.sustained_power import weight_ratios


def run(
    software: str, seconds: float, *, side: int = 4096, watts: float = 1000.0, gpu: str = "B200"
) -> dict[str, object]:
    sizes = {"num_rows": side, "num_columns": side, "inner_size": side}
    return {
        "accelerator": gpu,
        "measured_with": f"{software} 1.0",
        "number_format": "bf16",
        **sizes,
        "seconds": seconds,
        "board_watts": watts,
        "power_limit_watts": 1000.0,
    }


def test_weight_ratios_count_products_that_reach_the_power_limit_in_both_programs() -> None:
    runs = [
        # 2 x 4096^3 = 137 GFLOP: twice as long on one GPU, as long on the other
        *(run("trtllm", 2e-4), run("vllm", 1e-4)),
        *(run("trtllm", 1e-4, gpu="GB200"), run("vllm", 1e-4, gpu="GB200")),
        # 949 W are below 95 % of the limit, 2 x 2048^3 = 17 GFLOP are too few, and one is alone
        *(run("trtllm", 9e-4, side=5120, watts=949.0), run("vllm", 1e-4, side=5120)),
        *(run("trtllm", 9e-4, side=2048), run("vllm", 1e-4, side=2048)),
        run("trtllm", 9e-4, side=6144),
    ]
    found = weight_ratios(pl.DataFrame(runs))
    assert found.select("accelerator", "num_products", "median").rows() == [
        ("B200", 1, pytest.approx(2.0)),
        ("GB200", 1, pytest.approx(1.0)),
        (None, 2, pytest.approx(1.5)),
    ]
