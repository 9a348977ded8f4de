"""The sandbox: what a query can do, and everything it has been tried with and cannot."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from tests.shared import digest
from warehouse.database import sandbox
from warehouse.database.connection import open_for_read
from warehouse.database.sandbox import Limits, select
from warehouse.errors import DatabaseError, InputError, UsageError


@pytest.fixture
def rows(empty_warehouse: Path) -> Callable[..., list[Any]]:
    """Run a query and return its rows."""

    def rows(sql: str, limits: Limits | None = None, **options: Any) -> list[Any]:
        with select(empty_warehouse, sql, limits, **options) as result:
            return result.rows()

    return rows


@pytest.mark.parametrize(
    "sql",
    [
        "select model from model where model = 'gpt3'",
        "from model select model where model = 'gpt3' limit 1;",
        "with m as (from model where vocab_size is null) select min(model) from m -- least",
        "values ('gpt3')",
        "select * from query('select ''gpt3''')",
        "/* first */ select 'gpt3' as model",
    ],
)
def test_any_form_of_one_select_runs(rows: Callable[..., list[Any]], sql: str) -> None:
    assert rows(sql) == [("gpt3",)]


@pytest.mark.parametrize(
    "sql", ["describe model", "summarize model", "show tables", "show databases"]
)
def test_looking_around_counts_as_a_select(rows: Callable[..., list[Any]], sql: str) -> None:
    assert rows(sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "is empty"),
        ("  ; ", "is empty"),
        ("-- nothing", "is empty"),
        ("select 1; select 2", "has 2 statements"),
        ("select 1; drop table model", "has 2 statements"),
        ("attach 'other.duckdb'", "ATTACH"),
        ("detach warehouse", "DETACH"),
        ("copy model to 'out.csv'", "COPY"),
        ("copy (select 1) to 'out.parquet' (format parquet)", "COPY"),
        ("export database 'out'", "EXPORT"),
        ("install httpfs", "LOAD"),
        ("load httpfs", "LOAD"),
        ("set enable_external_access = true", "SET"),
        ("reset lock_configuration", "SET"),
        ("pragma database_size", "PRAGMA"),
        ("call pragma_version()", "CALL"),
        ("create table t as select 1", "CREATE"),
        ("create temporary table t as select 1", "CREATE"),
        ("create or replace view configuration as select 1 as x", "CREATE"),
        ("insert into model from model", "INSERT"),
        ("update model set model = ''", "UPDATE"),
        ("delete from model", "DELETE"),
        ("drop view configuration", "DROP"),
        ("alter table model add column x int", "ALTER"),
        ("begin", "TRANSACTION"),
        ("checkpoint", "CALL"),
        ("vacuum", "VACUUM"),
        ("prepare p as select 1", "PREPARE"),
        ("explain analyze select 1", "EXPLAIN"),
        ("pivot model on seq_len using count(*)", "PIVOT"),
        ("set variable x = 1", "SET"),
    ],
)
def test_anything_but_one_select_is_refused_unrun(
    rows: Callable[..., list[Any]], sql: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        rows(sql)
    assert caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "from read_csv('{file}')",
        "from read_text('{file}')",
        "from read_blob('{file}')",
        "from read_json('{file}')",
        "from read_parquet('{file}')",
        "from read_duckdb('{file}')",
        "from parquet_metadata('{file}')",
        "from sniff_csv('{file}')",
        "from glob('{directory}/*')",
        "from '{file}'",
        "from 'table.parquet'",
        "from 'table.csv'",
        "from 'https://example.com/table.parquet'",
        "from 's3://bucket/table.parquet'",
        "from query('from read_text(''{file}'')')",
        "from query_table('{file}')",
        "select (select content from read_text('{file}'))",
        "from duckdb_secrets()",
    ],
)
def test_no_file_or_address_can_be_read(
    rows: Callable[..., list[Any]], tmp_path: Path, sql: str
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\nsecret,1\n")
    with pytest.raises(InputError) as caught:
        rows(sql.format(file=file, directory=tmp_path))
    assert "secret,1" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "with x as (delete from model returning *) select * from x",
        "with x as (insert into model select * from model returning *) select * from x",
        "from query('drop table model')",
        "from sqlite_scan('a.db', 't')",
        "from postgres_scan('', '', '')",
        "select getenv('HOME')",
        "select nextval('s')",
        "from sandboxed",
        "from limits",
        "select $1",
    ],
)
def test_no_write_no_extension_no_environment_and_no_python_variable(
    rows: Callable[..., list[Any]], sql: str
) -> None:
    sandboxed = [(1,)]
    with pytest.raises(InputError):
        rows(sql)
    assert sandboxed


def test_the_settings_are_locked_and_as_given(rows: Callable[..., list[Any]]) -> None:
    settings = dict(rows("select name, value from duckdb_settings()", Limits(memory="1GiB")))
    assert settings["enable_external_access"] == "false"
    assert settings["lock_configuration"] == "true"
    assert settings["python_enable_replacements"] == "false"
    assert settings["access_mode"].lower() == "read_only"
    assert settings["memory_limit"] == "1.0 GiB"


def test_the_database_is_the_same_afterwards(
    rows: Callable[..., list[Any]], empty_warehouse: Path
) -> None:
    before = digest(empty_warehouse)
    assert rows("select count(*) from model") != [(0,)]
    for sql in ("delete from model", "with x as (delete from model returning *) from x"):
        with pytest.raises(InputError):
            rows(sql)
    assert digest(empty_warehouse) == before


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("from modell", "show tables"),
        ("from read_csv('x.csv')", "nothing else"),
    ],
)
def test_a_refusal_is_duckdbs_with_a_hint_of_ours(
    rows: Callable[..., list[Any]], sql: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        rows(sql)
    assert hint in caught.value.hint


def test_an_error_in_the_middle_of_the_rows_is_the_users_as_well(empty_warehouse: Path) -> None:
    sql = "select case when range < 200000 then 1 else error('too far') end from range(300000)"
    seen = 0
    with pytest.raises(InputError, match="too far"), select(empty_warehouse, sql) as result:
        for block in result.blocks:
            seen += len(block)
    assert seen < 300_000


def test_a_query_out_of_time_is_stopped(rows: Callable[..., list[Any]]) -> None:
    endless = "with recursive a(i) as (select 1 union all select i + 1 from a) select max(i) from a"
    with pytest.raises(InputError, match=r"stopped after 0\.2 seconds"):
        rows(endless, Limits(seconds=0.2))


def test_time_that_the_reader_takes_does_not_count(
    empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("warehouse.database.sandbox.time", clock)
    with select(empty_warehouse, "from range(50000)", Limits(seconds=60)) as result:
        num_rows = 0
        for block in result.blocks:
            num_rows += len(block)
            now += 1000
    assert num_rows == 50_000


def test_time_of_printing_counts_between_blocks_on_request(empty_warehouse: Path) -> None:
    now = 0.0

    def num_printed(rows: int) -> int:
        nonlocal now
        sql, limits = f"from range({rows})", Limits(seconds=60)
        printed = 0
        with (
            suppress(InputError),
            select(empty_warehouse, sql, limits, printing=lambda: now) as result,
        ):
            for block in result.blocks:
                printed += len(block)
                now += 25
        return printed

    assert num_printed(50_000) == 30_000
    assert num_printed(25_000) == 25_000  # the last block is printed already


def test_all_pieces_of_a_query_share_its_time(empty_warehouse: Path) -> None:
    slow = "select max(range) from range(10000000) group by range % 3000000"
    with (
        pytest.raises(InputError, match="stopped after"),
        select(empty_warehouse, f"{slow} union all {slow}", Limits(seconds=0.05)) as result,
    ):
        result.rows()


def test_a_query_out_of_memory_is_refused_and_one_that_can_spill_is_not(
    rows: Callable[..., list[Any]],
) -> None:
    with pytest.raises(InputError, match="more than 50MB"):
        rows("select list(range) from range(100000000)", Limits(memory="50MB"))
    ordered = "select count(*) from (select range, hash(range) as h from range(4000000) order by h)"
    assert rows(ordered, Limits(memory="50MB")) == [(4_000_000,)]


@pytest.mark.parametrize(
    ("memory", "size"),
    [("2GB", 2_000_000_000), ("1.5 gib", 1_610_612_736), ("500M", 500_000_000), ("2e", None)],
)
def test_memory_is_read_as_people_write_it(memory: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(UsageError, match="is not an amount"):
            Limits(memory=memory)
    else:
        assert Limits(memory=memory).memory_bytes == size


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 1e9])
def test_a_time_limit_that_cannot_be_kept_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError):
        Limits(seconds=seconds)


def test_times_with_a_zone_come_as_text_in_order(rows: Callable[..., list[Any]]) -> None:
    sql = (
        "select range as i, timestamptz '2024-05-31 12:00:00+02' as \"it's\", "
        "'2024-05-31'::date::timestamp as plain, 5 as i from range(3) order by range desc;"
    )
    found = rows(sql)
    assert [row[0] for row in found] == [2, 1, 0]
    assert datetime.fromisoformat(found[0][1]) == datetime.fromisoformat("2024-05-31T10:00:00Z")
    assert found[0][2:] == (datetime(2024, 5, 31), 5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("interval '1 month 3 days'", "1 month 3 days"),
        ("interval '-1 second'", "-00:00:01"),
        ("interval '1 year'", "1 year"),
        ("[interval '1 year', null]", ["1 year", None]),
        ("{a: interval '1 year', 'b c': 2}", {"a": "1 year", "b c": 2}),
        ("map {1: interval '1 year'}", {1: "1 year"}),
        ("row(1, interval '1 year')", (1, "1 year")),
        ("'infinity'::timestamp", "infinity"),
        ("'-infinity'::timestamp_s", "-infinity"),
        ("'infinity'::date", "infinity"),
        ("{t: 'infinity'::timestamp}", {"t": "infinity"}),
        ("'9999-12-31'::date", date(9999, 12, 31)),
        ("timestamp '2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5)),
        ("null::timestamp", None),
        ("timestamp_ns '2026-01-02 03:04:05.123456789'", "2026-01-02 03:04:05.123456789"),
        ("time_ns '03:04:05.123456789'", "03:04:05.123456789"),
    ],
)
def test_a_value_that_python_lacks_comes_as_text(
    rows: Callable[..., list[Any]], value: str, expected: object
) -> None:
    assert rows(f"select {value} as x, 1 as y") == [(expected, 1)]


def test_a_query_with_dates_is_run_once(
    rows: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def seen(number: int) -> int:
        calls.append(number)
        return number

    @contextmanager
    def counted(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
        with open_for_read(path) as connection:
            connection.create_function("seen", seen, ["bigint"], "bigint", side_effects=True)
            yield connection

    monkeypatch.setattr(sandbox, "open_for_read", counted)
    sql = "select 'infinity'::date as day, sum(seen(i)) as s from range(3) as r(i) group by day"
    assert rows(sql) == [("infinity", 3)]
    assert sorted(calls) == [0, 1, 2]


def test_every_type_of_duckdb_can_be_read(rows: Callable[..., list[Any]]) -> None:
    assert len(rows("from test_all_types()")) == 3


def test_names_and_types_are_duckdbs_and_integers_are_exact(empty_warehouse: Path) -> None:
    sql = "select 1 as a, 2.5::double as a, 9223372036854775807 + 1::hugeint as big"
    with select(empty_warehouse, sql) as result:
        assert result.columns == ("a", "a", "big")
        assert result.types == ("INTEGER", "DOUBLE", "HUGEINT")
        assert result.rows() == [(1, 2.5, 9223372036854775808)]


def test_a_process_is_unbound_again_after_its_query(empty_warehouse: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = Limits(memory="64MB")
    with select(empty_warehouse, "select 1", limits, bound_process=True) as result:
        during = resource.getrlimit(resource.RLIMIT_DATA)
        result.rows()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert during[0] != before[0]


def test_a_missing_database_is_not_made() -> None:
    path = Path("does/not/exist.duckdb")
    with pytest.raises(DatabaseError, match="no such database"), select(path, "select 1"):
        pass
    assert not path.exists()


def test_a_connection_is_closed_whatever_happens(empty_warehouse: Path, database: Path) -> None:
    shutil.copyfile(empty_warehouse, database)
    with pytest.raises(InputError), select(database, "select nothing"):
        pass
    with pytest.raises(ZeroDivisionError), select(database, "select 1"):
        raise ZeroDivisionError
    # Another mode would be refused while a connection is open.
    duckdb.connect(str(database)).close()
