"""Views that look for few configurations do not read the rows of all the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sql.test_sql_cases import CASES, complete, fill, tables_of
from warehouse.database.connection import open_for_read, open_for_write

pytestmark = pytest.mark.long

NUM_CELLS, CELL_ROWS = 300, 2000
MARTS = {
    "megatron_layout_rank": ("published_comparison", "megatron_layout_rank", "published_accuracy"),
    "measurement_comparison": ("measurement_comparison",),
    "estimator_disagreement": ("estimator_disagreement",),
    "training_time_at_published_rate": ("training_time_at_published_rate",),
}


@pytest.fixture(scope="module", params=MARTS)
def case(request: pytest.FixtureRequest) -> Any:
    """A case of which the rows are filled in."""
    return request.param


@pytest.fixture(scope="module")
def connection(
    case: str, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The rows of a case, and 600,000 of problems that nobody published, measured or paired."""
    database = tmp_path_factory.mktemp("plans") / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse, database)
    with open_for_write(database) as opened:
        for table, path in tables_of(CASES / case).items():
            fill(opened, table, path)
        complete(opened)
        opened.execute(f"""
            insert into problem by name
            select
                1000 + range as problem_id, 'wide' as model, 2 as num_layers,
                80 + range as hidden_size, 32 as ffn_hidden_size, 4 as num_heads, 6 as seq_len,
                'small' as accelerator, 8 as nvlink_size, 1e6 as matrix_flops_per_second,
                100 as hbm_bytes, 4 as num_gpus, 8 as global_batch_size
            from range({NUM_CELLS});
            insert into cell by name
            select
                problem_id as cell_id, problem_id, 'roofline' as estimator,
                1 as estimator_version, 'roofline' as relation, '' as mends,
                'published' as variant, '{{}}' as kept, {CELL_ROWS} as num_rows,
                timestamp '2026-01-01' as evaluated_at, 'tensor_1d' as strategy,
                'full' as activation_recompute, 1 as virtual_pipeline
            from problem where problem_id >= 1000;
            insert into roofline by name
            select
                cell_id, 1 as data_parallel, 2 as tensor_parallel, 1 as tensor_parallel_2,
                1 as context_parallel, 1 as pipeline_parallel, range + 1 as microbatch_size,
                1.0 + range as step_seconds, 1 as weights_bytes, 1 as optimizer_bytes,
                1 as activations_bytes
            from cell, range({CELL_ROWS}) where cell_id >= 1000 order by cell_id, range;
        """)
        complete(opened, ranks=False)
    # as any question finds it: the statistics of a table that was just filled mislead DuckDB
    with open_for_read(database) as opened:
        yield opened


def nodes_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    """Return the operators of a plan that was run."""
    plan = connection.execute(f"explain (analyze, format json) {query}").fetchall()[0][1]
    nodes: list[dict[str, Any]] = json.loads(plan)["operator"]
    for node in nodes:  # grows while it is walked
        nodes.extend(node.get("children", []))
    return nodes


def num_rows(nodes: list[dict[str, Any]]) -> int:
    """Return how many rows the query gave."""
    node = nodes[0]
    while node["type"] in ("RESULT_COLLECTOR", "EXPLAIN_ANALYZE", "CTE"):
        node = node["children"][-1]  # the first child of a CTE is its definition
    return int(node["intermediate_rows"])


def most_rows(nodes: list[dict[str, Any]]) -> int:
    """Return how many rows an operator handed on at most, counted while the query ran."""
    return max(int(node["intermediate_rows"]) for node in nodes)


ANY = pytest.mark.parametrize("case", ["measurement_comparison"], indirect=True)
"""For tests of the other rows: those of the case do not matter."""


@ANY
def test_a_question_about_everything_reads_everything(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    nodes = nodes_of(connection, "select sum(mfu) from configuration")
    assert most_rows(nodes) >= NUM_CELLS * CELL_ROWS


def test_only_the_cells_in_question_are_read(
    connection: duckdb.DuckDBPyConnection, case: str
) -> None:
    for mart in MARTS[case]:
        nodes = nodes_of(connection, f"from {mart}")
        assert num_rows(nodes) > 0, f"{mart} has no row"
        assert most_rows(nodes) < NUM_CELLS * CELL_ROWS / 10, mart


@ANY
def test_a_join_with_few_cells_reaches_the_scan(connection: duckdb.DuckDBPyConnection) -> None:
    few = "select cell_id from current_cell where problem_id in (1007, 1008, 1009)"
    query = f"select sum(step_seconds) from configuration_source where cell_id in ({few})"
    assert CELL_ROWS <= most_rows(nodes_of(connection, query)) < NUM_CELLS * CELL_ROWS / 10
