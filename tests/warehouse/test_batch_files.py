"""Batch files: formats, columns kept as they are, and files that must not be touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.warehouse.batches import Batches
from warehouse.errors import InputError
from warehouse.evaluate import csv_parquet

RESULTS = ["step_seconds", "flops_per_gpu", "fits_memory"]
ROWS = "hidden_size,num_layers,num_gpus,tensor_parallel\n8,2,4,2\n8,3,1,1\n16,2,2,1\n"


def test_a_csv_keeps_the_text_of_columns_that_are_passed_through(
    run: Batches, tmp_path: Path
) -> None:
    rows = 'id,hidden_size,num_layers,when,"a ""b"", c"\n007,8,2,1e3,"x, y"\n0x1,8,2,,\n'
    run(rows)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0].startswith('id,hidden_size,num_layers,when,"a ""b"", c",step_seconds')
    assert lines[1].startswith('007,8,2,1e3,"x, y",')
    assert lines[2].startswith("0x1,8,2,,,")


def test_parquet_types_are_kept(run: Batches) -> None:
    frame = pl.DataFrame(
        {
            "model": pl.Series(["tiny", "tiny"], dtype=pl.Categorical),
            "hidden_size": pl.Series([8, None], dtype=pl.UInt8),
            "num_layers": pl.Series([2.0, 4.0], dtype=pl.Float32),
            "hbm_bytes": pl.Series([None, None]),
            "global_batch_size": ["2", " 3 "],
            "day": pl.Series([1, 2]).cast(pl.Date),
            "tags": [["a"], []],
        }
    )
    found = run(frame, "out.parquet")
    assert found.select(frame.columns).equals(frame)
    assert found.select(frame.columns).schema == frame.schema
    assert found["step_seconds"].to_list() == [32e-6, 96e-6]
    assert found.schema["fits_memory"] == pl.Boolean


def test_formats_may_be_mixed(run: Batches) -> None:
    found = run("id,hidden_size,num_layers\n7,8,2\n", "out.parquet")
    assert found.schema["id"] == pl.Int64
    assert run(found, "again.csv").columns == found.columns


def test_text_columns_of_a_csv_keep_their_text_after_ten_thousand_numbers(run: Batches) -> None:
    rows = "".join(f"{i},8,2\n" for i in range(csv_parquet.INFERRED_ROWS))
    found = run("id,hidden_size,num_layers\n" + rows + "last,8,2\n", "out.parquet")
    assert found["id"][-1] == "last"


def test_a_column_that_starts_with_ten_thousand_empty_cells_is_typed_by_the_rest(
    run: Batches,
) -> None:
    rows = ",8,2\n" * csv_parquet.INFERRED_ROWS
    found = run("id,hidden_size,num_layers\n" + rows + "5,8,2\n", "out.parquet")
    assert found.schema["id"] == pl.Int64


def test_a_file_without_rows_gives_a_result_without_rows(run: Batches) -> None:
    found = run("hidden_size,id\n")
    assert found.columns == ["hidden_size", "id", *RESULTS]
    assert found.height == 0
    assert run.report.num_rows == 0


def test_blank_lines_at_the_end_are_no_rows(run: Batches) -> None:
    assert run("hidden_size,num_layers\n8,2\n\n\n").height == 1


@pytest.mark.parametrize("name", ["in.csv", "./in.csv", "link.csv"])
def test_the_input_is_never_overwritten(tmp_path: Path, run: Batches, name: str) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "in.csv")
    with pytest.raises(InputError, match="is the input file"):
        run(ROWS, name)
    assert (tmp_path / "in.csv").read_text() == ROWS


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("out.json", "of no known format\nhint: name a file that ends in .csv or .parquet"),
        ("out", "of no known format"),
        ("none/out.csv", "does not exist"),
    ],
)
def test_an_output_that_cannot_be_is_refused(
    refusal: Callable[..., str], out: str, expected: str
) -> None:
    assert expected in refusal(ROWS, out)


def test_an_input_that_cannot_be_is_refused(run: Batches, tmp_path: Path) -> None:
    (tmp_path / "directory.csv").mkdir()
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "in.json").write_text("{}")
    for name, expected in [
        ("none.csv", "there is no such file"),
        ("directory.csv", "is a directory"),
        ("text.parquet", "cannot be read"),
        ("in.json", "of no known format"),
    ]:
        with pytest.raises(InputError, match=expected):
            run(tmp_path / name)


def test_a_failed_write_leaves_the_old_result_and_no_half_file(
    run: Batches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.csv").write_text("old")

    def fail(_: object, file: Path) -> None:
        file.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(pl.DataFrame, "write_csv", fail)
    with pytest.raises(InputError, match="cannot be written: disk full\nhint: free some space"):
        run(ROWS)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_a_link_to_the_result_stays_a_link(run: Batches, tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "out.csv").symlink_to("real.csv")
    run(ROWS)
    assert (tmp_path / "out.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("hidden_size")
