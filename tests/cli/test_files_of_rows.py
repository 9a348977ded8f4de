"""Files of rows as people have them: each command that reads one names the place of a fault."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.shared import Command

HEADER = "model,accelerator,num_gpus,global_batch_size,framework,step_seconds"
ROW = "gpt3_1.3B,A100 SXM 80GB,8,64,fsdp,2.0"
KERNELS = "accelerator,number_format,num_rows,num_columns,inner_size,seconds,layout"
KERNEL = "H100 SXM 80GB,bf16,2048,2048,2048,0.001,TN"

READERS = ("evaluate", "measure", "calibrate", "calibrate --kernels")

Refuse = Callable[[str, Path], str]


@pytest.fixture
def refuse(warehouse: Command, tmp_path: Path) -> Refuse:
    """Return the error of a command for a file, which it must refuse without writing anything."""

    def refuse(reader: str, file: Path) -> str:
        database = tmp_path / "none.duckdb"
        out = ("--out", tmp_path / "out.csv") if reader == "evaluate" else ("--name", "ours")
        estimator = ("--estimator", "training_step") if reader == "evaluate" else ()
        code, stdout, err = warehouse(*reader.split(), *estimator, file, *out, "--db", database)
        assert (code, stdout) == (3, ""), err
        assert not (tmp_path / "out.csv").exists()
        return err

    return refuse


def lines_for(reader: str) -> tuple[str, str]:
    """Return the header and a row of the file that a command reads."""
    return (KERNELS, KERNEL) if reader.endswith("kernels") else (HEADER, ROW)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda header, row: [header, row, f"{row},5"], "line 3 has {more} cells, not {width}\n"),
        (lambda header, row: [header, f"{row},"], "remove the commas at its end"),
        (
            lambda header, row: ["# runs of May", header, row],
            "line 1 is a comment: # runs of May\n",
        ),
        (
            lambda header, row: [f"# runs,{header},of May", header, row],
            "line 1 is a comment: # runs\n",
        ),
        (lambda header, row: [header, "# \x1b[31mred", row], r"is a comment: # \x1b[31mred"),
        (lambda header, row: [header, "# slow ones", row], "line 2 is a comment: # slow ones\n"),
        (lambda header, row: ["sep=,", header, row], "line 1 is a remark for spreadsheets: sep="),
    ],
    ids=[
        "a cell too many",
        "a comma too many",
        "a comment",
        "a comment with names",
        "a comment with colour",
        "a comment below",
        "sep=",
    ],
)
def test_a_line_that_is_no_row_is_named(
    refuse: Refuse,
    tmp_path: Path,
    reader: str,
    change: Callable[[str, str], list[str]],
    said: str,
) -> None:
    header, row = lines_for(reader)
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(change(header, row)) + "\n", encoding="utf-8")
    width = header.count(",") + 1
    err = refuse(reader, file)
    assert err.startswith(f"error: {file}: line ")
    assert said.format(more=width + 1, width=width) in err
    assert "\nhint: " in err


def test_a_column_may_be_called_by_a_number_sign(warehouse: Command, tmp_path: Path) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    file.write_text(f"#,{HEADER}\n1,{ROW}\n", encoding="utf-8")
    assert warehouse("evaluate", "--estimator", "training_step", file, "--out", out)[0] == 0
    assert out.read_text(encoding="utf-8").startswith(f"#,{HEADER}")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("reader", "column", "text"),
    [
        *((reader, "framework", "fsdp\0") for reader in READERS[:3]),
        ("evaluate", "model", "gpt3_1.3B\x1b[2J"),
        ("evaluate", "remark", "slow\x1b[2J"),
        ("measure", "run", "first\x07"),
        ("measure", "note", "slow\0"),
        ("calibrate", "run", "first\x07"),
        ("calibrate --kernels", "accelerator", "H100 SXM 80GB\0"),
        ("calibrate --kernels", "layout", "TN\0"),
    ],
)
def test_a_control_character_is_refused_with_its_row_and_column(
    refuse: Refuse, tmp_path: Path, reader: str, column: str, text: str, suffix: str
) -> None:
    header, row = lines_for(reader)
    values = dict(zip(header.split(","), row.split(","), strict=True))
    frame = pl.DataFrame([values, {**values, column: text}], infer_schema_length=None)
    if column not in values:
        frame = frame.with_columns(pl.Series(column, ["plain", text]))
    file = tmp_path / f"rows{suffix}"
    frame.write_csv(file) if suffix == ".csv" else frame.write_parquet(file)
    err = refuse(reader, file)
    assert err.startswith(f"error: {file}: ")
    assert any(place in err for place in ("row 2: ", "line 3: ", "run first"))
    assert f'`{column}` "{repr(text)[1:-1]}" ' in err
    assert "\0" not in err
    assert "\x1b" not in err


@pytest.mark.parametrize("reader", READERS[:3])
def test_a_control_character_in_the_name_of_a_column_is_refused(
    refuse: Refuse, tmp_path: Path, reader: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"{HEADER},frame\x1bwork\n{ROW},slow\n", encoding="utf-8")
    err = refuse(reader, file)
    assert r"frame\x1bwork" in err
    assert "\x1b" not in err  # in a remark on the name, too


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["accelerator", "seconds"])
def test_a_control_character_in_the_name_of_a_needed_column_is_refused(
    refuse: Refuse, tmp_path: Path, reader: str, name: str
) -> None:
    file = tmp_path / "rows.csv"
    header, row = lines_for(reader)
    header = header.replace(name, f"{name}\x1b[31m")
    file.write_text(f"{header}\n{row}\n", encoding="utf-8")
    err = refuse(reader, file)
    assert rf'{name}\x1b[31m" has the control character' in err
    assert "\x1b" not in err


def test_a_column_that_is_copied_may_have_several_lines(warehouse: Command, tmp_path: Path) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    file.write_text(f'{HEADER},"two\nlines"\n{ROW},"first\nsecond\tline"\n', encoding="utf-8")
    assert warehouse("evaluate", "--estimator", "training_step", file, "--out", out)[0] == 0
    assert pl.read_csv(out)["two\nlines"].to_list() == ["first\nsecond\tline"]


def test_a_note_may_have_several_lines(warehouse: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f'{HEADER},note\n{ROW},"first\nsecond\tline"\n', encoding="utf-8")
    code, _, err = warehouse("measure", file, "--db", tmp_path / "own.duckdb")
    assert code == 0, err


OTHER_TYPES: dict[str, tuple[Any, str]] = {
    "list": ([8], "List(Int64)"),
    "struct": ({"a": 8}, "Struct({'a': Int64})"),
    "binary": (b"8", "Binary"),
}


@pytest.mark.parametrize(
    ("reader", "column"),
    [
        *((reader, "num_gpus") for reader in READERS[:3]),
        *((reader, "step_seconds") for reader in READERS[1:3]),
        *((reader, "run") for reader in READERS[1:3]),
        *(("measure", name) for name in ("memory_bytes", "measured_memory_kind", "note")),
        *(("measure", name) for name in ("profile", "global_batch_size")),
        *(("calibrate --kernels", name) for name in ("accelerator", "layout", "seconds")),
    ],
)
def test_a_column_of_lists_is_refused_by_name_and_type(
    refuse: Refuse, tmp_path: Path, reader: str, column: str
) -> None:
    refuse_type(refuse, tmp_path, reader, column, "list")


@pytest.mark.parametrize("kind", ["struct", "binary"])
@pytest.mark.parametrize(
    ("reader", "column"),
    [
        *((reader, "num_gpus") for reader in READERS[:3]),
        *(("measure", name) for name in ("step_seconds", "note", "profile")),
        *(("calibrate --kernels", name) for name in ("accelerator", "seconds")),
    ],
)
def test_a_column_of_another_type_is_refused_by_name_and_type(
    refuse: Refuse, tmp_path: Path, reader: str, column: str, kind: str
) -> None:
    refuse_type(refuse, tmp_path, reader, column, kind)


def refuse_type(refuse: Refuse, place: Path, reader: str, column: str, kind: str) -> None:
    """Check that a command refuses a file in which a column has values of another type."""
    value, name = OTHER_TYPES[kind]
    header, row = lines_for(reader)
    frame = pl.DataFrame([dict(zip(header.split(","), row.split(","), strict=True))])
    file = place / "rows.parquet"
    frame.with_columns(pl.Series(column, [value])).write_parquet(file)
    err = refuse(reader, file)
    assert err.startswith(
        f'error: {file}: `{column}` "{value}" is a column of type {name}; it must'
    )


def test_a_day_is_no_measured_step(refuse: Refuse, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    row = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    pl.DataFrame([{**row, "step_seconds": datetime.date(2026, 5, 1)}]).write_parquet(file)
    assert "is a column of type Date; it must hold a number" in refuse("calibrate", file)


def test_a_decimal_is_a_number(warehouse: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    row = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    exact = {**row, "num_gpus": Decimal(8), "step_seconds": Decimal("2.5")}
    pl.DataFrame([exact]).write_parquet(file)
    code, out, err = warehouse("measure", file, "--db", tmp_path / "own.duckdb", "--json")
    assert code == 0, err
    assert '"measured_step_seconds": 2.5' in out


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_a_kept_column_that_csv_cannot_hold_is_refused(
    refuse: Refuse, warehouse: Command, tmp_path: Path, kind: str
) -> None:
    value, name = OTHER_TYPES[kind]
    file, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    row = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    pl.DataFrame([row]).with_columns(pl.Series("mine", [value])).write_parquet(file)
    err = refuse("evaluate", file)
    assert f"column `mine` is of type {name}, which CSV cannot hold" in err
    assert ".parquet" in err
    assert warehouse("evaluate", "--estimator", "training_step", file, "--out", out)[0] == 0
    assert pl.read_parquet(out)["mine"].to_list() == [value]


@pytest.mark.parametrize("name", ["mine", "framework"])
def test_a_csv_with_texts_that_begin_as_formulas_is_written_with_a_warning(
    warehouse: Command, tmp_path: Path, name: str
) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    header = HEADER if name == "framework" else f"{HEADER},mine"
    row = ROW if name == "framework" else f"{ROW},=1+1"
    file.write_text(f"{header}\n{row}\n", encoding="utf-8")
    code, _, err = warehouse("evaluate", "--estimator", "training_step", file, "--out", out)
    assert code == 0
    said = f"warning: {out}: texts in `mine` begin as formulas do"
    assert (said in err) == (name == "mine")
    assert ("=1+1" in out.read_text(encoding="utf-8")) == (name == "mine")
