"""Reference tables: read by the dictionary, stored as read, refused with every fault named."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import duckdb
import pytest

from estimators.columns import COLUMNS, Column
from warehouse.database import resources
from warehouse.database.reference import read_table, reference_files, store_table
from warehouse.errors import InputError


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str | bytes, name: str = "model.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(path) in caught.value.message
    return str(caught.value)


def test_values_have_the_types_of_the_dictionary_and_empty_is_null(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COLUMNS, "a_date", Column("a_date", "date", "", "A day"))
    path = write(
        "model,num_layers,hbm_bytes,is_mended,a_date,evaluated_at,note,source\n"
        'gpt,96,80e9,true,2024-05-31,2024-05-31T12:00:00,"a, ""b""",arXiv\n'
        "gpt3,1e3,,false,,,, x \n"
    )
    table = read_table(path)

    assert table.name == "model"
    assert table.rows == (
        ("gpt", 96, 80e9, True, date(2024, 5, 31), datetime(2024, 5, 31, 12), 'a, "b"', "arXiv"),
        ("gpt3", 1000, None, False, None, None, None, "x"),
    )
    assert [type(value) for value in table.rows[0][1:4]] == [int, float, bool]
    with duckdb.connect() as connection:
        store_table(connection, table)
        assert connection.execute("from model").fetchall() == list(table.rows)
        types = connection.execute("describe model").fetchall()
        assert [kind for _, kind, *_ in types] == [
            *("VARCHAR", "INTEGER", "DOUBLE", "BOOLEAN"),
            *("DATE", "TIMESTAMP", "VARCHAR", "VARCHAR"),
        ]


def test_storing_again_replaces(write: Callable[..., Path]) -> None:
    with duckdb.connect() as connection:
        store_table(connection, read_table(write("model,source\na,x\nb,x\n")))
        store_table(connection, read_table(write("model,seq_len,source\nc,4,x\n")))
        assert connection.execute("from model").fetchall() == [("c", 4, "x")]
        store_table(connection, read_table(write("model,source\n")))
        assert connection.execute("from model").fetchall() == []


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_do_no_harm(
    write: Callable[..., Path],
) -> None:
    path = write("﻿model,seq_len,source\r\n\r\na,4,x\r\n".encode())

    assert read_table(path).rows == (("a", 4, "x"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,hiden_size,source\n", '"hiden_size" is not in the data dictionary'),
        ("model,hiden_size,source\n", "did you mean hidden_size"),
        ("model,zzzzzz,source\n", "hint: define it in estimators/columns"),
        ("model,,source\n", '`column` "" is not in the data dictionary'),
        ("model,model,source\n", '"model" appears twice'),
        ("model,seq_len\na,4\n", '"source" is missing'),
        ("model,source\na,x\nb, \n", "row 2: `source` is missing"),
        ("model,seq_len,source\na,four,x\n", 'row 1: `seq_len` "four" must be a whole number'),
        ("model,seq_len,source\na,2.5,x\n", "row 1: `seq_len` 2.5 must be a whole number"),
        ("model,seq_len,source\na,0,x\n", "row 1: `seq_len` 0 must be at least 1"),
        ("model,seq_len,source\na,3000000000,x\n", "must be at most 2147483647"),
        ("model,seq_len,source\na,1_000,x\n", '"1_000" must be a whole number'),
        ("model,hbm_bytes,source\na,nan,x\n", '`hbm_bytes` "nan" must be a number'),
        ("model,hbm_bytes,source\na,1e999,x\n", "is not a finite number"),
        ("model,hbm_bytes,source\na,-1,x\n", "must be at least 1"),
        ("model,nvlink_efficiency,source\na,1.5,x\n", "must be at most 1"),
        ("model,is_mended,source\na,yes,x\n", '"yes" must be true or false'),
        ("model,strategy,source\na,tensor_9d,x\n", '`strategy` "tensor_9d" is not known'),
        ("model,evaluated_at,source\na,31 May,x\n", '"31 May" is not a date'),
        ("model,source\na,x,y\n", 'row 1: `model` "a" has 3 fields, the header 2'),
        ("model,seq_len,source\na,4\n", "has 2 fields, the header 3"),
        ("", "is empty"),
        ('model,source\n"a,x\n', "is not a CSV table"),
        (b"model,source\na,\xff\n", "is not UTF-8 text"),
    ],
)
def test_a_fault_is_named_with_file_row_column_and_value(
    write: Callable[..., Path], text: bytes | str, said: str
) -> None:
    assert said in refusal(write(text))


def test_all_faults_are_named_at_once(write: Callable[..., Path]) -> None:
    said = refusal(write("model,seq_len,hbm_bytes,source\na,x,-1,\nb,4,y,z\n"))

    assert [line.split(": ")[1] for line in said.splitlines() if ": row " in line] == [
        *("row 1", "row 1", "row 1", "row 2"),
    ]


def test_a_file_whose_name_is_no_table_name_is_refused(write: Callable[..., Path]) -> None:
    assert "is not a table name" in refusal(write("model,source\n", "My table.csv"))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "gone.csv")


def test_the_packaged_tables_are_stored_as_in_their_files(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    files = reference_files()
    assert {path.stem for path in files} >= {"model", "system", "accelerator_alias"}
    assert {path.parent for path in files} == {resources.reference_directory()}
    for path in files:
        with path.open(encoding="utf-8", newline="") as file:
            header, *records = csv.reader(file)
        stored = warehouse_connection.execute(f"from {path.stem}")
        assert [name for name, *_ in stored.description] == header
        for row, record in zip(stored.fetchall(), records, strict=True):
            for name, value, text in zip(header, row, record, strict=True):
                kind = COLUMNS[name].kind
                wanted: object = text.strip() or None
                if wanted is not None and kind in ("int", "float"):
                    wanted = float(text)
                elif wanted is not None and kind == "bool":
                    wanted = text.strip() == "true"
                elif wanted is not None and kind == "date":
                    wanted = date.fromisoformat(text.strip())
                assert value == wanted, f"{path.name}: {name} of {row[0]}"


def test_every_packaged_row_has_a_source(warehouse_connection: duckdb.DuckDBPyConnection) -> None:
    for path in reference_files():
        query = f"select count(*), count(nullif(trim(source), '')) from {path.stem}"
        [(rows, sources)] = warehouse_connection.execute(query).fetchall()
        assert rows == sources
        assert rows > 0
