"""What charts make of rows worked out by hand: titles, lines, bars, marks."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from warehouse.plot import accuracy, constants, grid, kernels, layouts, parts, systems
from warehouse.plot.files import plain_title
from warehouse.plot.registry import PLOTS
from warehouse.plot.theme import DARK, LIGHT, RAMP

OF = {"estimator": "toy", "variant": "corrected", "model": "m", "global_batch_size": 64}


def rows(columns: dict[str, Any], **same: Any) -> pl.DataFrame:
    """Return a frame with some columns, and others that are the same in every row."""
    return pl.DataFrame(columns).with_columns(**{k: pl.lit(v) for k, v in (OF | same).items()})


def drawn(name: str, frame: pl.DataFrame) -> list[list[dict[str, Any]]]:
    """Return the rows of each data set of a chart."""
    spec = PLOTS[name].chart(frame, LIGHT).to_dict()
    return list(spec["datasets"].values())


def title(name: str, frame: pl.DataFrame) -> str:
    """Return the title of a chart in one line."""
    return plain_title(PLOTS[name].chart(frame, LIGHT))


def subtitle(name: str, frame: pl.DataFrame) -> str:
    """Return the subtitle of a chart in one line."""
    return " ".join(PLOTS[name].chart(frame, LIGHT).to_dict()["title"]["subtitle"])


def values(sets: list[list[dict[str, Any]]], column: str) -> list[Any]:
    """Return the values of a column in the first data set that has it."""
    return next([row[column] for row in found] for found in sets if found and column in found[0])


SCALING = rows(
    {
        "accelerator": ["A", "A", "B", "B"],
        "nvlink_size": [8, 8, 8, 8],
        "num_gpus": [16, 32, 16, 32],
        "training_days": [40.0, 25.0, 20.0, 12.5],
        "relative_throughput": [1.0, 0.8, 1.0, 0.5],
    },
    dataset_tokens=1e12,
)


def test_perfect_scaling_halves_the_days_of_the_fewest_gpus() -> None:
    ideal = systems.perfect(SCALING).sort("accelerator", "num_gpus")
    assert ideal["training_days"].to_list() == [40.0, 20.0, 20.0, 10.0]
    assert "1 T tokens of m, batches of 64 sequences" in subtitle("training_days", SCALING)
    assert values(drawn("training_days", SCALING), "training_days") is not None


def days_of_b(days: dict[int, float], a: dict[int, float] | None = None) -> pl.DataFrame:
    """Return runs of B, the faster accelerator, and of A."""
    of = [("B", *each) for each in days.items()] + [("A", *each) for each in (a or {}).items()]
    names, counts, times = zip(*of, strict=True)
    columns = {"accelerator": names, "num_gpus": counts, "training_days": times, "nvlink_size": 8}
    return rows(columns, dataset_tokens=1e12)


@pytest.mark.parametrize(
    ("frame", "said", "near"),
    [
        # 32 of them take 32 * 12.5 / (16 * 20) = 1.25 times the GPU-hours
        (
            SCALING,
            "16 B train m in 20 days, 2 times as fast as A; 32 take 12 days and 25% more GPU-hours",
            "16 B",
        ),
        # A takes 20.8 days on 16: 20 are 4 % less
        (
            days_of_b({16: 20.0, 32: 12.5}, a={16: 20.8}),
            "16 B train m in 20 days, 4% less time than A; 32 take 12 days and 25% more GPU-hours",
            "16 B",
        ),
        # 32 B are the fastest of all, but 16 B are slower than 16 A
        (
            days_of_b({16: 20.0, 32: 12.5}, a={16: 18.0}),
            "16 B train m in 20 days, 11% more time than A; 32 take 12 days and 25% more GPU-hours",
            "16 B",
        ),
        (
            days_of_b({16: 20.0, 32: 12.5}, a={16: 20.05}),
            "16 B train m in 20 days, as fast as A; 32 take 12 days and 25% more GPU-hours",
            "16 B",
        ),
        # 32 take 1.125 times those of 16, 64 1.5 times; 8 take twice
        (
            days_of_b({8: 80.0, 16: 20.0, 32: 11.25, 64: 7.5}),
            "32 B train m in 11 days; 64 take 7.5 days and 33% more GPU-hours",
            "32 B",
        ),
        # 64 take 1.1 times the GPU-hours of 16: the range is said the other way round
        (
            days_of_b({16: 20.0, 64: 5.5}, a={16: 30.0}),
            "64 B train m in 5.5 days; 16 take 20 days and 9% fewer GPU-hours",
            "64 B",
        ),
        (
            days_of_b({16: 20.0, 32: 10.0}),
            "32 B train m in 10 days; 16 take 20 days and as many GPU-hours",
            "32 B",
        ),
        (days_of_b({16: 20.0}), "16 B train m in 20 days", "16 B"),
    ],
)
def test_days_name_the_gpus_from_which_returns_fall(
    frame: pl.DataFrame, said: str, near: str
) -> None:
    assert title("training_days", frame) == said
    assert f"; {near} are the most whose GPU-hours are within 20% of the least;" in subtitle(
        "training_days", frame
    )


def test_days_are_of_the_fastest_domain_of_each_number_of_gpus() -> None:
    slow = SCALING.with_columns(pl.col("training_days") * 3, nvlink_size=pl.lit(4))
    assert title("training_days", pl.concat([slow, SCALING], how="diagonal_relaxed")) == (
        title("training_days", SCALING)
    )


def test_throughput_names_the_best_and_the_worst_system_on_the_most_gpus() -> None:
    assert title("throughput_per_gpu", SCALING) == (
        "On 32 GPUs a GPU keeps 80% of its throughput with A in domains of 8, "
        "50% with B in domains of 8"
    )


def test_as_many_domains_are_drawn_as_can_be_distinguished() -> None:
    sizes = [1, 2, 4, 8, 16]
    frame = rows({"nvlink_size": [*sizes, 1, 2, 4, 16], "num_gpus": range(9)}, accelerator="A")
    kept = systems.distinct(frame)
    assert sorted(set(kept["nvlink_size"].to_list())) == [1, 2, 4, 16]


def test_strategies_are_compared_with_the_first_dimension() -> None:
    frame = rows(
        {
            "strategy": ["tensor_1d", "summa_2d", "context_2d"],
            "relative_speed": [1.0, 1.25, 0.9],
            "num_gpus": [128, 128, 128],
        },
        accelerator="B",
        nvlink_size=8,
    )
    assert title("strategies", systems.strategies_rows(frame, None)) == (
        "2D tensor parallelism (SUMMA) is up to 25% faster than 1D (128 B), "
        "context parallelism up to 10% slower (128 B)"
    )
    slow = frame.filter(pl.col("strategy") == "context_2d")
    assert title("strategies", slow) == (
        "1D is the fastest; context parallelism is up to 10% slower"
    )


LAYOUTS = rows(
    {
        "num_gpus": [16, 32],
        "pipeline_parallel": [1, 2],
        "tensor_parallel": [8, 8],
        "data_parallel": [2, 2],
        "num_microbatches": [32, 16],
        "step_seconds": [10.0, 8.0],
        "memory_bytes": [90e9, 40e9],
        "fits_memory": [False, True],
        "compute_seconds": [6.0, 4.0],
        "memory_seconds": [1.0, 1.0],
        "tensor_comm_seconds": [3.0, 1.0],
        "pipeline_comm_seconds": [0.0, 0.0],
        "data_comm_seconds": [0.0, 0.0],
        "bubble_seconds": [0.0, 2.0],
    },
    accelerator="B",
    nvlink_size=8,
    hbm_bytes=80e9,
)


def test_layouts_have_a_bar_a_degree_and_shares_that_add_up() -> None:
    sets = drawn("best_layouts", LAYOUTS)
    shares = next(found for found in sets if found and "share" in found[0])
    by_place: dict[str, float] = {}
    for row in shares:
        by_place[row["place"]] = by_place.get(row["place"], 0) + row["share"]
    assert by_place == {"16": pytest.approx(1), "32": pytest.approx(1)}
    degrees = next(found for found in sets if found and "degree" in found[0])
    assert {(r["place"], r["degree"]): r["value"] for r in degrees}["32", "pipeline stages"] == 2
    assert title("best_layouts", LAYOUTS) == "On 32 B, arithmetic is 50% of the step, bubble 25%"


def test_layouts_that_split_experts_have_a_bar_for_it() -> None:
    def degrees(frame: pl.DataFrame) -> dict[tuple[str, str], float]:
        sets = drawn("best_layouts", frame)
        found = next(rows for rows in sets if rows and "degree" in rows[0])
        return {(row["place"], row["degree"]): row["value"] for row in found}

    split = degrees(LAYOUTS.with_columns(expert_parallel=pl.Series([1, 4])))
    assert (split["16", "ranks of experts"], split["32", "ranks of experts"]) == (1, 4)
    for none in (pl.Series([1, 1]), pl.Series([None, None], dtype=pl.Int64)):
        assert degrees(LAYOUTS.with_columns(expert_parallel=none)) == degrees(LAYOUTS)


def test_configurations_have_letters_and_a_star_beyond_the_memory() -> None:
    frame = LAYOUTS.with_columns(num_gpus=pl.lit(32))
    assert layouts.lettered(frame)["place"].to_list() == ["A *", "B"]
    assert title("configurations", frame) == (
        "B, with 2 pipeline stages, is the fastest that fits: 8 s"
    )


GRID = rows(
    {
        "hbm_bytes": [100e9, 100e9, 200e9, 200e9],
        "hbm_bytes_per_second": [4e12, 8e12, 4e12, 8e12],
        "training_days": [16.0, 8.0, 10.0, 5.0],
    },
    accelerator="B",
    num_gpus=8,
    dataset_tokens=1e12,
).with_columns(
    accelerators=pl.Series(
        [
            [
                {"accelerator": "Near SXM", "hbm_bytes": 150e9, "rate": 5e12},
                {"accelerator": "Nearer (per GPU)", "hbm_bytes": 155e9, "rate": 5e12},
                {"accelerator": "Far", "hbm_bytes": 500e9, "rate": 5e12},
            ]
        ]
        * 4
    )
)


def test_a_grid_has_cells_around_its_points_and_marks_what_lies_on_it() -> None:
    x, y = (grid.Side(n, n, u) for n, u in (("hbm_bytes", 1e9), ("hbm_bytes_per_second", 1e12)))
    assert grid.marks(GRID, x, y) == [{"name": "Near, Nearer", "x": 150.0, "y": 5.0}]
    sets = drawn("hbm_capacity_and_bandwidth", GRID)
    assert sorted(set(values(sets, "x_low"))) == [50.0, 150.0]
    assert sorted(set(values(sets, "x_high"))) == [150.0, 250.0]
    assert sorted(set(values(sets, "y_high"))) == [6.0, 10.0]
    assert title("hbm_capacity_and_bandwidth", GRID) == (
        "2 times the bandwidth gains 100% at the least capacity, "
        "2 times the capacity gains 60% at the least bandwidth"
    )


def test_contours_divide_a_range_into_equal_ratios() -> None:
    limits = grid.contours([1.0, 512.0])
    assert limits == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]


def test_faster_arithmetic_is_compared_at_both_ends_of_memory() -> None:
    frame = GRID.rename({"hbm_bytes_per_second": "matrix_flops_per_second"})
    assert title("flops_and_hbm_capacity", frame) == (
        "2 times the FLOP/s trains 2 times as fast with the least memory, 2 times with the most"
    )


def test_one_value_is_compared_with_no_other() -> None:
    first = GRID.head(1)
    for name, frame in (
        ("hbm_capacity_and_bandwidth", first),
        (
            "flops_and_hbm_capacity",
            first.rename({"hbm_bytes_per_second": "matrix_flops_per_second"}),
        ),
    ):
        assert title(name, frame) == "The fastest run takes 16 days"
    speed = SPEED.head(1)
    assert title("nvlink_domain", speed) == "Only fast domains of 1 GPU are stored on 64 B"
    assert title("network_bandwidth", speed) == "Only a network of 1 GB/s is stored"
    assert title("accuracy", STEPS.head(1)) == "One measured step is predicted within 2.0%"


def test_figures_that_a_name_covers_are_left_out() -> None:
    # the cells are 100 GB wide, 310 of 620 pixels: the name at 150 GB and 5 TB/s covers the figure
    # of a cell whose middle is there, and no other
    x, y = (grid.Side(n, n, u) for n, u in (("hbm_bytes", 1e9), ("hbm_bytes_per_second", 1e12)))
    near = GRID.with_columns(
        hbm_bytes=pl.Series([150e9, 250e9] * 2),
        hbm_bytes_per_second=pl.Series([5e12, 5e12, 9e12, 9e12]),
    )
    chart = grid.cells(near, x, y).to_dict()
    texts = [layer for layer in chart["layer"] if layer["mark"]["type"] == "text"]
    written = chart["datasets"][texts[0]["data"]["name"]]
    assert [(round(row["x"]), round(row["y"])) for row in written] == [(250, 5), (150, 9), (250, 9)]


def test_a_unit_stays_with_its_number() -> None:
    text = "x" * 18 + " takes 12 days"
    assert parts.headed(text, "", width=250).to_dict()["text"] == ["x" * 18 + " takes", "12 days"]


def test_ramps_differ_from_their_page() -> None:
    for theme in (LIGHT, DARK):
        for count in (2, 8, 14):
            assert len(set(theme.ramp(count))) == count
        assert theme.ramp(1) == [theme.blue]
    assert RAMP[0] not in LIGHT.ramp(8)
    assert RAMP[-1] not in DARK.ramp(8)


SPEED = rows(
    {
        "num_gpus": [64, 64, 64, 128, 128, 128],
        "nvlink_size": [1, 8, 64, 1, 8, 64],
        "network_bytes_per_second": [1e9, 2e9, 4e9, 1e9, 2e9, 4e9],
        "relative_speed": [1.0, 1.1, 1.1, 1.0, 1.49, 1.5],
    },
    accelerator="B",
)


def test_speed_over_domains_names_the_first_that_is_almost_the_best() -> None:
    assert title("nvlink_domain", SPEED) == (
        "On 128 B fast domains of 8 GPUs are within 2% of the best, "
        "1.5 times as fast as domains of 1"
    )
    assert title("network_bandwidth", SPEED.with_columns(nvlink_size=pl.lit(8))) == (
        "On 128 GPUs 4 times the network gains 50% with fast domains of 8"
    )


STEPS = rows(
    {
        "measured": ["a", "a", "a", "b"],
        "published_row": ["1", "2", "3", "4"],
        "time_relative_error": [-0.02, 0.0, 0.1, -0.3],
        "low_relative_error": [-0.12, -0.1, 0.0, -0.4],
        "high_relative_error": [0.18, 0.2, 0.3, -0.1],
        "is_inside_interval": [True, True, True, False],
    }
)


def test_groups_have_their_median_error_and_the_middle_interval() -> None:
    first, second = accuracy.by_group(STEPS).iter_rows(named=True)
    assert (first["label"], first["median"], second["label"]) == ("a (3)", 0.0, "b (1)")
    assert (first["low"], first["high"]) == (pytest.approx(-0.1), pytest.approx(0.2))
    assert title("accuracy", STEPS) == (
        "Half of 4 measured steps are predicted within 6.0%; 75% lie in the interval meant for 90%"
    )


def test_rates_count_those_near_the_diagonal() -> None:
    frame = rows(
        {
            "measured_tflops": [100.0, 100.0, 100.0, 100.0],
            "predicted_tflops": [95.0, 105.0, 150.0, 50.0],
            "rate_error": [-0.05, 0.05, 0.5, -0.5],
        },
        accelerator="A",
    )
    assert title("measured_rates", frame) == (
        "50% of 4 measured rates are predicted within 10%, 25% are predicted more than 10% too fast"
    )
    band = values(drawn("measured_rates", frame), "most")
    assert band == [pytest.approx(50 / 1.1 * 1.1), pytest.approx(165 * 1.1)]


def test_parts_are_shares_of_the_measured_step() -> None:
    columns: dict[str, Any] = {name: [0.0] for name in accuracy.PARTS}
    frame = rows(
        {
            **columns,
            "gemm_seconds": [6.0],
            "bubble_seconds": [2.0],
            "step_seconds": [8.0],
            "published_step_seconds": [10.0],
            "lowest_step_seconds": [7.0],
            "highest_step_seconds": [11.0],
            "published_row": ["1T"],
            "num_gpus": [8],
        },
        reference="published_megatron_scaling",
    )
    sets = drawn("published_parts", frame)
    shares = next(found for found in sets if found and "share" in found[0])
    found = {row["part"]: row["share"] for row in shares}
    assert found["matmuls"] == pytest.approx(0.6)
    assert found["bubble"] == pytest.approx(0.2)
    assert values(sets, "error") == [pytest.approx(-0.2)]
    assert title("published_parts", frame) == "Matmuls take 75% of a step, bubble 25%"


def test_a_published_layout_has_its_rank() -> None:
    frame = rows(
        {
            "published_row": ["1T"],
            "num_gpus": [3072],
            "num_fitting_layouts": [200],
            "rank_by_time": [10],
            "speedup_of_best": [1.2],
            "fastest_tenth": [1.5],
            "fastest_quarter": [2.0],
            "median": [3.0],
            "slowest_quarter": [5.0],
            "slowest_tenth": [9.0],
        }
    )
    assert title("layout_rank", frame) == (
        "Half of the published layouts are in the fastest 5% of their problem; "
        "the best layouts are 20% faster"
    )
    assert values(drawn("layout_rank", frame), "rank") == ["rank 10 of 200"]


def test_a_front_has_no_layout_that_another_beats() -> None:
    frame = rows(
        {
            "num_gpus": [8, 8, 8, 8, 16],
            "step_seconds": [1.0, 1.04, 1.02, 1.2, 9.0],
            "memory_gb": [80.0, 60.0, 90.0, 40.0, 90.0],
        },
        accelerator="B",
        nvlink_size=8,
        hbm_gb=96.0,
    )
    front = layouts.front(frame)
    assert front["step_seconds"].to_list() == [1.0, 1.04, 1.2, 9.0]
    assert values(drawn("pareto", frame), "memory_gb") == [80.0, 60.0, 40.0, 90.0]
    eight = frame.filter(pl.col("num_gpus") == 8)
    assert title("pareto", eight) == "On 8 B, 25% less memory costs at most 5% more time"
    # one layout, such as a published step, says nothing about others
    assert title("pareto", eight.head(1)) == "One layout on 8 B: 1 s a step, 80 GB of a GPU"


COSTS = rows(
    {
        "kind": ["price", "price", "energy", "energy", "grid", "grid", "grid"],
        "source": ["on_demand", "on_demand", "server", "server", "clean", "dirty", "dirty"],
        "accelerator": ["A", "B", "A", "B", "B", "B", "A"],
        "quantity": [3e6, 2e6, 18e3, 10e3, 1e3, 5e3, 9e3],
        "training_seconds": [9.0, 4.0, 9.0, 4.0, 4.0, 4.0, 9.0],
        "year": [2024, 2026, None, None, None, None, None],
        "num_gpus": [8.0] * 7,
    },
    dataset_tokens=1e12,
    seq_len=2048,
)


def test_costs_name_the_cheapest_system_its_energy_and_its_carbon_by_grid() -> None:
    assert title("cost", COSTS) == (
        "B is the cheapest on demand: 2 million dollars, A 3 million dollars; "
        "B takes 10 MWh, 1 to 5 tonnes of CO2e by grid"
    )
    sets = drawn("cost", COSTS)
    assert values(sets, "quantity") == [3.0, 2.0]
    labels = {row["label"] for found in sets for row in found if "label" in row}
    # a price of another year has its year
    assert labels == {"3 (2024)", "2", "18", "10", "1", "5", "9"}
    assert "on 8 GPUs" in subtitle("cost", COSTS)
    alone = COSTS.filter(pl.col("accelerator") == "A").with_columns(num_gpus=pl.lit(16.0))
    assert title("cost", alone) == "A costs 3 million dollars on demand; A takes 18 MWh"
    assert "each on its cheapest count" in subtitle("cost", pl.concat([COSTS, alone]))


KIND_OF_LAYER = ("num_layers", "hidden_size", "num_experts", "seq_len")


def test_a_bandwidth_suffices_where_every_run_is_as_fast_as_without_a_network() -> None:
    frame = rows(
        {
            "num_clusters": [2, 2, 4, 4],
            "gigabytes_per_second": [1.0, 5.0, 1.0, 5.0],
            "slowdown": [1.5, 1.0, 3.0, 1.005],
        },
        **dict.fromkeys(KIND_OF_LAYER, 1),
    )
    assert title("bandwidth_between_clusters", frame) == (
        "5 GB/s between clusters suffice; with 1 GB/s a run takes up to 3 times as long"
    )


def test_sites_compare_exchanges_at_the_largest_batch() -> None:
    frame = rows(
        {
            "kind": ["wait", "wait", "wait", "latency", "latency"],
            "place": [1e6, 1e6, 8e6, 8e6, 8e6],
            "series": ["every step", "seldom", "every step", "often", "seldom"],
            "series_rank": [10.0, 50.0, 10.0, 1.0, 500.0],
            "quantity": [9e6, 3e4, 8e6, 7200.0, 14.0],
        },
        dataset_tokens=1e12,
        parameters=7e10,
    )
    more = pl.concat(
        [
            frame,
            frame.filter(pl.col("place") == 8e6, pl.col("kind") == "wait").with_columns(
                series=pl.lit("seldom"), series_rank=pl.lit(50.0), quantity=pl.lit(4e4)
            ),
        ]
    )
    assert title("sites", more) == (
        "Rarer all-reduces of gradients cut the dollars of waiting 200 times, "
        "the latency of a run from 2 h to 14 s"
    )


OPERATIONS = rows(
    {
        "operation": ["fc1", "fc2", "layer_norm"],
        "flops_per_byte": [500.0, 480.0, 1.5],
        "tflops": [800.0, 790.0, 3.0],
        "step_fraction": [0.4, 0.5, 0.05],
    },
    accelerator="H",
    num_gpus=8,
    matrix_tflops=1000.0,
    terabytes_per_second=5.0,
)


def test_operations_at_one_place_share_a_label() -> None:
    assert kernels.labels(OPERATIONS)["label"].to_list() == ["fc2, fc1", "layer norm"]
    assert title("roofline_of_step", OPERATIONS) == (
        "2 of 3 operations do enough FLOPs a byte for the full rate: 90% of the step; "
        "memory slows the others, 5%"
    )
    roof = [(500 * 2.5, 1000.0), (200.0, 1000.0)]
    found = drawn("roofline_of_step", OPERATIONS)
    points = {(r["flops_per_byte"], r["tflops"]) for rows in found for r in rows if "tflops" in r}
    assert set(roof) <= points


def test_a_tornado_has_the_constants_that_move_the_step_most_first() -> None:
    frame = rows(
        {
            "constant": ["small", "gemm_efficiency"],
            "lowest_value": [0.0, 0.5],
            "highest_value": [1e-6, 0.8],
            "lowest_step_seconds": [9.9, 13.0],
            "highest_step_seconds": [10.1, 9.0],
            "is_assumed": [False, True],
        },
        accelerator="H",
        num_gpus=8,
        step_seconds=10.0,
        low_step_seconds=8.0,
        high_step_seconds=14.0,
    )
    found = constants.largest(frame)
    assert found["label"].to_list() == ["gemm efficiency: 0.5 to 0.8 *", "small: 0 to 1e-06"]
    assert found["at_lowest"].to_list() == [pytest.approx(0.3), pytest.approx(-0.01)]
    assert title("tornado", frame) == (
        "Gemm efficiency changes the step most: by 40% between the ends of its range; nine times "
        "in ten a step takes 8 to 14 s"
    )


def test_errata_are_ordered_by_what_they_change() -> None:
    frame = rows(
        {
            "mended": ["R1", "R2", "R2", "corrected"],
            "fault": ["one", "two", "two", None],
            "best_step_change": [0.0, 0.01, -0.2, -0.19],
            "strategy": ["tensor_1d"] * 4,
            "num_gpus": [8, 8, 16, 8],
        }
    )
    assert title("errata", frame) == (
        "Erratum R2 changes the best step times by up to 20%; 1 of 2 mends change no best step"
    )
    spec = PLOTS["errata"].chart(frame, LIGHT).to_dict()
    order = spec["layer"][1]["encoding"]["y"]["sort"]
    assert order == ["all of them", "R2  two", "R1  one"]


def test_kernels_compare_the_ends_of_the_smallest_dimension() -> None:
    frame = rows(
        {
            "accelerator": ["A", "B", "A", "B"],
            "smallest_dimension": [128, 128, 4096, 4096],
            "peak_share": [0.1, 0.3, 0.8, 0.6],
            "low_peak_share": [0.05, 0.2, 0.7, 0.5],
            "high_peak_share": [0.2, 0.4, 0.9, 0.7],
        },
        number_format="bf16",
    )
    assert title("kernels", frame) == (
        "Matmuls whose smallest dimension is 128 reach 10% to 30% of the peak, "
        "those of 4,096 reach 60% to 80%"
    )
    # a panel for each accelerator, one picture for one of them
    assert "facet" in PLOTS["kernels"].chart(frame, LIGHT).to_dict()
    alone = PLOTS["kernels"].chart(frame.filter(pl.col("accelerator") == "A"), LIGHT).to_dict()
    assert "facet" not in alone and "of A:" in " ".join(alone["title"]["subtitle"])


@pytest.mark.parametrize(
    ("value", "written"),
    [(3.14159, "3.1"), (1732.4, "1,732"), (0.0421, "0.042"), (12.0, "12"), (0, "0"), (99.6, "100")],
)
def test_figures_have_two_digits_that_count(value: float, written: str) -> None:
    assert parts.figure(value) == written


def test_ticks_of_logarithmic_axes_are_plain() -> None:
    assert parts.log_ticks(3, 60) == [5, 10, 20, 50]
    assert parts.log_ticks(0.5, 2e5) == [1, 10, 100, 1000, 10000, 100000]
    assert parts.apart([5, 10, 12.5, 25]) == [5, 10, 25]
    # a short axis has finer ticks, so that it can be read
    assert parts.log_ticks(210, 520) == [300, 400, 500]
    assert parts.log_ticks(480, 530) == pytest.approx(range(480, 531, 5))
    # no round number lies between them
    assert parts.log_ticks(13.37, 13.37) == [13.37]
    assert parts.log_ticks(13.371, 13.372) == [13.371, 13.372]


def test_a_title_is_not_broken_at_a_hyphen() -> None:
    shown = parts.headed("4,096 take 1.7 days and 17% more GPU-hours", "GPU-hours", width=400)
    assert len(shown.text) > 1
    assert " ".join(shown.text) == "4,096 take 1.7 days and 17% more GPU-hours"
