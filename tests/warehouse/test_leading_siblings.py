"""Leading rows of cells that share layouts: each layout leads in its first sibling at most.

All layouts fit and need the same memory, so that only times decide. The layout of microbatch m
takes m seconds, if no test says otherwise, and a cell of many keeps its twenty fastest.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pytest

from warehouse.database import derived
from warehouse.database.sink import delete_cells
from warehouse.database.views import LEADING_ROW, checks, leading_sql

WHOLE = "{}"
RANKED = "from configuration_rank where rank_by_time <= 20"


@pytest.fixture
def connection(warehouse_connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    warehouse_connection.execute(
        "insert into problem by name select 1 as problem_id, 'tiny' as model, 2 as num_layers,"
        " 8 as hidden_size, 32 as ffn_hidden_size, 4 as num_heads, 6 as seq_len, 'Big' as"
        " accelerator, 8 as nvlink_size, 1e6 as matrix_flops_per_second, 100 as hbm_bytes,"
        " 8 as num_gpus, 1024 as global_batch_size"
    )
    return warehouse_connection


def store(
    connection: duckdb.DuckDBPyConnection,
    cell: int,
    kept: str,
    microbatches: Iterable[int],
    version: int = 1,
    hour: int = 0,
    seconds: str = "microbatch_size",
) -> None:
    """Store a cell, and what follows from all cells, as commands do."""
    connection.execute(
        "insert into cell by name select ? as cell_id, 1 as problem_id, 'roofline' as estimator,"
        " ? as estimator_version, 'roofline' as relation, '' as mends, 'published' as variant,"
        " ? as kept, 0 as num_rows, timestamp '2026-01-01' + to_hours(?) as evaluated_at,"
        " 'tensor_1d' as strategy, 'flash' as attention, 'none' as activation_recompute,"
        " 1 as virtual_pipeline",
        [cell, version, kept, hour],
    )
    connection.execute(
        "insert into roofline by name select ? as cell_id, 1 as problem_id,"
        " 1 as data_parallel,"
        " 1 as tensor_parallel, 1 as pipeline_parallel, unnest(?::int[]) as microbatch_size,"
        " 1 as weights_bytes, 1 as optimizer_bytes, 1 as activations_bytes,"
        f" {seconds} as step_seconds",
        [cell, list(microbatches)],
    )
    derived.refresh(connection)


def drop(connection: duckdb.DuckDBPyConnection, cell: int) -> None:
    delete_cells(connection, [cell])
    derived.refresh(connection)


def leading(connection: duckdb.DuckDBPyConnection) -> dict[int, list[int]]:
    """Return the leading layouts of each cell, and check that views and `validate` agree."""
    rows = "select cell_id, list(microbatch_size order by microbatch_size) from {} group by 1"
    found = dict(connection.execute(rows.format(LEADING_ROW)).fetchall())
    assert dict(connection.execute(rows.format(f"({leading_sql()})")).fetchall()) == found
    [check] = [each for each in checks() if each.name == "leading_rows_lead"]
    assert connection.execute(check.sql).fetchall() == []
    return found


def numbers(*spans: tuple[int, int]) -> list[int]:
    """Return the numbers of spans, both ends included."""
    return [number for first, last in spans for number in range(first, last + 1)]


def test_a_whole_space_takes_its_layouts_from_a_part_and_gives_them_back(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(connection, 1, '{"a": 1}', range(1, 26))
    assert leading(connection) == {1: numbers((1, 20))}

    # it shares 1 to 15 with the part, which has 16 to 25 alone
    store(connection, 2, WHOLE, numbers((1, 15), (101, 110)))
    assert leading(connection) == {1: numbers((16, 25)), 2: numbers((1, 15), (101, 105))}
    ranked = connection.execute(f"select cell_id, microbatch_size {RANKED} order by rank_by_time")
    assert ranked.fetchall() == [(2, m) for m in range(1, 16)] + [(1, m) for m in range(16, 21)]

    drop(connection, 2)
    assert leading(connection) == {1: numbers((1, 20))}


def test_a_part_whose_layouts_are_all_elsewhere_has_no_leading_row(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(connection, 1, WHOLE, range(1, 31))
    store(connection, 2, '{"a": 1}', range(5, 30))
    assert leading(connection) == {1: numbers((1, 20))}
    assert connection.execute(f"select count(*) {RANKED}").fetchall() == [(20,)]


@pytest.mark.long
def test_later_parts_follow_when_an_earlier_one_changes(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(connection, 1, '{"a": 1}', range(1, 26))
    store(connection, 3, '{"b": 2}', range(20, 61))
    assert leading(connection) == {1: numbers((1, 20)), 3: numbers((26, 45))}

    # evaluated again, with other layouts: as many hidden, others shown
    delete_cells(connection, [1])
    store(connection, 1, '{"a": 1}', range(1, 31), hour=1)
    assert leading(connection) == {1: numbers((1, 20)), 3: numbers((31, 50))}

    # between the two
    store(connection, 2, '{"c": 3}', numbers((10, 12), (31, 40)))
    assert leading(connection) == {
        1: numbers((1, 20)),
        2: numbers((31, 40)),
        3: numbers((41, 60)),
    }

    drop(connection, 1)
    assert leading(connection) == {
        2: numbers((10, 12), (31, 40)),
        3: numbers((20, 30), (41, 49)),
    }


@pytest.mark.long
def test_a_newer_version_puts_older_cells_out_of_force_until_it_is_dropped(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(connection, 1, WHOLE, range(1, 4))
    store(connection, 2, '{"a": 1}', range(3, 7))
    before = leading(connection)
    assert before == {1: [1, 2, 3], 2: [4, 5, 6]}

    # its times count, also for the layouts that the older part has as well
    newer = '{"a": 1}'
    store(connection, 3, newer, [6, 7], version=2, seconds="microbatch_size / 2")
    assert leading(connection) == {1: [1, 2, 3], 2: [4, 5], 3: [6, 7]}

    store(connection, 4, WHOLE, [2, 8], version=2)
    assert leading(connection) == {4: [2, 8], 3: [6, 7]}

    drop(connection, 4)
    drop(connection, 3)
    assert leading(connection) == before


@pytest.mark.long
def test_cells_of_another_variant_are_no_siblings(connection: duckdb.DuckDBPyConnection) -> None:
    store(connection, 1, WHOLE, range(1, 4))
    store(connection, 2, '{"a": 1}', range(2, 6))
    connection.execute("update cell set variant = 'corrected' where cell_id = 2")
    derived.refresh(connection)
    assert leading(connection) == {1: [1, 2, 3], 2: [2, 3, 4, 5]}


def test_rows_as_fast_as_a_leading_row_do_not_lead_if_they_need_more_memory(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """A search finds what a sweep finds, not all rows whose times are those of leading rows."""
    store(connection, 1, WHOLE, [*numbers((1, 20)), 30, 31, 32, 33])
    connection.execute(
        "update roofline set activations_bytes = case microbatch_size "
        "when 30 then 10 when 31 then 10 when 32 then 11 when 33 then 1000 else 50 end, "
        "step_seconds = case microbatch_size when 31 then 30 when 32 then 30 when 33 then 5 "
        "else microbatch_size end"
    )
    derived.rebuild(connection)
    # 30 and 31 are equal: one is on the front; 32 needs more, 33 does not fit
    assert leading(connection) == {1: [*numbers((1, 20)), 30]}
    [counted] = connection.execute("select num_layouts, num_fitting_layouts from cell").fetchall()
    assert counted == (24, 23)
