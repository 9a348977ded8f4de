"""A sweep bounds DuckDB's memory, and never raises the bound that it finds."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from warehouse.studies.study import load_study
from warehouse.sweep import memory, runner


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
        memory.bound_memory(connection)
        assert connection.execute(limit).fetchone() == (found if after is None else (after,))


def test_a_sweep_stores_its_rows_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[str] = []

    def bounded(connection: duckdb.DuckDBPyConnection) -> None:
        memory.bound_memory(connection)
        limits.extend(connection.execute("select current_setting('memory_limit')").fetchall()[0])

    monkeypatch.setattr(memory, "MOST_BYTES", 64_000_000)
    monkeypatch.setattr(memory, "THREAD_BYTES", 0)
    monkeypatch.setattr(runner, "bound_memory", bounded)
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\nestimator = "roofline"\n[space]\nmodel = "gpt3_1T"\n'
        'strategy = "tensor_1d"\naccelerator = "B200"\nnum_gpus = 512\nglobal_batch_size = 512\n'
    )
    report = runner.run_study(tmp_path / "small.duckdb", load_study(file))
    assert report.rows > 1000
    assert limits == ["61.0 MiB"]
