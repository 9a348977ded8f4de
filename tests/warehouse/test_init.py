"""`warehouse init` makes again what somebody changed by hand, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import call
from warehouse.database.connection import open_for_read
from warehouse.database.problem_facts import find_problems
from warehouse.database.stamp import reference_names
from warehouse.database.views import checks

DERIVED = ("leading_row", "stored_problem", "accelerator_price", "cell")

BY_HAND = """
drop view configuration_rank;
drop view current_cell;
create or replace view best_of_cell as select 1 as one;
comment on view near_optimal is 'other';
comment on column near_optimal.model is null;
drop macro table best;
create or replace macro layout_in_words(layout) as 'none';
drop table erratum;
update accelerator set fp4_flops_per_second = 1;
delete from model;
drop table calibration_row;
alter table calibration drop column is_at_bound;
drop table accelerator_price;
"""


@pytest.fixture
def copied(tiny_swept: Path, database: Path) -> Path:
    """A copy of a database with a study, to be changed."""
    return Path(shutil.copyfile(tiny_swept, database))


def rows_of(database: Path) -> dict[str, list[Any]]:
    """Return the rows that follow from others."""
    with open_for_read(database) as connection:
        return {
            name: connection.execute(f"from {name} order by all").fetchall() for name in DERIVED
        }


def failed_checks(database: Path) -> list[str]:
    with open_for_read(database) as connection:
        find_problems(connection)
        return [each.name for each in checks() if connection.execute(each.sql).fetchall()]


def description(database: Path) -> list[Any]:
    """Return the names, columns, comments and texts of all things, and rows of references."""
    with open_for_read(database) as connection:
        described = connection.execute(
            "select 'view', view_name, '', comment from duckdb_views() where not internal"
            " union all select 'column', table_name || '.' || column_name, data_type, comment"
            " from duckdb_columns() where not internal"
            " union all select function_type, function_name, macro_definition, comment"
            " from duckdb_functions() where not internal order by all"
        ).fetchall()
        rows = [
            connection.execute(f"from {name} order by all").fetchall()
            for name in sorted(reference_names(connection))
        ]
    return described + rows


def changed(database: Path, statements: str) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(statements)


def init(database: Path) -> None:
    code, out, err = call("init", "--db", database)
    assert (code, out) == (0, ""), err
    assert " is up to date: " in err
    assert err.endswith("\nstored values were not checked: `warehouse validate` does\n")


@pytest.mark.long
def test_what_was_changed_by_hand_becomes_what_it_was(copied: Path) -> None:
    changed(copied, "create view mine as from model; create table own as select 1 as one")
    wanted, described = rows_of(copied), description(copied)
    changed(copied, BY_HAND)
    code, _, err = call("rank", "--db", copied)
    assert code == 5
    assert "`warehouse init`" in err
    init(copied)
    assert rows_of(copied) == wanted
    assert description(copied) == described
    assert failed_checks(copied) == []


@pytest.mark.long
def test_anew_makes_rows_again_that_are_wrong_missing_or_of_former_cells(copied: Path) -> None:
    wanted = rows_of(copied)
    changed(
        copied,
        "delete from leading_row where rowid > 9; update cell set sibling = 2;"
        "delete from stored_problem where rowid < 3;"
        "update stored_problem set assumptions = 'other'; update roofline set is_repeated = true",
    )
    code, _, err = call("validate", "--db", copied)
    assert code == 4
    assert "stored_problem_is_found" in err
    assert f"; `warehouse init --anew --db {copied}` makes" in err
    assert call("init", "--anew", "--db", copied)[0] == 0
    assert rows_of(copied) == wanted
    assert failed_checks(copied) == []


def test_an_object_with_the_name_of_another_is_named_with_a_way_out(
    database: Path, empty_warehouse: Path
) -> None:
    shutil.copyfile(empty_warehouse, database)
    for table in ("cell", "study", "roofline", "accelerator_alias"):
        changed(database, f"alter table {table} rename to mine; create view {table} as from mine")
        anew = ("--anew",) if table == "roofline" else ()
        code, _, err = call("init", *anew, "--db", database)
        assert code == 5
        assert f"{database}: a view has the name of a table of this package: {table}\n" in err
        assert f"hint: rename or drop the view with DuckDB (`drop view {table}`), " in err
        # the way out keeps the rows
        changed(database, f"drop view {table}; alter table mine rename to {table}")
    changed(
        database,
        "drop view problem_price; create table problem_price as select 1 as one;"
        # as if an update had added this view
        "drop view memory_error; create table memory_error as select 1 as one;"
        "update warehouse_meta set value = replace(value, ' memory_error ', ' ')"
        " where key = 'view_names'",
    )
    for way_out in ("drop table problem_price", "alter table memory_error rename to mine"):
        code, _, err = call("init", "--db", database)
        assert code == 5
        assert f"{database}: another object has the name of a table or view" in err
        assert way_out.split()[2] in err
        assert "hint: rename or drop that object with DuckDB, then run `warehouse init`" in err
        changed(database, way_out)
    init(database)
    with open_for_read(database) as connection:
        assert connection.execute("from mine").fetchall() == [(1,)]
        assert connection.execute("from memory_error").fetchall() == []


@pytest.fixture(scope="module")
def updated(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with macros of the user and a column at another place, brought up to date."""
    path = tmp_path_factory.mktemp("updated") / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse, path)
    changed(
        path,
        "create macro best(x) as x + 1; create macro configuration_rank(x) as x;"
        "create macro in_days(x) as table select x as day;"
        "alter table problem drop column num_layers; alter table problem add column num_layers int;"
        "drop view intercluster_time; drop macro table best",
    )
    init(path)
    return path


def test_a_macro_of_the_user_may_share_a_name_with_a_table_macro_or_a_view(
    updated: Path,
) -> None:
    with open_for_read(updated) as connection:
        # a table macro that is gone comes back next to it
        assert connection.execute("select best(1) from best('gpt3_1T', null)").fetchall() == []
        assert connection.execute("select in_days(86400), day from in_days(2)").fetchall() == [
            (1, 2)
        ]


def test_columns_that_an_update_adds_may_come_last(updated: Path) -> None:
    """A view with a struct of all columns of a table then has them in another order."""
    with open_for_read(updated) as connection:
        [(last,)] = connection.execute(
            "select column_name from duckdb_columns() where table_name = 'problem' "
            "order by column_index desc limit 1"
        ).fetchall()
    assert last == "num_layers"
    assert call("sql", "select count(*) from intercluster_time", "--db", updated)[0] == 0


def test_init_of_a_new_database_says_nothing_of_values(database: Path) -> None:
    assert "values were not checked" not in call("init", "--db", database)[2]
