"""Tables from dictionary and registry; migration; all or nothing; nothing when up to date."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Relation
from tests.toy_estimator import CONFIGURATIONS, PART_ROWS, TOY
from tests.warehouse.schema_cases import columns_of
from warehouse.database.connection import open_for_write
from warehouse.database.in_force import mark
from warehouse.database.tables import ROW_IDS, fact_ddl


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_the_tables_are_the_union_of_what_estimators_declare(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    estimators = registry.all_estimators()

    problem = list(columns_of(warehouse_connection, "problem"))[1:]
    assert problem == list(dict.fromkeys(n for e in estimators for n in e.problem_columns))
    choices = dict.fromkeys(n for e in estimators for n in e.choice_columns)
    figures = dict.fromkeys(n for e in estimators for n in e.step.cell_figures)
    assert list(columns_of(warehouse_connection, "cell"))[18:] == [*choices, *figures]
    assert "toy_overlap_fraction" in columns_of(warehouse_connection, "problem")
    for estimator in estimators:
        for relation in estimator.relations:
            assert columns_of(warehouse_connection, relation.table) == {
                **{n: relation.column(n).duckdb_type for n in (*ROW_IDS, *relation.stored)},
                "is_repeated": "BOOLEAN",
            }


def test_a_fact_table_has_no_key_and_no_constraint(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(fact_ddl(Relation("fact", "one row", ("num_gpus",), ("step_seconds",))))

    assert columns_of(connection, "fact") == {
        "cell_id": "BIGINT",
        "problem_id": "BIGINT",
        "num_gpus": "INTEGER",
        "step_seconds": "DOUBLE",
        "is_repeated": "BOOLEAN",
    }
    assert connection.execute("select count(*) from duckdb_constraints()").fetchone() == (0,)


@pytest.mark.long
@pytest.mark.parametrize(
    "relation", [r for e in registry.all_estimators() for r in e.relations], ids=lambda r: r.name
)
def test_a_column_has_one_compression_and_is_stored(relation: Relation) -> None:
    assert set(relation.compression) <= set(relation.stored)
    reals = {name for name, kind in relation.compression.items() if kind in ("alp", "alprd")}
    assert {relation.column(name).duckdb_type for name in reals} <= {"DOUBLE"}


def test_rows_are_stored_with_the_compression_that_their_relation_states(tmp_path: Path) -> None:
    names = ("step_seconds", "data_comm_seconds", "weights_bytes", "compute_seconds")
    stated = dict(zip(names, ("uncompressed", "alprd", "alp", "rle"), strict=True))
    relation = Relation(
        *("fact", "one row", ("num_gpus",), names),
        compression=stated,
    )
    with duckdb.connect(tmp_path / "facts.duckdb") as connection:
        connection.execute(fact_ddl(relation))
        connection.execute(
            "insert into fact "
            "select 1, 2, i, sqrt(i), sin(i), i * 512, i // 9, false from range(9000) as t(i)"
        )
        connection.execute("checkpoint")
        found = connection.execute(
            "select column_name, lower(compression) from pragma_storage_info('fact') "
            "where segment_type = 'DOUBLE'"
        ).fetchall()
    assert dict(found) == stated


def test_records_are_keyed_and_carry_the_time(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    insert = (
        "insert into cell by name select 1 as cell_id, 2 as problem_id, 'e' as estimator, "
        "1 as estimator_version, 'r' as relation, '' as mends, 'published' as variant, "
        "'{}' as kept, 3 as num_rows"
    )
    warehouse_connection.execute(insert)

    age = "select abs(epoch(evaluated_at) - epoch(now())) < 60 from cell"
    assert warehouse_connection.execute(age).fetchone() == (True,)
    with pytest.raises(duckdb.ConstraintException):
        warehouse_connection.execute(insert)
    with pytest.raises(duckdb.ConstraintException):
        warehouse_connection.execute("insert into problem (problem_id) values (1), (1)")


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_every_table_view_and_dictionary_column_carries_its_comment(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    named = warehouse_connection.execute(
        "select table_name, comment from duckdb_tables() union all "
        "select view_name, comment from duckdb_views() where not internal"
    ).fetchall()
    comments = warehouse_connection.execute(
        "select table_name, column_name, comment from duckdb_columns() where not internal"
    ).fetchall()

    assert [name for name, comment in named if not comment] == []
    assert dict(named)["toy_part"] == (f"internal: {TOY.title}. One row per configuration and part")
    checked = [
        (table, name)
        for table, name, comment in comments
        if name in COLUMNS and comment != COLUMNS[name].comment
    ]
    assert checked == []
    assert len(comments) > 200


@pytest.mark.long
def test_a_new_estimator_takes_a_module_an_entry_its_columns_and_a_staging_view(
    database: Path, warehouse_connection: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest
) -> None:
    assert "toy" not in columns_of(warehouse_connection, "configuration_source")
    warehouse_connection.close()

    request.getfixturevalue("toy")
    with open_for_write(database) as opened:
        assert list(columns_of(opened, "toy")) == [*ROW_IDS, *CONFIGURATIONS.stored, "is_repeated"]
        assert list(columns_of(opened, "toy_part")) == [*ROW_IDS, *PART_ROWS.stored, "is_repeated"]
        assert {"toy_part", "toy_part_seconds", "num_gpus"} <= set(
            columns_of(opened, "current_toy_part")
        )
        opened.execute("insert into problem by name select 1 as problem_id, 4 as num_gpus")
        opened.execute(
            "insert into cell by name select 2 as cell_id, 1 as problem_id, 'toy' as estimator, "
            "1 as estimator_version, 'toy' as relation, '' as mends, 'published' as variant, "
            "'{}' as kept, 1 as num_rows"
        )
        opened.execute(
            "insert into toy by name select 2 as cell_id, 1 as problem_id, 4 as data_parallel, "
            "1 as tensor_parallel, 0.5 as step_seconds, 10 as weights_bytes"
        )
        mark(opened)
        for view in ("configuration_source", "configuration"):
            seen = f"select estimator, num_gpus, data_parallel, step_seconds from {view}"
            assert opened.execute(seen).fetchall() == [("toy", 4, 4, 0.5)]
