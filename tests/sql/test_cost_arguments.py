"""The table macros of costs refuse arguments that no run, price or site can have."""

from __future__ import annotations

import duckdb
import pytest

from warehouse.database.in_force import mark


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("training_run_for(-1)", "`asked_tokens` -1: must be a number above 0"),
        ("training_run_for('nan'::double)", "`asked_tokens` nan: must be a number above 0"),
        ("training_cost_for('inf'::double)", "`asked_tokens` inf: must be a number above 0"),
        ("training_run_for(1e12, assumed_goodput := 0)", "`assumed_goodput` 0: must be above 0"),
        ("training_cost_for(1e12, assumed_goodput := 2)", "`assumed_goodput` 2: must be above 0"),
        ("training_energy_for(1e12, assumed_goodput := 2)", "`assumed_goodput` 2: must be above"),
        ("training_cost_for(1e12, given_price := 0)", "`given_price` 0: must be a number above 0"),
        ("training_cost_for(1e12, given_pue := 0.1)", "`given_pue` 0.1: must be from 1 to 10"),
        ("training_cost_for(1e12, given_watts := -1)", "`given_watts` -1: must be a number above"),
        ("training_cost_for(1e12, given_usd_per_kwh := -1)", "`given_usd_per_kwh` -1: must be at"),
        ("training_energy_for(1e12, given_pue := 11)", "`given_pue` 11: must be from 1 to 10"),
        ("training_energy_for(1e12, given_watts := 0)", "`given_watts` 0: must be a number above"),
        ("training_energy_for(1e12, given_usd_per_kwh := -1)", "`given_usd_per_kwh` -1: must be"),
        (
            "training_energy_for(1e12, given_kg_co2e_per_kwh := -1)",
            "`given_kg_co2e_per_kwh` -1: must be at least 0",
        ),
    ],
)
@pytest.mark.long
def test_an_argument_out_of_its_limits_is_reported(
    scratch: duckdb.DuckDBPyConnection, call: str, expected: str
) -> None:
    scratch.execute(
        "insert into problem (problem_id, parameters, active_parameters, accelerator, goodput)"
        " values (1, 1e9, 1e9, 'H100', 1)"
    )
    scratch.execute(
        "insert into cell (cell_id, problem_id, estimator, estimator_version, relation, mends,"
        " variant, kept, num_rows) values (1, 1, 'cluster', 2, 'cluster_compute', '',"
        " 'published', '{}', 1)"
    )
    scratch.execute(
        "insert into cluster_compute_row (cell_id, global_batch_tokens, mfu, num_steps, num_gpus,"
        " training_seconds) values (1, 1e6, 0.5, 10, 8, 100)"
    )
    mark(scratch)
    with pytest.raises(duckdb.Error, match="must be") as caught:
        scratch.execute(f"from {call}").fetchall()
    assert expected in str(caught.value)
