"""`warehouse calibrate --kernels`: collectives of a node, each part of whose time has a factor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from tests.shared import Command

H100 = "H100 SXM 80GB"
HEADER = "collective,num_gpus,message_bytes,seconds"

FIXED, HOP, LINK, EFFICIENCY, PAIR, REDUCE, EXCHANGE = 14e-6, 1.9e-6, 450e9, 0.73, 0.73, 1.0, 0.68
"""Constants of H100, as table step_constant has them: seconds, seconds, bytes/s and shares."""

SIZES = (2**20, 2**24, 2**28)


def share(gpus: int) -> float:
    """Return the rate of a ring over that of eight GPUs: 1 - (1 - pair) ((8 / n)^2 - 1) / 15."""
    return 1 - (1 - PAIR) * ((8 / gpus) ** 2 - 1) / 15


def gather(gpus: int, size: int, fixed: float = 1, hop: float = 1, moved: float = 1) -> float:
    """Return the seconds of a gather: each part of H100's time is multiplied by its factor."""
    rate = LINK * EFFICIENCY * share(gpus)
    sent = (gpus - 1) / gpus * size
    return fixed * FIXED + hop * (gpus - 1) * HOP + moved * sent / rate


def written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def kinds_of(out: str) -> dict[str, dict[str, Any]]:
    return {kind["kernels"]: kind for kind in json.loads(out)["kinds"]}


@pytest.fixture
def database(empty_warehouse: Path, tmp_path: Path) -> Path:
    return shutil.copyfile(empty_warehouse, tmp_path / "warehouse.duckdb")


