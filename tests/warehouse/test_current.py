"""The `current_*` views: the newest version, each layout once, and a plain scan when they can."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.toy_estimator import TOY
from warehouse.database import derived
from warehouse.database.in_force import mark
from warehouse.database.new_file import in_memory
from warehouse.database.sink import delete_cells


@dataclass(frozen=True)
class Stored:
    """A cell as the tests store it: what decides, and the layouts with their results."""

    cell_id: int
    problem_id: int
    rows: tuple[tuple[int | None, int | None, float], ...]
    version: int = 1
    mends: str = ""
    recompute: str | None = "none"
    kept: str = "{}"
    variant: str = ""


@pytest.fixture(scope="module")
def _opened(toy_in_module: None) -> Iterator[duckdb.DuckDBPyConnection]:
    del toy_in_module  # registered before the tables are made
    with in_memory() as opened:
        yield opened


@pytest.fixture
def connection(_opened: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty warehouse; a test's changes are rolled back."""
    _opened.begin()
    yield _opened
    _opened.rollback()


def store(connection: duckdb.DuckDBPyConnection, *cells: Stored) -> None:
    for cell in cells:
        connection.execute(
            "insert or ignore into problem by name select ? as problem_id, 8 as num_gpus",
            [cell.problem_id],
        )
        connection.execute(
            "insert into cell by name select ? as cell_id, ? as problem_id, 'toy' as estimator, "
            "? as estimator_version, 'toy' as relation, ? as mends, ? as variant, ? as kept, "
            "? as num_rows, ? as activation_recompute",
            [
                *(cell.cell_id, cell.problem_id, cell.version, cell.mends),
                *(
                    cell.variant or cell.mends or "published",
                    cell.kept,
                    len(cell.rows),
                    cell.recompute,
                ),
            ],
        )
        if cell.rows:
            connection.executemany(
                "insert into toy by name select ? as cell_id, ? as problem_id, "
                "? as data_parallel, ? as tensor_parallel, ? as step_seconds",
                [[cell.cell_id, cell.problem_id, *row] for row in cell.rows],
            )
    derived.refresh(connection)


def seen(
    connection: duckdb.DuckDBPyConnection,
    columns: str = "cell_id, data_parallel, tensor_parallel, step_seconds",
) -> list[Any]:
    return sorted(connection.execute(f"select {columns} from current_toy").fetchall())


def test_a_row_has_columns_of_its_cell_and_problem(connection: duckdb.DuckDBPyConnection) -> None:
    store(connection, Stored(5, 7, ((4, 2, 0.5),), mends="T1", recompute="full"))

    assert seen(
        connection, "problem_id, num_gpus, estimator, estimator_version, variant, mends"
    ) == [(7, 8, "toy", 1, "T1", "T1")]
    assert seen(connection, "kept, activation_recompute, data_parallel, step_seconds") == [
        ("{}", "full", 4, 0.5)
    ]
    names = connection.execute("describe current_toy").fetchall()
    assert [name for name, *_ in names][-6:] == list(TOY.relations[0].stored)


def test_only_the_newest_version_of_a_question_is_shown(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((8, 1, 1.0), (4, 2, 2.0)), version=1),
        Stored(2, 1, ((8, 1, 1.5),), version=2),
        Stored(3, 1, ((8, 1, 3.0),), version=1, recompute="full"),
        Stored(4, 1, ((8, 1, 4.0),), version=1, mends="T1"),
        Stored(5, 2, ((8, 1, 5.0),), version=1),
    )

    assert seen(connection) == [(2, 8, 1, 1.5), (3, 8, 1, 3.0), (4, 8, 1, 4.0), (5, 8, 1, 5.0)]


def test_a_layout_in_several_cells_is_shown_once_from_the_whole_space_if_it_has_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((4, 2, 0.5), (1, 8, 0.7)), kept='{"rows": "abc"}'),
        Stored(2, 1, ((4, 2, 0.5),), kept='{"tensor_parallel": 2}'),
        Stored(3, 1, ((8, 1, 0.4), (4, 2, 0.5))),
        Stored(4, 1, ((1, 8, 0.7), (2, 4, 0.6)), kept='{"rows": "def"}'),
    )

    assert seen(connection) == [(1, 1, 8, 0.7), (3, 4, 2, 0.5), (3, 8, 1, 0.4), (4, 2, 4, 0.6)]


def test_cells_whose_choices_are_null_are_siblings_too(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((8, 1, 1.0),), recompute=None),
        Stored(2, 1, ((8, 1, 1.0), (4, 2, 2.0)), recompute=None, kept='{"rows": "abc"}'),
    )

    assert seen(connection) == [(1, 8, 1, 1.0), (2, 4, 2, 2.0)]


def test_layouts_are_the_same_where_a_key_is_null_in_both(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((8, None, 1.0),)),
        Stored(2, 1, ((8, None, 1.0), (None, None, 2.0)), kept='{"rows": "abc"}'),
    )

    assert seen(connection, "cell_id, step_seconds") == [(1, 1.0), (2, 2.0)]


def test_a_version_that_mends_more_replaces_the_corrected_of_the_one_before(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((8, 1, 1.0),), version=1, mends="T1", variant="corrected"),
        Stored(2, 1, ((8, 1, 2.0),), version=2, mends="T1,T2", variant="corrected"),
    )

    assert seen(connection) == [(2, 8, 1, 2.0)]


