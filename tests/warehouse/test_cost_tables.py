"""What holds for the packaged tables of prices, power, places and published runs."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from typing import Any

import pytest

from estimators.names import folded
from warehouse.ask.names import find_name
from warehouse.database import resources
from warehouse.database.catalog import packaged_catalog
from warehouse.database.reference import read_table


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a packaged reference table."""
    table = read_table(resources.reference_directory() / f"{name}.csv")
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("site", 4),
        ("gpu_hour_price", 293),
        ("electricity_price", 16),
        ("grid_carbon", 306),
        ("facility_pue", 14),
        ("goodput", 4),
        ("cost_parameter", 26),
        ("published_training_runs", 63),
    ],
)
def test_every_published_row_is_unchanged(name: str, count: int) -> None:
    assert len(rows(name)) == count


@pytest.mark.parametrize(
    "name", ["site", "grid_carbon", "facility_pue", "goodput", "cost_parameter"]
)
def test_a_row_can_be_found_by_its_name(name: str) -> None:
    assert len(packaged_catalog().tables[name]) == len(rows(name))


def test_a_year_has_one_price_of_electricity() -> None:
    years = [(row["region"], row["year"]) for row in rows("electricity_price")]
    assert years == [("US industrial", year) for year in range(2010, 2026)]


# ---- places ----

PLACE = ("latitude", "longitude")


def test_a_true_site_is_a_site_with_coordinates_of_its_own() -> None:
    sites = packaged_catalog().tables["site"]
    wrong = {name: row["true_site"] for name, row in sites.items() if row["true_site"]}
    assert wrong == {"JOLIOT_CURIE": "JOLIOT_CURIE_TGCC"}
    assert all(sites[str(true)]["true_site"] is None for true in wrong.values())


def test_the_published_position_of_joliot_curie_is_near_lyon() -> None:
    sites = packaged_catalog().tables["site"]

    def distance(a: str, b: str) -> float:
        """Return the distance of two sites in kilometres, by the haversine formula."""
        (north_a, east_a), (north_b, east_b) = (
            [math.radians(float(sites[name][at] or 0)) for at in PLACE] for name in (a, b)
        )
        across = math.cos(north_a) * math.cos(north_b) * math.sin((east_a - east_b) / 2) ** 2
        return 2 * 6371 * math.asin(math.sqrt(math.sin((north_a - north_b) / 2) ** 2 + across))

    assert distance("JEAN_ZAY", "JOLIOT_CURIE_TGCC") == pytest.approx(12, abs=1)
    assert distance("JOLIOT_CURIE", "JOLIOT_CURIE_TGCC") == pytest.approx(370, abs=5)


# ---- prices ----

AMBIGUOUS = {
    "NVIDIA A100": 11,
    "NVIDIA A100 PCIe": 21,
    "NVIDIA V100": 16,
    # other products than those of table accelerator
    "NVIDIA Tesla V100 DGXS 16 GB": 26,
    "NVIDIA Tesla V100 PCIe 16 GB": 3,
    "NVIDIA Tesla V100 SXM2 16 GB": 1,
    "NVIDIA H100 NVL": 1,
    # the instance type of a named cluster, dearer than the same GPU in another
    "Google a3-megagpu-8g": 1,
}
"""Hardware that names several products, or none of table accelerator -> its prices."""


def test_every_price_is_that_of_an_accelerator_or_of_ambiguous_hardware() -> None:
    accelerators = set(packaged_catalog().tables["accelerator"])
    names = {row["alias"]: row["accelerator"] for row in rows("accelerator_alias")}
    assert len(names) == len(rows("accelerator_alias"))
    unknown = Counter(
        row["hardware"]
        for row in rows("gpu_hour_price")
        if names.get(row["hardware"], row["hardware"]) not in accelerators
    )
    assert dict(unknown) == AMBIGUOUS


def test_every_price_is_one_for_an_hour_and_falls_with_the_commitment() -> None:
    for row in rows("gpu_hour_price"):
        prices = [row[f"{length}_usd_per_gpu_hour"] for length in ("on_demand", "one_year")]
        prices.append(row["three_year_usd_per_gpu_hour"])
        given = [price for price in prices if price is not None]
        assert given, row
        assert given == sorted(given, reverse=True), row


def test_every_quote_has_a_day_a_page_and_a_price_that_is_sane() -> None:
    for row in rows("gpu_hour_price"):
        assert row["source"] and row["price_url"].startswith("http"), row
        assert 2018 <= row["price_date"].year <= 2026, row
        given = [row[name] for name in row if name.endswith("_usd_per_gpu_hour")]
        assert all(0.1 < price < 20 for price in given if price is not None), row
    of_2026 = [row for row in rows("gpu_hour_price") if row["price_date"].year == 2026]
    assert all(row["region"] or row["vendor"] == "Qubrid" for row in of_2026)
    found = Counter((row["price_date"], row["hardware"], row["vendor"]) for row in of_2026)
    assert set(found.values()) == {1}


