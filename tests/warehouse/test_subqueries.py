"""Subqueries that a column is compared with: their values take their places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.shared import Quickstart
from tests.warehouse.scans import rows_read
from warehouse.database.connection import open_for_read
from warehouse.database.subqueries import with_values


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("create table number as select i, i % 3 as rest from range(9) as r (i)")
        opened.execute("create table word as select * from (values ('a', 1), ('b''s', 2)) w (w, i)")
        opened.execute("create table gap as select unnest([1, null]) as i")
        yield opened


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (
            "from number where i = (select max(i) from word) -- é",
            "from number where i = (cast('2' as INTEGER)) -- é",
        ),
        (
            "select 'é', count(*) from number where (from word select i where w = 'a')=i and i < 5",
            "select 'é', count(*) from number where (cast('1' as INTEGER))=i and i < 5",
        ),
        (
            "from number where i not in (select i from word order by i) or i IN(select 2::bigint)",
            "from number where i not in (cast('1' as INTEGER), cast('2' as INTEGER))"
            " or i IN(cast('2' as BIGINT))",
        ),
        (
            "from word where w = (select max(w) from word where i = (select max(i) from word))",
            "from word where w = (cast('b''s' as VARCHAR))",
        ),
        (
            "select count(*) from (from number where rest = (select min(i) from word))",
            "select count(*) from (from number where rest = (cast('1' as INTEGER)))",
        ),
    ],
)
def test_values_take_the_place_of_a_subquery(
    connection: duckdb.DuckDBPyConnection, query: str, wanted: str
) -> None:
    assert with_values(connection, query) == wanted
    assert connection.sql(wanted).fetchall() == connection.sql(query).fetchall() != []


@pytest.mark.parametrize(
    "query",
    [
        # it reads a column of the query around it
        "from number where i = (select max(word.i) from word where word.i < number.i)",
        "from number where i in (select w.i from word as w where w.i = rest)",
        # a name of the query around it hides the table
        "with word as (select 7 as i) from number where i = (select i from word)",
        "select (with Word as (select 7 as i) select count(*) from number where i in (from word))",
        # no value, or a gap: nothing is equal, and nothing is unlike
        "from number where i = (select i from word where false)",
        "from number where i not in (select i from gap)",
        "from number where i in (select i from word where false)",
        # another type, other comparisons, no column
        "from number where i = (select 1.0::double)",
        "from number where i < (select max(i) from word)",
        "from number where i = any (select i from word)",
        "from number where i + 1 = (select max(i) from word)",
        "select (select max(i) from word)",
        # faults
        "from number where i = (select i from word)",
        "from number where i = (select i, w from word)",
        "from number where i = (select missing from word)",
        "from number where i = (select i from",
        "insert into number select (select 1)",
    ],
)
def test_other_queries_stay_as_they_are(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    assert with_values(connection, query) == query


def test_a_long_list_stays_a_join(connection: duckdb.DuckDBPyConnection) -> None:
    def query(rows: int) -> str:
        return f"from number where i in (select r.i from range({rows}) as r (i))"

    assert with_values(connection, query(1000)).count("cast") == 1000
    assert with_values(connection, query(1001)) == query(1001)


@pytest.mark.long
def test_ranks_of_a_problem_that_is_looked_up_read_no_other(quickstart: Quickstart) -> None:
    found = "select min(problem_id) from cell where estimator = 'roofline'"
    with open_for_read(Path(quickstart.database)) as connection:
        # each thread takes a block before it knows that none is wanted
        connection.execute("set threads = 1")
        [(problem,)] = connection.execute(found).fetchall()
        ranks = "from configuration_rank where rank_by_time > 10 and problem_id = "
        literal = rows_read(connection, f"{ranks}{problem}")
        looked_up = rows_read(connection, with_values(connection, f"{ranks}({found})"))
        joined = rows_read(connection, f"{ranks}({found})")
    assert looked_up == literal
    assert looked_up["roofline"] < joined["roofline"]