def test_a_part_of_a_newer_version_takes_the_place_of_its_own_layouts_only(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(
        connection,
        Stored(1, 1, ((8, 1, 1.0), (4, 2, 2.0)), version=1),
        Stored(2, 1, ((4, 2, 2.5),), version=2, kept='{"rows": "abc"}'),
    )

    assert seen(connection) == [(1, 8, 1, 1.0), (2, 4, 2, 2.5)]


def test_a_row_whose_mark_is_missing_is_shown(connection: duckdb.DuckDBPyConnection) -> None:
    store(connection, Stored(1, 1, ((8, 1, 1.0),)))
    connection.execute("update toy set is_repeated = null")

    assert seen(connection) == [(1, 8, 1, 1.0)]


def test_rows_without_a_cell_are_not_shown(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("insert into toy by name select 9 as cell_id, 1.0 as step_seconds")

    assert seen(connection) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_view_agrees_with_its_definition_on_random_cells(
    connection: duckdb.DuckDBPyConnection, seed: int
) -> None:
    random = np.random.default_rng(seed)
    cells = []
    for cell_id in random.permutation(40).tolist():
        size = int(random.integers(0, 6))
        layouts = random.choice(12, size=size, replace=False).tolist()
        cells.append(
            Stored(
                cell_id,
                problem_id=int(random.integers(3)),
                rows=tuple((a // 3 + 1, a % 3 + 1, cell_id + a / 100) for a in layouts),
                version=int(random.integers(1, 3)),
                mends=["", "T1"][random.integers(2)],
                kept=["{}", '{"a": 1}', '{"b": 2}'][random.integers(3)],
            )
        )
    store(connection, *cells)

    assert seen(connection) == first_of_siblings(cells)
    assert len(seen(connection)) < sum(len(cell.rows) for cell in cells)
    # rows that a dropped cell had first are shown from the next sibling
    dropped, kept = cells[:10], cells[10:]
    delete_cells(connection, [cell.cell_id for cell in dropped])
    derived.refresh(connection)
    assert seen(connection) == first_of_siblings(kept)
    store(connection, *dropped)
    assert seen(connection) == first_of_siblings(cells)


def first_of_siblings(cells: list[Stored]) -> list[tuple[Any, ...]]:
    """Return the rows that views show, found from the definition."""
    questions = defaultdict(list)
    for cell in cells:
        questions[cell.problem_id, cell.mends, cell.recompute].append(cell)
    expected: list[tuple[Any, ...]] = []
    for asked in questions.values():
        newest = max((cell.version for cell in asked if cell.kept == "{}"), default=0)
        layouts: dict[tuple[int | None, ...], tuple[Any, ...]] = {}
        for cell in sorted(asked, key=lambda c: (-c.version, c.kept != "{}", c.cell_id)):
            if cell.version >= newest:
                for row in cell.rows:
                    layouts.setdefault(row[:2], (cell.cell_id, *row))
        expected += layouts.values()

    return sorted(expected)


def test_no_siblings_cost_no_second_scan_and_filters_reach_the_tables(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """EXPLAIN ANALYZE counts the rows that scans of the fact table handed on."""
    num_cells, size = 1000, 500
    connection.execute(
        "insert into problem by name select range as problem_id, "
        f"(2 ** (range % 10))::int as num_gpus from range({num_cells})"
    )
    connection.execute(
        "insert into cell by name select range as cell_id, range as problem_id, "
        "'toy' as estimator, 1 as estimator_version, 'toy' as relation, '' as mends, "
        f"'published' as variant, '{{}}' as kept, {size} as num_rows from range({num_cells})"
    )
    connection.execute(
        f"insert into toy by name select range // {size} as cell_id, range % {size} as "
        f"data_parallel, random() as step_seconds from range({num_cells * size})"
    )
    mark(connection)

    scanned = fact_scans(connection, "select min(step_seconds) from current_toy")
    assert num_cells * size <= sum(rows for rows, _ in scanned) < 1.1 * num_cells * size
    query = "select min(step_seconds) from current_toy where num_gpus = 64 and estimator = 'toy'"
    assert {columns for _, columns in fact_scans(connection, query) if columns} >= {
        ("cell_id", "step_seconds")
    }
    nothing = "select min(step_seconds) from current_toy where estimator = 'other'"
    assert sum(rows for rows, _ in fact_scans(connection, nothing)) < 0.1 * num_cells * size


def fact_scans(
    connection: duckdb.DuckDBPyConnection, query: str
) -> list[tuple[int, tuple[str, ...]]]:
    """Rows scanned and columns read, for each scan of the toy table in the plan of `query`."""
    [(_, plan)] = connection.execute(f"explain (analyze, format json) {query}").fetchall()
    found = []

    def visit(operator: dict[str, Any]) -> None:
        info = operator.get("extra_info", {})
        if info.get("Table", "").endswith(".toy"):
            columns = info.get("Projections", ())
            columns = (columns,) if isinstance(columns, str) else tuple(columns)
            found.append((operator.get("rows_scanned", 0), columns))
        for child in operator.get("children", ()):
            visit(child)

    for root in json.loads(plan)["operator"]:
        visit(root)
    return found