def test_the_last_accelerators_have_rents() -> None:
    names = {row["alias"]: row["accelerator"] for row in rows("accelerator_alias")}
    rented = Counter(
        names.get(row["hardware"], row["hardware"])
        for row in rows("gpu_hour_price")
        if row["price_date"].year == 2026 and row["on_demand_usd_per_gpu_hour"] is not None
    )
    assert {name: rented[name] for name in ("GB300 (per GPU)", "GB200 (per GPU)", "MI300X")} == {
        "GB300 (per GPU)": 1,
        "GB200 (per GPU)": 2,
        "MI300X": 4,
    }
    assert min(rented[n] for n in ("H100 SXM 80GB", "H200 SXM 141GB", "B200 SXM 180GB")) >= 7


@pytest.mark.parametrize("name", ["A100", "H200", "B200"])
def test_the_papers_systems_are_not_aliases(name: str) -> None:
    # `warehouse rank --accelerator A100` asks for the system, not for the product.
    assert name not in {row["alias"] for row in rows("accelerator_alias")}


def test_a_purchase_price_says_what_it_buys() -> None:
    bought = {row["accelerator"]: row["purchase_includes"] for row in rows("accelerator")}
    assert {name: what for name, what in bought.items() if what} == {
        "V100 SXM2": "gpu",
        "A100 SXM 40GB": "server",
        "A100 SXM 80GB": "server",
        "A100 PCIe 80GB": "gpu",
        "H100 SXM 80GB": "board",
        "H100 PCIe 80GB": "gpu",
        "H200 SXM 141GB": "board",
        "B200 SXM 180GB": "server",
        "RTX 4090": "gpu",
    }
    for row in rows("accelerator"):
        assert (row["purchase_usd"] is None) == (row["purchase_includes"] is None), row


# ---- power ----


def test_a_server_draws_more_than_its_accelerator_alone() -> None:
    known = {row["accelerator"]: row for row in rows("accelerator")}
    for name, row in known.items():
        watts, source = row["server_watts_per_gpu"], row["server_watts_source"]
        assert (watts is None) == (source is None), name
        assert watts is None or 1.2 < watts / row["tdp_watts"] < 2.1, name
    for name in ("H200 SXM 141GB", "B200 SXM 180GB", "B300 SXM", "GB200 (per GPU)"):
        assert known[name]["server_watts_per_gpu"] is not None
    for name in ("GB300 (per GPU)", "MI300X"):
        assert known[name]["tdp_watts"] > 0


def test_grids_have_a_source_and_sane_emissions() -> None:
    for row in rows("grid_carbon"):
        assert row["source"] and row["kind"], row
        assert 0 < row["kg_co2e_per_kwh"] < 1.4, row
        assert row["year"] is None or 2016 <= row["year"] <= 2026, row
    shown = [row["grid"] for row in rows("grid_carbon") if row["is_default"]]
    assert len(shown) == 4


def test_every_name_of_a_grid_is_of_one_grid() -> None:
    grids = {row["grid"] for row in rows("grid_carbon")}
    names = {row["alias"]: row["grid"] for row in rows("grid_alias")}
    assert len(names) == len(rows("grid_alias"))
    assert set(names.values()) <= grids
    assert not grids & set(names)
    spelt: dict[str, set[str]] = {}
    for name, grid in [*names.items(), *((grid, grid) for grid in grids)]:
        spelt.setdefault(folded(name), set()).add(grid)
    assert not {name: found for name, found in spelt.items() if len(found) > 1}


@pytest.mark.parametrize(
    ("asked", "grid"),
    [
        ("france", "France"),
        ("FR", "France"),
        ("fra", "France"),
        ("France (BLOOM)", "France (BLOOM)"),
        ("United States", "United States"),
        ("united-states of america", "United States"),
        ("UK", "United Kingdom"),
        ("korea", "South Korea"),
        ("Georgia", "Georgia"),
        ("US-GA", "Georgia (2016)"),
        ("texas", "Texas (2016)"),
        ("US-Central1", "us-central1 (Iowa, US)"),
        ("gopher's data centre", "Gopher's data centre"),
    ],
)
def test_a_grid_is_found_by_any_of_its_names(asked: str, grid: str) -> None:
    catalog = packaged_catalog()
    assert find_name(asked, catalog.tables["grid_carbon"], catalog.aliases["grid_carbon"]) == grid


def test_the_carbon_of_a_derived_grid_is_that_of_its_run() -> None:
    grid = packaged_catalog().tables["grid_carbon"]["France (BLOOM)"]
    (bloom,) = (row for row in rows("published_training_runs") if row["model"] == "BLOOM-176B")
    assert bloom["kg_co2e"] / bloom["energy_kwh"] == pytest.approx(
        grid["kg_co2e_per_kwh"], abs=5e-4
    )


def test_every_published_pue_is_that_of_a_facility() -> None:
    known = {row["pue"] for row in rows("facility_pue")}
    assert {row["pue"] for row in rows("published_training_runs")} - {None} <= known


