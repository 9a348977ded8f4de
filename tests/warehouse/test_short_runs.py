"""Times, energies and dollars of short and of long runs, in units that people read."""

from __future__ import annotations

from typing import Any

import pytest

from warehouse.show.units import for_people, in_words, run_time_in_words, run_times_in_words

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (19.1 * DAY, "19.1 days"),
        (2 * DAY, "2.0 days"),
        (1.9 * DAY, "45.6 hours"),
        (2 * HOUR, "2.0 hours"),
        (56.9 * MINUTE, "56.9 minutes"),
        (30.0, "0.5 minutes"),
    ],
)
def test_the_time_of_a_run_has_the_unit_that_fits(seconds: float, words: str) -> None:
    assert run_time_in_words(seconds) == words
    assert in_words("training_seconds", seconds) == words


def test_both_ends_of_an_interval_have_one_unit() -> None:
    assert run_times_in_words(40 * HOUR, 60 * HOUR) == "1.7 to 2.5 days"
    assert run_times_in_words(50 * MINUTE, 110 * MINUTE) == "50.0 to 110.0 minutes"


@pytest.mark.parametrize(
    ("values", "heading", "figures"),
    [
        ([HOUR, 10 * DAY], "training days", ["0.0417", "10.0"]),
        ([HOUR, 10 * HOUR], "training hours", ["1.0", "10.0"]),
        ([MINUTE, None], "training minutes", ["1.0", None]),
    ],
)
def test_a_column_has_one_unit(
    values: list[float | None], heading: str, figures: list[str | None]
) -> None:
    headings, rows = for_people(("training_seconds",), [[value] for value in values])
    assert headings == [heading]
    assert [row[0] for row in rows] == figures


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("energy_kwh", 415.5, "415.5 kWh"),
        ("energy_kwh", 41_550.0, "41.5 MWh"),
        ("kg_co2e", 160.0, "160.0 kg CO2e"),
        ("kg_co2e", 16_000.0, "16.0 t CO2e"),
        ("cost_usd", 3.29, "3.29 USD"),
        ("cost_usd", 1596.0, "1,596 USD"),
        ("gpu_hours", 0.99, "0.99 GPU-hours"),
        ("gpu_hours", 485.2, "485 GPU-hours"),
    ],
)
def test_small_amounts_are_not_rounded_away(name: str, value: Any, words: str) -> None:
    assert in_words(name, value) == words
