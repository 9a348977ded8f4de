"""The ranks agree with a ranking of all layouts, and are found without ranking all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.sql.test_plans import nodes_of
from tests.sql.test_sql_cases import complete
from warehouse.database.connection import open_for_read, open_for_write

SHELL = Path(sys.executable).parent / "duckdb"
COLUMNS = (
    "problem_id, strategy, microbatch_size, step_seconds, rank_by_time, "
    "num_microbatches, memory_bytes, mfu, compute_fraction"
)
ALL = """(
    select *, row_number() over (
        partition by problem_id, estimator, estimator_version, variant
        order by row(layout_order(configuration), strategy, cell_id)
    ) as rank_by_time
    from configuration
    where fits_memory is distinct from false and step_seconds is not null
)"""
"""Every layout that fits and has a time, with its rank."""
PROBLEMS = """
insert into problem by name
select
    range as problem_id, 'model ' || range as model, 2 as num_layers, 8 as hidden_size,
    32 as ffn_hidden_size, 4 as num_heads, 6 as seq_len, 'system ' || range as accelerator,
    4 << range as nvlink_size, 1e6 as matrix_flops_per_second, 100 as hbm_bytes,
    1 << range as num_gpus, 1024 << range as global_batch_size
from range(4);
insert into cell by name
select
    2 * problem_id + half as cell_id, problem_id, 'estimator ' || problem_id as estimator,
    problem_id + 1 as estimator_version, 'roofline' as relation, '' as mends,
    'variant ' || problem_id as variant, '{}' as kept, 500 as num_rows,
    timestamp '2026-01-01' as evaluated_at,
    case half when 0 then 'tensor_1d' else 'context_2d' end as strategy
from problem, (select unnest([0, 1]) as half);
insert into roofline by name
select
    cell_id, 1 as data_parallel, range + 1 as microbatch_size,
    1 + (range * 7919 + cell_id * 104729) % 65537 / 100 as step_seconds,
    step_seconds / 2 as compute_seconds, 1 as weights_bytes, 1 as optimizer_bytes,
    range / 4 as activations_bytes
from cell, range(500);
"""
TIED = """
update problem set model = null, accelerator = null, nvlink_size = null where problem_id = 3;
update roofline
set step_seconds = 1 + (microbatch_size * 7919 + cell_id) % 11, activations_bytes = 3;
insert into cell by name
select
    cell.* replace (
        100 + part as cell_id, ['{"microbatch_size": 5}', '{"rows": "file"}'][part + 1] as kept
    )
from cell, (select unnest([0, 1]) as part) where cell_id = 0;
insert into roofline by name
select * exclude (cell_id, microbatch_size), unnest([100, 101, 101]) as cell_id,
    unnest([5, 5, 900]) as microbatch_size
from roofline where cell_id = 0 and microbatch_size = 5;
"""
"""Few times, each of many layouts; siblings that share layouts; a problem without names."""
UNTIMED = """
insert into roofline by name
select * exclude (step_seconds, microbatch_size), 1000 as microbatch_size
from roofline where microbatch_size = 7;
"""
"""A layout without a time in each cell, which has no rank."""
TOP = f"select {COLUMNS} from configuration_rank where rank_by_time <= 2 order by all"


@pytest.fixture(scope="module")
def ranked_file(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of 4 problems that differ in all their attributes, with 1000 layouts each."""
    path = tmp_path_factory.mktemp("ranked") / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse, path)
    with open_for_write(path) as connection:
        connection.execute(PROBLEMS)
        complete(connection)
    return path


@pytest.fixture(scope="module")
def ranked(ranked_file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_for_read(ranked_file) as connection:
        yield connection


@pytest.fixture(scope="module")
def tied(
    empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("tied") / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse, path)
    with open_for_write(path) as connection:
        connection.execute(PROBLEMS + TIED)
        complete(connection)
        connection.execute(UNTIMED)
    with open_for_read(path) as connection:
        yield connection


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "rank", "groups"),
    [
        ("configuration_rank", "rank_by_time", "problem_id, estimator_version"),
        ("strategy_rank", "rank_in_strategy", "problem_id, estimator_version, strategy"),
    ],
)
def test_the_views_have_the_first_twenty(
    tied: duckdb.DuckDBPyConnection, view: str, rank: str, groups: str
) -> None:
    columns = f"{groups}, cell_id, step_seconds, memory_bytes, microbatch_size"
    place = f"row_number() over (partition by {groups} order by rank_by_time)"
    expected = f"select {columns}, {place} as place from {ALL} qualify place <= 20 order by all"
    found = tied.execute(f"select {columns}, {rank} from {view} order by all").fetchall()
    assert found == tied.execute(expected).fetchall() != []


@pytest.mark.long
@pytest.mark.parametrize("last", [20, 21])
def test_the_ranks_up_to_a_number_are_those_of_all(
    ranked: duckdb.DuckDBPyConnection, last: int
) -> None:
    whole = f"select {COLUMNS} from {ALL} where rank_by_time <= {last} order by all"
    expected = ranked.execute(whole).fetchall()
    assert len(expected) == 4 * last
    columns = f"{COLUMNS.removesuffix(', compute_fraction')}, compute_seconds / step_seconds"
    macro = f"select {columns} from ranked_layouts({last}) order by all"
    assert ranked.execute(macro).fetchall() == expected


