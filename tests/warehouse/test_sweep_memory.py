"""A sweep bounds DuckDB's memory, and never raises the bound that it finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from warehouse.studies.study import load_study
from warehouse.sweep import machine, runner

IN_USE = "select sum(memory_usage_bytes)::bigint from duckdb_memory()"


def limit_of(connection: duckdb.DuckDBPyConnection) -> int:
    limit = "select parse_formatted_bytes(current_setting('memory_limit'))"
    return int(connection.execute(limit).fetchall()[0][0])


@pytest.mark.parametrize(
    ("before", "threads", "after"),
    [("8GB", 2, "953.6 MiB"), ("8GB", 1, "953.6 MiB"), ("8GB", 12, "1.8 GiB"), ("1MB", 2, None)],
)
def test_the_limit_is_lowered_and_never_raised(
    before: str, threads: int, after: str | None
) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{before}'")
        connection.execute(f"set threads = {threads}")
        limit = "select current_setting('memory_limit')"
        found = connection.execute(limit).fetchone()
        machine.bound_memory(connection)
        assert connection.execute(limit).fetchone() == (found if after is None else (after,))


def test_a_sweep_stores_its_rows_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[str] = []

    def bounded(connection: duckdb.DuckDBPyConnection) -> None:
        machine.bound_memory(connection)
        limits.extend(connection.execute("select current_setting('memory_limit')").fetchall()[0])

    monkeypatch.setattr(machine, "MOST_BYTES", 64_000_000)
    monkeypatch.setattr(machine, "THREAD_BYTES", 0)
    monkeypatch.setattr(runner, "bound_memory", bounded)
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\nestimator = "roofline"\n[space]\nmodel = "gpt3_1T"\n'
        'strategy = "tensor_1d"\naccelerator = "B200"\nnum_gpus = 512\nglobal_batch_size = 512\n'
    )
    report = runner.run_study(tmp_path / "small.duckdb", load_study(file))
    assert report.rows > 1000
    assert limits == ["61.0 MiB"]


def test_written_blocks_are_given_back_while_rows_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 MB that one statement stores a part is in memory, and the limit stays."""
    monkeypatch.setattr(machine, "WORKING_BYTES", 5_000_000)
    monkeypatch.setattr(machine, "BATCHES_BETWEEN", 8)
    monkeypatch.setattr(machine, "THREAD_BYTES", 0)
    values = np.random.default_rng(1).random(122_880)
    batch = pa.record_batch({"a": values})
    in_use: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            in_use.extend(other.execute(IN_USE).fetchall()[0])
            yield batch

    with duckdb.connect(tmp_path / "some.duckdb", config={"threads": 1}) as connection:
        connection.execute("set memory_limit = '100MB'")
        connection.execute("create table stored_rows (a double using compression uncompressed)")
        for given in (machine.giving_back, lambda _cursor, rows: rows):
            in_use.clear()
            other = connection.cursor()
            rows = given(connection.cursor(), batches())
            reader = pa.RecordBatchReader.from_batches(batch.schema, rows)
            connection.register("incoming", reader)
            connection.execute("insert into stored_rows select * from incoming")
            connection.unregister("incoming")
            if given is machine.giving_back:
                assert max(in_use) < 20_000_000
            else:  # each batch has 1 MB
                assert max(in_use) > 40_000_000
        assert connection.execute("select count(*) from stored_rows").fetchall() == [
            (80 * 122_880,)
        ]
        assert limit_of(connection) == pytest.approx(100_000_000, rel=0.01)


def test_a_lower_limit_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the limit is set")

    with duckdb.connect() as connection:
        connection.execute("set memory_limit = '100MB'")
        monkeypatch.setattr(machine, "_set_limit", refuse)
        assert list(machine.giving_back(connection.cursor(), iter(range(20)))) == list(range(20))


def test_the_limit_is_set_again_if_more_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "WORKING_BYTES", 1_000)
    monkeypatch.setattr(machine, "BATCHES_BETWEEN", 8)
    with duckdb.connect() as connection:
        connection.execute("set memory_limit = '200MB'")
        connection.execute("set temp_directory = ''")
        connection.execute("create table stored_rows as select range from range(1_000_000)")
        assert list(machine.giving_back(connection.cursor(), iter(range(8)))) == list(range(8))
        assert limit_of(connection) == pytest.approx(200_000_000, rel=0.01)
