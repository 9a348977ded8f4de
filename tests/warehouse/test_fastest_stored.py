"""`--best` names the layout that `rank` puts first, also among equals."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb

from estimators import registry
from estimators.columns import LAYOUT_COLUMNS
from tests.shared import Quickstart, call
from warehouse.ask.fastest_stored import best_configuration, differing_columns
from warehouse.database.connection import open_for_read


def test_layouts_of_equal_time_come_in_the_order_of_ranks(
    quickstart: Quickstart, tmp_path: Path
) -> None:
    name = "training_step"
    database = tmp_path / "equal.duckdb"
    shutil.copy(quickstart.database, database)
    with duckdb.connect(str(database)) as writing:
        writing.execute(f"update {name} set step_seconds = 1")
    with open_for_read(database) as connection:
        problems = connection.execute(
            "select problem_id from current_cell where estimator = ? and num_rows > 10 "
            "group by problem_id having count(*) = 1 order by problem_id limit 3",
            [name],
        ).fetchall()
        assert problems
        for (problem_id,) in problems:
            equal = connection.execute(
                "select configuration from configuration where problem_id = ? and estimator = ? "
                "and fits_memory order by layout_order(configuration) limit 2",
                [problem_id, name],
            ).fetchall()
            (first,), (second,) = equal
            assert first["step_seconds"] == second["step_seconds"] == 1
            best = best_configuration(connection, registry.get(name), {}, problem_id)
            shared = [column for column in LAYOUT_COLUMNS if column in best]
            assert len(shared) > 4
            layout = {column: first[column] for column in shared}
            assert {column: best[column] for column in shared} == {
                column: str(value).lower() if isinstance(value, bool) else str(value)
                for column, value in layout.items()
            }


def test_the_best_is_on_the_product_as_it_is_sold(empty_warehouse: Path, tmp_path: Path) -> None:
    database = Path(shutil.copyfile(empty_warehouse, tmp_path / "sold.duckdb"))
    study = tmp_path / "rates.toml"
    study.write_text(
        'name = "rates"\nestimator = "training_step"\n[space]\nmodel = "llama3_8B"\n'
        'accelerator = "H100 SXM 80GB"\nnum_gpus = 16\nglobal_batch_size = 64\n'
        'activation_recompute = "none"\ntensor_parallel = 2\npipeline_parallel = 1\n'
        "microbatch_size = 1\nzero_stage = 1\n"
        "[system]\nmatrix_flops_per_second = [989.5e12, 3000e12]\n",
        encoding="utf-8",
    )
    code, _, said = call("sweep", study, "--db", database)
    assert code == 0, said
    rates = []
    with open_for_read(database) as connection:
        for given in ({}, {"matrix_flops_per_second": "3000e12"}):
            best = best_configuration(connection, registry.get("training_step"), given)
            rates.append(float(best["matrix_flops_per_second"]))
            differing = differing_columns(
                connection, registry.get("training_step"), given, ("matrix_flops_per_second",)
            )
            assert differing == ()
    assert rates == [989.5e12, 3000e12]
