"""`warehouse show --table`: the notebook's tables cell for cell, published and mended."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from warehouse.cli.main import run

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the rows of a table as texts by heading, and what was said next to it."""

    def table(name: str, *arguments: str) -> tuple[list[dict[str, str]], str]:
        capsys.readouterr()
        assert (
            run(["show", "--estimator", "cluster", "--table", name, "--format", "csv", *arguments])
            == 0
        )
        out, err = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(out))), err

    return table


def printed(name: str) -> list[dict[str, str]]:
    """Return a table as the notebook shows it, its row numbers left out."""
    with (GOLDENS / f"notebook_{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: cell for key, cell in row.items() if key != "Unnamed: 0"} for row in rows]


def folded(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return rows with one blank where the notebook prints two, as the stored copy has it."""
    return [{key: re.sub(" +", " ", cell) for key, cell in row.items()} for row in rows]


@pytest.mark.parametrize(
    ("name", "cells"), [("critical_batch", 2), ("compute", 120), ("communication", 70)]
)
def test_what_the_notebook_printed_is_reproduced_cell_for_cell(
    table: Any, name: str, cells: int
) -> None:
    expected = printed(name)
    rows, err = table(name, "--variant", "published")
    # The stored copy stops after ten of the fourteen rows of `compute`.
    assert folded(rows)[: len(expected)] == expected
    assert sum(map(len, expected)) == cells
    assert err == ""


def test_compute_goes_on_where_the_stored_copy_stops(table: Any) -> None:
    rows, _ = table("compute", "--variant", "published")
    assert [row["gbs"] for row in rows[10:]] == ["4.0M", "8.0M", "16.0M", "32.0M"]
    assert [row["Total Steps"] for row in rows[10:]] == ["5000000", "2500000", "1250000", "625000"]


def test_tables_that_the_notebook_never_printed_name_their_erratum(table: Any) -> None:
    rows, err = table("latency", "--variant", "published")
    assert err.startswith("C6: the notebook stops here")
    # erratum 6 of the source, its 1M row
    one = rows[1]
    assert one["Global Batch Size"] == "1.0M"
    assert float(one["Total minimum communication latency between JZ and JC"]) == pytest.approx(
        1.78957864, rel=1e-8
    )
    assert one["Total GPU idle time for minimum comm between JZ and JC"] == "0.7 days"
    assert one["Total GPU idle time for minimum comm between JZ and EC"] == "0.04 years"
    cost = float(one["GPU idle cost during JZ-EC minimum communication latency"])
    assert cost == pytest.approx(787.163, abs=5e-4)
    rows, err = table("electricity", "--variant", "published")
    assert err.startswith("C7: the notebook stops here")
    step = "Total electricity per step (without grad accum)"
    whole = "Total electricity for the entire training (without grad accum)"
    assert [row[step] for row in rows] == [
        *("0.010 MW", "1.353 MW", "2.707 MW", "5.414 MW", "10.829 MW", "21.657 MW", "43.316 MW")
    ]
    assert {row[whole] for row in rows} == {"1.895 TW"}


# ---- mended ----


def test_fp8_shows_its_own_days(table: Any) -> None:  # C4
    heading = "Total communication time in fp8 - comm/compute ratio"
    published, _ = table("communication", "--variant", "published")
    mended, _ = table("communication", "--mend", "C4")
    assert published[1][heading] == "30181.8 days / 41.32 years - 98.49%"
    assert mended[1][heading] == "15090.9 days / 41.32 years - 98.49%"


def test_power_and_energy_are_printed_as_such(table: Any) -> None:  # C8
    rows, err = table("electricity", "--mend", "C8")
    # at 1M: 1.353 MW x 1.00064 s = 0.376 kWh; 1.895e12 J = 526.4 MWh
    assert list(rows[1].values())[3:] == ["1061.0", "0.376 kWh", "526.4 MWh"]
    assert err == ""


def test_light_between_sites_corrected(table: Any) -> None:
    rows, _ = table("latency", "--mend", "C3,C5,C6")
    # erratum 6, all of its parts mended, at 1M
    one = list(rows[1].values())[3:]
    assert float(one[0]) == pytest.approx(1789.58, abs=5e-3)
    assert one[1] == "22.0 days"
    assert float(one[2]) == pytest.approx(1054.86, abs=5e-3)
    assert float(one[3]) == pytest.approx(41706.5, abs=5e-2)
    assert one[4] == "1.40 years"
    assert float(one[5]) == pytest.approx(24583.65, abs=5e-3)


def test_another_model_and_another_accelerator(table: Any) -> None:
    rows, _ = table("compute", "parameters=1e12")
    assert len(rows) == 7  # more than 100 billion parameters: 20 trillion tokens are left out
    assert {row["Model Size (Params)"] for row in rows} == {"1.0T"}
    rows, _ = table("electricity", "accelerator=MI300X")
    assert {row["Total electricity per step (without grad accum)"] for row in rows} == {"-"}


def test_a_table_is_found_in_any_capitals(table: Any) -> None:
    assert table("COMPUTE") == table("compute")


# ---- faults ----


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("cluster --table gpus", 3, '`table` "gpus" is not a table of cluster'),
        ("roofline --table compute", 3, '`table` "compute" is unknown: roofline has no tables'),
        ("cluster --table compute global_batch_tokens=5", 3, "is an axis of the table"),
        ("cluster --table compute parameters=-1", 3, "must be more than 0"),
        ("cluster --table compute num_gpus=8", 3, "is computed, not given"),
        ("cluster --table electricity pue=1.5", 3, '`pue` "1.5" has no effect on table'),
        ("cluster --table compute num_sites=3", 3, '`num_sites` "3" has no effect on table'),
        ("cluster --table critical_batch mfu=0.3", 3, '`mfu` "0.3" has no effect on table'),
        ("cluster --table communication dataset_tokens=1e12", 3, "has no effect on table"),
        ("cluster --table latency latitude_b=4 longitude_b=5", 3, "has no effect on table"),
        ("cluster --table compute nonsense=8", 3, '"8" is not an input of cluster'),
        ("cluster --table compute --relation cluster_memory", 2, "`--table` exclude each other"),
        ("cluster --table compute --json --format csv", 2, "`--json` contradicts `--format` csv"),
    ],
)
def test_faults_are_reported(
    capsys: pytest.CaptureFixture[str], arguments: str, code: int, words: str
) -> None:
    assert run(["show", *arguments.split()]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_json_and_csv_of_a_table_have_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "--estimator", "cluster", "--table", "compute", "--format", "csv"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert run(["show", "--estimator", "cluster", "--table", "compute", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(lines) > 1
    assert list(rows[0]) == next(csv.reader([header]))