@pytest.mark.long
@pytest.mark.parametrize("last", [21, 1001])
def test_the_ranks_up_to_a_number_have_the_ties_of_all(
    tied: duckdb.DuckDBPyConnection, last: int
) -> None:
    """Layouts of one time are ranked alike, those without a time not at all, repeated ones once."""
    columns = "cell_id, model, mfu, bubble_seconds, " + COLUMNS.removesuffix(", compute_fraction")
    whole = f"select {columns} from {ALL} where rank_by_time <= {last}"
    for where, expected_rows in (
        ("true", 4 * min(last, 1000) + (last > 1000)),  # the file has one layout more
        ("model = 'model 0'", min(last, 1001)),
        ("problem_id = 3", min(last, 1000)),
        ("variant = 'variant 2' and num_gpus = 4", min(last, 1000)),
    ):
        expected = tied.execute(f"{whole} and {where} order by all").fetchall()
        assert len(expected) == expected_rows
        macro = f"select {columns} from ranked_layouts({last}) where {where} order by all"
        assert tied.execute(macro).fetchall() == expected
        if where.startswith("problem_id"):
            of = f"select {columns} from ranked_layouts({last}, of_problem := 3) order by all"
            assert tied.execute(of).fetchall() == expected


@pytest.mark.long
def test_of_equal_layouts_every_view_names_the_same(tied: duckdb.DuckDBPyConnection) -> None:
    """In time and memory many are equal, in cells of both strategies."""
    key = "select problem_id, estimator, variant, cell_id"
    first = f"{key}, layout_in_words(configuration_rank) from configuration_rank"
    ranked_first = tied.execute(f"{first} where rank_by_time = 1 order by all").fetchall()
    assert len(ranked_first) == 4
    assert len({row[3] % 2 for row in ranked_first}) == 2  # not all of one strategy
    best = f"{key}, best_layout from best_of_problem order by all"
    assert tied.execute(best).fetchall() == ranked_first
    for front in ("problem_front", "configuration_pareto"):
        query = f"{key}, layout_in_words({front}) from {front} order by all"
        assert tied.execute(query).fetchall() == ranked_first


@pytest.mark.long
def test_of_one_problem_only_its_layouts_are_read(ranked: duckdb.DuckDBPyConnection) -> None:
    def rows_with_their_cells(asked: str) -> int:
        joins = [node for node in nodes_of(ranked, asked) if "JOIN" in node["type"]]
        return sum(int(node["intermediate_rows"]) for node in joins)

    query = "from ranked_layouts(30, of_problem := 2)"
    assert len(ranked.execute(query).fetchall()) == 30
    assert rows_with_their_cells(query) < rows_with_their_cells("from ranked_layouts(30)") / 2


@pytest.mark.long
def test_ranks_between_two_numbers_sort_few_rows(ranked: duckdb.DuckDBPyConnection) -> None:
    query = "from ranked_layouts(30) where rank_by_time > 20"
    assert len(ranked.execute(query).fetchall()) == 4 * 10
    assert rows_in_windows(ranked, query) < 4 * 40


@pytest.mark.long
def test_the_first_twenty_are_read_where_they_are_stored(
    ranked: duckdb.DuckDBPyConnection,
) -> None:
    facts = {"roofline", "leading_row"}
    for query in ("from ranked_layouts(20)", "from configuration_rank", "from strategy_rank"):
        assert tables_read(ranked, query) & facts == {"leading_row"}
    assert tables_read(ranked, "from ranked_layouts(21)") & facts == {"roofline"}


@pytest.mark.parametrize("last", ["0", "-1", "2e6", "'nan'::double"])
def test_a_last_rank_out_of_its_limits_is_reported(
    ranked: duckdb.DuckDBPyConnection, last: str
) -> None:
    with pytest.raises(duckdb.Error, match=r"`last_rank`.*: must be from 1 to 1000000"):
        ranked.execute(f"from ranked_layouts({last})").fetchall()


@pytest.mark.long
def test_the_shell_of_duckdb_1_ranks_the_same(
    ranked: duckdb.DuckDBPyConnection, ranked_file: Path
) -> None:
    expected = [list(row) for row in ranked.execute(TOP).fetchall()]
    command = [str(SHELL), "-readonly", "-json", str(ranked_file), TOP]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [list(row.values()) for row in json.loads(done.stdout)]
    assert found == expected


def tables_read(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Return the names of the tables that the scans of a query read."""
    tables = (node["extra_info"].get("Table", "") for node in nodes_of(connection, query))
    return {table.rpartition(".")[2] for table in tables if table}


def rows_in_windows(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    """Return the most rows that a window of the query has to sort, counted while it runs."""
    windows = [node for node in nodes_of(connection, query) if "WINDOW" in node["type"]]
    return max((int(node["intermediate_rows"]) for node in windows), default=0)