# ---- published runs ----


@pytest.mark.parametrize(
    ("model", "time", "energy", "cost"),
    [
        ("GPT-3 175B", True, True, None),  # hours are FLOPs over a rate
        ("T5-11B", False, False, None),  # energy measured
        ("Llama 3.1 405B", False, True, None),  # emissions: hours x TDP
        ("DeepSeek-V3", False, None, True),  # cost: hours x 2 USD
        ("MLPerf v4.0 GPT-3 on 64 SMC H100 nodes", False, False, None),  # power metered
    ],
)
def test_what_a_run_derived_rather_than_measured_is_flagged(
    model: str, time: bool, energy: bool | None, cost: bool | None
) -> None:
    (run,) = (
        row
        for row in rows("published_training_runs")
        if row["model"] == model and row["run_kind"] != "pre-training"
    )
    assert [run[f"is_{name}_circular"] for name in ("time", "energy", "cost")] == [
        *(time, energy, cost)
    ]


def test_a_flag_is_given_wherever_its_quantity_is() -> None:
    for run in rows("published_training_runs"):
        for name, quantities in (
            ("time", ("gpu_hours", "training_seconds")),
            ("energy", ("energy_kwh", "kg_co2e")),
            ("cost", ("cost_usd",)),
        ):
            absent = all(run[quantity] is None for quantity in quantities)
            assert (run[f"is_{name}_circular"] is None) == absent, run


def test_computed_energy_is_circular_and_measured_energy_is_not() -> None:
    runs = [row for row in rows("published_training_runs") if row["energy_kwh"] is not None]
    assert len(runs) == 19
    for run in runs:
        computed = run["energy_kind"].startswith("computed")
        assert computed or run["energy_kind"].startswith(("measured", "published")), run
        assert run["is_energy_circular"] == computed, run


FIGURES = (
    *("year", "parameters", "dataset_tokens", "accelerator", "num_gpus", "gpu_hours"),
    *("training_seconds", "mfu", "watts_per_gpu", "pue", "energy_kwh", "kg_co2e"),
)


def test_the_figures_of_gpt3_and_llama_are_the_published_ones() -> None:
    runs = {row["model"]: row for row in rows("published_training_runs")}
    gpt3, llama = runs["GPT-3 175B"], runs["Llama 3.1 405B"]
    assert {name: gpt3[name] for name in FIGURES} == {
        "year": 2020,
        "parameters": 175e9,
        "dataset_tokens": 300e9,
        "accelerator": "V100",
        "num_gpus": 10000,
        "gpu_hours": 3_552_000,
        "training_seconds": 1_278_720,  # 14.8 days
        "mfu": 0.197,
        "watts_per_gpu": 330,
        "pue": 1.1,
        "energy_kwh": 1_287_000,
        "kg_co2e": 552_100,
    }
    assert {name: llama[name] for name in FIGURES} == {
        "year": 2024,
        "parameters": 405.85e9,
        "dataset_tokens": 15.6e12,
        "accelerator": "H100-80GB",
        "num_gpus": 16384,
        "gpu_hours": 30_840_000,
        "training_seconds": None,
        "mfu": 0.38,
        "watts_per_gpu": 700,
        "pue": None,
        "energy_kwh": None,
        "kg_co2e": 8_930_000,
    }
    assert runs["Llama 3.1 8B"]["parameters"] == 8_030_000_000


TIMES_DIFFER = {
    "PaLM 540B": "336 of its 1,536 hours ran on half the chips",
    "OPT-175B": "hours are 34 days, the chronicle says 33",
}


def test_gpu_hours_are_gpus_times_hours_where_all_three_are_published() -> None:
    checked = 0
    for run in rows("published_training_runs"):
        if run["gpu_hours"] and run["num_gpus"] and run["training_seconds"]:
            if run["model"] in TIMES_DIFFER:
                continue
            hours = run["num_gpus"] * run["training_seconds"] / 3600
            assert hours == pytest.approx(run["gpu_hours"], rel=0.02), run
            checked += 1
    assert checked > 20


def test_the_run_tables_accelerators_are_known_or_no_gpu_of_the_tables() -> None:
    accelerators = set(packaged_catalog().tables["accelerator"])
    names = {row["alias"]: row["accelerator"] for row in rows("accelerator_alias")}
    used = {row["accelerator"] for row in rows("published_training_runs")}
    unknown = {name for name in used if names.get(name, name) not in accelerators}
    assert unknown == {"TPU v3", "TPU v4"}


@pytest.mark.parametrize("name", ["published_training_runs", "gpu_hour_price", "cost_parameter"])
def test_no_number_has_the_dust_of_binary_fractions(name: str) -> None:
    path = resources.reference_directory() / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        fields = [field for record in csv.reader(file) for field in record]
    numbers = [field for field in fields if re.fullmatch(r"[\d.]+", field)]
    assert len(numbers) > 20
    assert not [field for field in numbers if len(field.replace(".", "").strip("0")) > 12]
