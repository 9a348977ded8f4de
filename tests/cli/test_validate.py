"""`warehouse validate`: the checks of the stored rows and the comparison with measurements."""

import json

import duckdb


def test_a_sound_database_passes_every_check_and_shows_the_comparison(program, quickstart):
    done = program("validate", "--db", quickstart.database)
    assert done.returncode == 0
    checks = done.stderr.splitlines()
    assert len(checks) >= 5
    assert all(": ok (" in line for line in checks)
    assert "mean |error| %" in done.stdout
    assert sum("530B" in line for line in done.stdout.splitlines()) == 2


def test_a_check_that_finds_rows_exits_4_and_shows_them(warehouse, swept):
    with duckdb.connect(str(swept)) as connection:
        connection.execute(
            "update roofline set step_seconds = -1 where rowid in"
            " (select rowid from roofline order by rowid limit 30)"
        )
    code, out, err = warehouse("validate", "--db", swept)
    assert code == 4
    assert "times_are_positive: 30 rows" in err
    assert "... and 10 more rows" in err
    assert "error: " in err
    assert "times_are_positive" in err.partition("error: ")[2]
    assert "mean |error| %" in out


def test_json_names_failed_checks_and_has_base_units(warehouse, swept):
    with duckdb.connect(str(swept)) as connection:
        connection.execute("delete from problem where model = 'megatron_1T'")
    code, out, _ = warehouse("validate", "--json", "--db", swept)
    found = json.loads(out)
    assert code == 4
    assert "cells_have_problems" in found["failed_checks"]
    assert {row["variant"] for row in found["estimator_accuracy"]} == {"published", "corrected"}
    comparison = found["megatron_comparison"]
    assert len(comparison) == 18
    assert all(1e14 < row["predicted_flops_per_second_per_gpu"] < 1e15 for row in comparison)