def test_each_part_of_a_collective_takes_the_factor_that_its_timings_have(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    rows = [
        f"{name},{gpus},{size},{gather(gpus, size, 2, 3, 1.25)!r}"
        for name in ("all_gather", "reduce_scatter")
        for gpus in (4, 8)
        for size in SIZES
    ]
    # twice the hops and twice the bytes, at 1.25 / 1.5 of the bytes/s of a gather
    rows += [
        f"all_reduce,8,{size},{2 * FIXED + 3 * 14 * HOP + 1.5 * 1.75 * size / (LINK * 0.73)!r}"
        for size in (*SIZES, 2**22, 2**26)
    ]
    # one hop
    rows += [
        f"alltoall,8,{size},{2 * FIXED + 3 * HOP + 0.8 * 0.875 * size / (LINK * EXCHANGE)!r}"
        for size in (*SIZES, 2**22, 2**26)
    ]
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--name", "ours", "--db", database)
    code, out, err = warehouse("calibrate", *given, "--format", "json")
    assert code == 0, err
    query = "select step_constant, fitted_constant_value from calibration"
    with duckdb.connect(str(database), read_only=True) as connection:
        found = dict(connection.execute(query).fetchall())
    assert found == {
        f"collective_seconds@{H100}": pytest.approx(2 * FIXED),
        f"nvlink_latency_seconds@{H100}": pytest.approx(3 * HOP),
        f"nvlink_efficiency@{H100}": pytest.approx(EFFICIENCY / 1.25),
        f"all_reduce_ratio@{H100}": pytest.approx(REDUCE * 1.25 / 1.5),
        f"alltoall_efficiency@{H100}": pytest.approx(EXCHANGE / 0.8),
    }
    # exact times leave no error, whichever tenth is left out
    errors = [one["mean_absolute_relative_error"] for one in json.loads(out)["errors"]]
    assert errors[0] > 0.2
    assert errors[1:] == [pytest.approx(0, abs=1e-9)] * 2
    assert json.loads(out)["num_used"] == len(rows)
    assert "bytes between two GPUs: 0 rows are too few" in err


def test_a_profile_of_collectives_slows_a_step_by_their_time(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    rows = [
        f"all_gather,{gpus},{size},{gather(gpus, size, 2, 2, 2)!r}"
        for gpus in (4, 8)
        for size in SIZES
    ]
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--name", "ours", "--db", database)
    assert warehouse("calibrate", *given)[0] == 0
    step = (
        *(
            "show",
            "--estimator",
            "training_step",
            "model=llama3_8B",
            f"accelerator={H100}",
            "num_gpus=8",
        ),
        *("tensor_parallel=8", "global_batch_size=8", "uses_sequence_parallel=true"),
        *("splits_tensor_exchanges=false", "tensor_overlap_fraction=0", "--db", database),
        *("communication_sm_fraction=0", "overlap_slowdown=1"),
    )
    seconds = []
    for profile in ((), ("--profile", "ours")):
        code, out, err = warehouse(*step, *profile, "--json")
        assert code == 0, err
        row = json.loads(out)["results"]
        seconds.append((row["tensor_comm_seconds"], row["gemm_seconds"]))
    (before, products), (after, same) = seconds
    # the losses' three sums of 32 bits a token are all-reduces, at the same ratio to gathers; what
    # hides behind products stays hidden, so that what is left grows by a little more
    assert 1.99 < after / before < 2.2
    # products lose nothing to what hides behind them, but the clock rises while more is waited for
    assert same == pytest.approx(products, rel=0.02)


def test_a_share_ends_at_one_in_its_value_and_in_its_range(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    # two GPUs as fast as eight and faster: 0.73 / 0.6 would be more than all
    rows = [f"all_gather,8,{size},{gather(8, size)!r}" for size in (*SIZES, 2**22, 2**26)]
    rows += [
        f"all_gather,2,{size},{gather(2, size, 1, 1, moved)!r}"
        for size in SIZES
        for moved in (0.55, 0.6, 0.65)
    ]
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--name", "ours", "--db", database)
    assert warehouse("calibrate", *given)[0] == 0
    query = (
        "select fitted_constant_value, lower_bound, upper_bound from calibration "
        "where constant = 'pair_ring_share'"
    )
    with duckdb.connect(str(database), read_only=True) as connection:
        [(value, lowest, highest)] = connection.execute(query).fetchall()
    assert (value, highest) == (1.0, 1.0)
    assert 0.9 < lowest < 1
    # a step takes the range: no end of it is refused
    step = ("model=llama3_8B", f"accelerator={H100}", "num_gpus=8", "tensor_parallel=2")
    code, out, err = warehouse(
        *("explain", *step, "global_batch_size=8", "--profile", "ours", "--db", database, "--json")
    )
    assert code == 0, err
    assert "pair_ring_share" in {one["name"] for one in json.loads(out)["constants"]}


def test_messages_of_one_size_are_predicted_though_parts_cannot_be_distinguished(
    warehouse: Command, tmp_path: Path
) -> None:
    rows = [f"allgather,8,{2**26},{1.5 * gather(8, 2**26)!r}"] * 5
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--format", "json")
    code, out, err = warehouse("calibrate", *given)
    assert code == 0, err
    kinds = kinds_of(out)
    # of all factors that give these times the nearest to 1: each grows as its part of the time
    assert kinds["bytes of gathers and scatters"]["times_as_long"] > 1.4
    assert 1 < kinds["hops of collectives"]["times_as_long"] < 1.2
    assert json.loads(out)["errors"][1]["mean_absolute_relative_error"] == pytest.approx(
        0, abs=1e-9
    )


def test_a_part_that_times_contradict_keeps_its_constant(
    warehouse: Command, tmp_path: Path
) -> None:
    # no hop takes any time: their factor would be about nothing
    rows = [
        f"all_gather,{gpus},{size},{gather(gpus, size, 1, 0, 1)!r}"
        for gpus in (2, 4, 8)
        for size in SIZES
    ]
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--format", "json")
    code, out, err = warehouse("calibrate", *given)
    assert code == 0, err
    hops = kinds_of(out)["hops of collectives"]
    assert hops["fitted"] == hops["default"] == HOP


def test_collectives_over_nodes_and_above_the_rate_of_the_links_are_left_out(
    warehouse: Command, tmp_path: Path
) -> None:
    rows = [f"all_gather,8,{size},{gather(8, size)!r}" for size in (*SIZES, 2**22, 2**26)]
    rows += [f"all_gather,16,{2**26},0.001", f"all_to_all,8,{2**26},1e-5"]
    # switches that add up make an all-reduce at most twice as fast
    rows += [f"all_reduce,8,{2**30},{1.75 * 2**30 / (rate * LINK)!r}" for rate in (1.9, 2.1)]
    timings = written(tmp_path / "collectives.csv", rows)
    code, out, err = warehouse(
        "calibrate", "--kernels", timings, "--accelerator", "H100", "--format", "json"
    )
    assert code == 0, err
    assert json.loads(out)["left_out"] == {
        "of more GPUs than NVLink joins": 1,
        "faster than the links": 2,
    }


def test_an_unknown_collective_is_refused_by_file_and_row(
    warehouse: Command, tmp_path: Path
) -> None:
    timings = written(tmp_path / "collectives.csv", [f"broadcast,8,{2**26},0.001"] * 5)
    code, _, err = warehouse("calibrate", "--kernels", timings, "--accelerator", "H100")
    assert code == 3
    assert "collective" in err
    assert "broadcast" in err
    assert "hint: use all_gather" in err


def test_a_ratio_of_too_few_rows_stays_and_moves_no_other_part(
    warehouse: Command, tmp_path: Path
) -> None:
    rows = [
        f"all_gather,{gpus},{size},{gather(gpus, size, 1, 1, 2)!r}"
        for gpus in (4, 8)
        for size in SIZES
    ]
    # one all-reduce, which the ratio of H100 would put at another time
    rows += [f"all_reduce,8,{2**28},{gather(8, 2**28, 1, 2, 2)!r}"]
    timings = written(tmp_path / "collectives.csv", rows)
    given = ("--kernels", timings, "--accelerator", "H100", "--format", "json")
    code, out, err = warehouse("calibrate", *given)
    assert code == 0, err
    kinds = kinds_of(out)
    for name in ("bytes between two GPUs", "bytes of all-reduces"):
        assert kinds[name]["times_as_long"] is None
        assert kinds[name]["fitted"] == pytest.approx(kinds[name]["default"])
    assert kinds["bytes of gathers and scatters"]["fitted"] == pytest.approx(EFFICIENCY / 2)
    # its time at the rate of gathers and the ratio 1.09: 2 / 1.09 of that of a gather
    errors = json.loads(out)["errors"]
    assert errors[1]["max_absolute_relative_error"] == pytest.approx(2 / 1.09 - 1, rel=0.05)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pl.lit("2026-01-01").str.to_date().alias("num_gpus"), "is a column of type Date;"),
        (pl.concat_list("seconds").alias("seconds"), "is a column of type List(Float64);"),
    ],
)
def test_a_column_of_no_numbers_is_refused_once(
    warehouse: Command, tmp_path: Path, column: pl.Expr, reason: str
) -> None:
    rows = {"collective": ["all_gather"] * 6, "num_gpus": [8] * 6, "message_bytes": [2**26] * 6}
    frame = pl.DataFrame({**rows, "seconds": [0.001] * 6}).with_columns(column)
    frame.write_parquet(tmp_path / "collectives.parquet")
    given = ("--kernels", tmp_path / "collectives.parquet", "--accelerator", "H100")
    code, _, err = warehouse("calibrate", *given)
    assert code == 3
    assert err.count(reason) == 1


@pytest.mark.parametrize("unit", [1e3, 1e6])
def test_times_in_another_unit_are_refused(warehouse: Command, tmp_path: Path, unit: float) -> None:
    rows = [
        f"all_gather,{gpus},{size},{unit * gather(gpus, size)!r}"
        for gpus in (4, 8)
        for size in SIZES
    ]
    timings = written(tmp_path / "collectives.csv", rows)
    code, _, err = warehouse("calibrate", "--kernels", timings, "--accelerator", "H100")
    assert code == 3
    assert "are the times in seconds" in err
