"""The database attached under another name, as dbt, marimo and others do."""

from __future__ import annotations

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description


@pytest.fixture(scope="module")
def examples(quickstart: Quickstart) -> list[str]:
    """The example of each table macro."""
    with open_for_read(quickstart.database) as connection:
        things = Description(connection).things.values()
        found = [thing.example for thing in things if thing.kind == "table macro"]
    assert len(found) == 12
    return found


def test_views_need_no_use(quickstart: Quickstart) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"attach '{quickstart.database}' as wh (read_only)")
        for view in ("configuration_rank", "training_cost", "published_comparison"):
            assert connection.execute(f"from wh.{view} limit 1").fetchall()


@pytest.mark.long
def test_marts_answer_what_macros_do_for_a_trillion_tokens(quickstart: Quickstart) -> None:
    key = "problem_id, estimator, estimator_version, variant"
    with duckdb.connect() as connection:
        connection.execute(f"attach '{quickstart.database}' as wh (read_only)")
        runs = connection.execute(
            "select model, num_gpus, best_layout, best_step_seconds, "
            f"20 * gpu_hours, 20 * cost_usd, 20 * energy_kwh, {key} "
            "from wh.run_per_trillion_tokens where model = 'gpt3_1T' and gpu_hours is not null "
            f"order by {key}"
        ).fetchall()
        some = "where model = 'gpt3_1T' and num_gpus = 4096 order by all"
        costs = connection.execute(f"from wh.cost_per_trillion_tokens {some}").fetchall()
        energies = connection.execute(f"from wh.energy_per_trillion_tokens {some}").fetchall()
        connection.execute("use wh")
        asked = connection.execute(
            "select model, num_gpus, best_layout, step_seconds, "
            f"gpu_hours, cost_usd, energy_kwh, {key} "
            f"from training_run('gpt3_1T', 20e12, null) order by {key}"
        ).fetchall()
        assert [row[:3] + row[7:] for row in runs] == [row[:3] + row[7:] for row in asked]
        for mine, other in zip(runs, asked, strict=True):
            # the last step of the macro's run is a whole one
            assert mine[3:7] == pytest.approx(other[3:7], rel=1e-5)
        for found, macro in ((costs, "training_cost_for"), (energies, "training_energy_for")):
            assert found == connection.execute(f"from {macro}(1e12) {some}").fetchall()
            assert found


@pytest.mark.long
def test_table_macros_answer_after_use(quickstart: Quickstart, examples: list[str]) -> None:
    attach = f"attach '{quickstart.database}' as wh (read_only); use wh"
    with duckdb.connect() as connection:
        connection.execute(attach)
        for example in examples:  # tests/sql/test_streaming.py has the older shell run them
            connection.execute(example).fetchall()
