"""`warehouse cost` and `warehouse energy`: stored runs, priced when asked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import digest
from warehouse.ask.cost import RunTable
from warehouse.cli.cost import _notes
from warehouse.cli.main import run
from warehouse.database.connection import open_for_write

BUDGET = """
name = "budget"
estimator = "cluster"
[space]
parameters = 70e9
dataset_tokens = 1.4e12
accelerator = ["H100 SXM 80GB", "A100 SXM 80GB", "A100 PCIe 80GB", "H800 SXM 80GB"]
global_batch_tokens = 1e6
mfu = [0.4, 0.5]
"""
STEPS = """
name = "steps"
estimator = "roofline"
[space]
model = "gpt3_1T"
strategy = "tensor_1d"
accelerator = "A100"
nvlink_size = 8
num_gpus = [512, 1024]
global_batch_size = 4096
"""
FLOW = """
name = "flow"
estimator = "dataflow"
[space]
accelerator = "A100 SXM 80GB"
num_layers = 12
hidden_size = 4096
dataset_tokens = 1e12
num_clusters = 8
"""
FLOPS = 6 * 70e9 * 1.4e12


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cost")
    for name, text in (("budget", BUDGET), ("steps", STEPS)):
        (directory / f"{name}.toml").write_text(text)
        path = directory / "warehouse.duckdb"
        assert run(["sweep", str(directory / f"{name}.toml"), "--db", str(path)]) == 0
    return path


@pytest.fixture
def ask(database: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Call a command for JSON; return exit code, rows, stderr."""

    def ask(*arguments: object, json_rows: bool = True) -> tuple[int, Any, str]:
        capsys.readouterr()
        wanted = ["--json"] if json_rows else []
        code = run([*map(str, arguments), *wanted, "--db", str(database)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if json_rows and out else out, err

    return ask


def only(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Return the one row that has these values."""
    [row] = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return row


def test_a_run_costs_its_hours_times_the_price(ask: Any) -> None:
    code, rows, _ = ask("cost", "--model", "70B parameters", "--price", 3)
    assert code == 0
    row = only(rows, accelerator="H100 SXM 80GB")
    hours = FLOPS / (989.5e12 * 0.5) / 3600
    # 6e6 more GPUs-seconds at most: GPUs are whole, and the last step is full
    assert row["lowest_gpu_hours"] == pytest.approx(hours, rel=2e-3)
    assert row["lowest_cost_usd"] == pytest.approx(3 * row["lowest_gpu_hours"], rel=1e-12)
    assert row["highest_cost_usd"] == pytest.approx(row["lowest_cost_usd"] * 0.5 / 0.4, rel=2e-3)
    assert (row["num_runs"], row["basis"], row["price_source"]) == (2, "given", "given")


@pytest.mark.long
def test_prices_are_joined_when_asked_for(ask: Any, database: Path) -> None:
    arguments = ("cost", "--model", "70B parameters", "--accelerator", "H100", "--year", 2024)
    _, rows, _ = ask(*arguments)
    before = only(rows, basis="on_demand")
    with open_for_write(database) as connection:
        connection.execute(
            "update gpu_hour_price set on_demand_usd_per_gpu_hour = 2 * on_demand_usd_per_gpu_hour"
        )
    try:
        _, rows, _ = ask(*arguments)
        after = only(rows, basis="on_demand")
    finally:
        with open_for_write(database) as connection:
            connection.execute(
                "update gpu_hour_price set on_demand_usd_per_gpu_hour ="
                " on_demand_usd_per_gpu_hour / 2"
            )
    assert after["lowest_cost_usd"] == pytest.approx(2 * before["lowest_cost_usd"], rel=1e-12)
    assert "http" in before["price_source"]


@pytest.mark.long
def test_the_last_year_is_shown_unless_another_is_asked_for(ask: Any) -> None:
    asked = ("cost", "--model", "70B parameters", "--accelerator", "A100-80GB")
    _, rows, _ = ask(*asked)
    assert {row["basis"]: row["year"] for row in rows} == {
        "on_demand": 2026,
        "one_year": 2026,
        "three_year": 2026,
        "owned": 2025,
    }
    _, rows, _ = ask(*asked, "--all-years")
    assert {row["year"] for row in rows} >= {2022, 2023, 2024, 2025, 2026}
    _, rows, _ = ask(*asked, "--year", 2023)
    assert {row["year"] for row in rows} == {2023}


@pytest.mark.long
def test_a_name_is_found_in_any_capitals_and_with_or_without_hyphens(ask: Any) -> None:
    named = ("--model", "70B parameters", "--accelerator", "A100-80GB", "--variant", "corrected")
    spelt = ("--model", "70b-Parameters", "--accelerator", "a100 80gb", "--variant", "Corrected")
    found = ask("cost", *named, "--tokens", "1T")[1]
    assert ask("cost", *spelt, "--tokens", "1e12")[1] == found != []


def test_a_bare_name_finds_the_runs_of_its_product(ask: Any) -> None:
    _, rows, _ = ask("cost", "--model", "70B parameters", "--accelerator", "A100")
    assert {row["accelerator"] for row in rows} == {"A100 SXM 80GB"}
    _, rows, _ = ask("cost", "--accelerator", "A100", "--tokens", "1T")
    assert {row["accelerator"] for row in rows} == {"A100"}, "a stored name comes first"


@pytest.mark.long
def test_what_was_never_published_is_not_invented(ask: Any) -> None:
    _, rows, _ = ask("cost", "--model", "70B parameters", "--accelerator", "H800")
    assert [(row["basis"], row["price_note"], row["lowest_cost_usd"]) for row in rows] == [
        ("on_demand", "no price of a rented hour was published: give one", None)
    ]
    _, rows, _ = ask("cost", "--model", "70B parameters", "--accelerator", "A100 PCIe 80GB")
    owned = only(rows, basis="owned")
    assert owned["price_note"] == "no published power of its server: electricity is not known"
    assert owned["lowest_cost_usd"] is None
    asked = (
        "cost",
        "--model",
        "70B parameters",
        "--accelerator",
        "A100 PCIe 80GB",
        "--watts",
        1430,
    )
    _, rows, _ = ask(*asked, "--pue", 1.2, "--electricity-price", 0.1)
    owned = only(rows, basis="owned")
    assert owned["electricity_usd_per_gpu_hour"] == pytest.approx(1.43 * 1.2 * 0.1, rel=1e-12)
    assert owned["usd_per_gpu_hour"] == pytest.approx(
        owned["amortised_usd_per_gpu_hour"] + 1.43 * 1.2 * 0.1, rel=1e-12
    )
    assert (owned["price_note"], owned["lowest_cost_usd"] > 0) == (None, True)
    _, rows, _ = ask("energy", "--model", "70B parameters", "--accelerator", "A100 PCIe 80GB")
    assert {row["lowest_energy_kwh"] for row in rows} == {None}
    assert {row["power_note"] for row in rows} == {"no published power of its server"}
    code, rows, _ = ask(
        *("energy", "--model", "70B parameters", "--accelerator", "A100 PCIe 80GB"),
        *("--watts", 1430),
    )
    assert code == 0
    expected = rows[0]["lowest_gpu_hours"] * 1.43 * 1.1
    assert rows[0]["lowest_energy_kwh"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
def test_tokens_are_asked_for_and_never_assumed(ask: Any) -> None:
    code, rows, err = ask("cost", "--model", "gpt3_1T")
    assert (code, rows) == (3, "")
    assert "the tokens of 2 runs are not known" in err
    code, rows, err = ask("cost")
    assert (code, "left out, the tokens of the run are not known: 2 runs; give" in err) == (0, True)
    assert {row["model"] for row in rows} == {"70B parameters"}
    code, rows, _ = ask("cost", "--model", "gpt3_1T", "--tokens", 1e12, "--price", 1)
    assert (code, {row["dataset_tokens"] for row in rows}) == (0, {1e12})


def test_a_database_may_have_the_name_of_a_schema(
    ask: Any, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = shutil.copyfile(database, tmp_path / "main.duckdb")
    before = digest(named)
    asked = ("cost", "--model", "70B parameters", "--json")
    assert run([*asked, "--db", str(named)]) == 0
    out, _ = capsys.readouterr()
    assert json.loads(out) == ask(*asked[:-1])[1]
    assert digest(named) == before


@pytest.mark.long
def test_a_layouts_run_is_its_steps(ask: Any, database: Path) -> None:
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute(
            "select cell_id, min(step_seconds) from configuration where variant = 'corrected'"
            " and fits_memory and num_gpus = 512 group by cell_id"
        ).fetchall()
    [(cell, step)] = found
    steps = -(-1e12 // (4096 * 2048))
    _, rows, _ = ask("cost", "--id", cell, "--tokens", 1e12, "--price", 2, "--goodput", 0.9)
    assert rows[0]["training_seconds"] == pytest.approx(steps * step / 0.9, rel=1e-12)
    assert rows[0]["lowest_cost_usd"] == pytest.approx(
        steps * step / 0.9 * 512 / 3600 * 2, rel=1e-12
    )
    _, rows, _ = ask("cost", "--num-gpus", 512, "--tokens", 1e12, "--price", 2)
    assert rows[0]["training_seconds"] == pytest.approx(steps * step, rel=1e-12)


@pytest.mark.long
def test_a_goodput_and_a_site_may_be_named(ask: Any) -> None:
    named = ("--goodput", "Llama 3 405B", "--pue", "Jean Zay (BLOOM)", "--carbon", "France (BLOOM)")
    asked = ("energy", "--model", "70B parameters", "--accelerator", "H100 SXM 80GB")
    _, [row], _ = ask(*asked, *named)
    _, [plain], _ = ask(*asked, "--pue", 1, "--carbon", 0.057)
    assert row["lowest_energy_kwh"] == pytest.approx(
        plain["lowest_energy_kwh"] * 1.2 / 0.9, rel=1e-12
    )
    assert row["lowest_kg_co2e"] == pytest.approx(0.057 * row["lowest_energy_kwh"], rel=1e-12)
    # a server of 1,275 W a GPU at three quarters
    expected = plain["lowest_gpu_hours"] * 1.275 * 0.75
    assert plain["lowest_energy_kwh"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
def test_owning_draws_electricity_at_the_price_that_is_given(ask: Any) -> None:
    asked = ("cost", "--model", "70B parameters", "--accelerator", "H100 SXM 80GB", "--year", 2025)
    _, rows, _ = ask(*asked, "--electricity-price", 0, "--pue", 1)
    free = only(rows, basis="owned")["usd_per_gpu_hour"]
    _, rows, _ = ask(*asked, "--electricity-price", 0.5, "--pue", 2)
    paid = only(rows, basis="owned")["usd_per_gpu_hour"]
    # a board's share of a server and a network, over five years
    assert free == pytest.approx(33810 * 1.64 / (1 - 0.19) / (5 * 8766), rel=1e-12)
    assert paid - free == pytest.approx(1.275 * 0.75 * 2 * 0.5, rel=1e-12)


def test_each_price_and_each_carbon_is_a_row(ask: Any) -> None:
    asked = ("--model", "70B parameters", "--accelerator", "H100 SXM 80GB")
    _, rows, _ = ask("cost", *asked, "--price", 2, "--price", 3, "--price", 2)
    hours = rows[0]["lowest_gpu_hours"]
    assert [row["usd_per_gpu_hour"] for row in rows] == [2, 3]
    assert [row["lowest_cost_usd"] for row in rows] == pytest.approx([2 * hours, 3 * hours])
    _, rows, _ = ask("energy", *asked, "--carbon", "france", "--carbon", 0.2, "--carbon", "USA")
    assert [row["grid"] for row in rows] == ["France", "given", "United States"]
    assert [row["lowest_kg_co2e"] for row in rows] == pytest.approx(
        [row["kg_co2e_per_kwh"] * row["lowest_energy_kwh"] for row in rows]
    )
    assert rows[1]["kg_co2e_per_kwh"] == 0.2


def test_the_kind_and_the_year_of_each_grid_are_printed(ask: Any) -> None:
    asked = ("energy", "--model", "70B parameters", "--accelerator", "H100 SXM 80GB")
    err = ask(*asked, "--carbon", "france", "--carbon", "texas")[2]
    assert (
        "carbon of grids, with its kind and year: France: annual average, life cycle, 2023; "
        "Texas (2016): annual average of a US state, 2016\n"
        "figures of different years or kinds do not compare\n"
    ) in err
    err = ask(*asked, "--carbon", "france")[2]
    assert "France: annual average, life cycle, 2023\n" in err
    assert "do not compare" not in err
    assert "carbon of grids" not in ask(*asked, "--carbon", 0.2)[2]


def test_the_strategy_is_named_only_if_an_estimator_has_several(ask: Any) -> None:
    asked = ("cost", "--estimator", "roofline", "--tokens", "1T")
    assert all(row["best_layout"].startswith("tensor_1d dp") for row in ask(*asked)[1])
    out = ask(*asked, "--wide", json_rows=False)[1]
    assert "tensor_1d" not in out
    assert "  dp" in out


@pytest.mark.parametrize(
    ("command", "every"), [("cost", "--all-years"), ("energy", "--all-powers")]
)
def test_a_line_has_the_runs_on_all_numbers_of_gpus(ask: Any, command: str, every: str) -> None:
    _, rows, _ = ask(command, "--model", "gpt3_1T", "--tokens", "1T", every)
    assert {(row["num_runs"], row["num_gpus"]) for row in rows} == {(2, 1024)}
    grids = {row["grid"] for row in rows if "grid" in row}
    assert len(grids) == (4 if command == "energy" else 0)


def test_without_a_grid_those_of_published_runs_are_shown(ask: Any) -> None:
    asked = ("--model", "70B parameters", "--accelerator", "H100 SXM 80GB")
    _, rows, _ = ask("energy", *asked)
    assert [row["grid"] for row in rows] == [
        "France (BLOOM)",
        "Gopher's data centre",
        "US average (LLaMA)",
        "US average (GPT-3)",
    ]


def test_the_vendors_of_each_basis_are_listed(ask: Any) -> None:
    asked = ("--model", "70B parameters", "--accelerator", "H100 SXM 80GB")
    _, rows, err = ask("cost", *asked)
    vendors = {row["basis"]: row["quote_vendors"] for row in rows}
    assert vendors["one_year"] == "Google Cloud, Qubrid"
    assert vendors["owned"] is None
    assert len(vendors["on_demand"].split(", ")) == only(rows, basis="on_demand")["num_quotes"] > 5
    whose = "prices come from different vendors or years, so do not compare them"
    assert f"H100 SXM 80GB: {whose}: on_demand of 10 vendors" in err
    assert "one_year of Google Cloud and Qubrid (2026)" in err
    assert "different vendors" not in ask("cost", *asked, "--price", 2)[2]


@pytest.mark.long
def test_lengths_of_sequences_are_lines_and_a_filter(stored: Any, tmp_path: Path) -> None:
    two = STEPS.replace("nvlink_size = 8", "nvlink_size = 8\nseq_len = [1024, 2048]")
    rows, _ = stored("cost --tokens 1e12 --price 1", two)
    assert {row["seq_len"]: row["num_runs"] for row in rows} == {1024: 2, 2048: 2}
    out, db = tmp_path / "out.json", tmp_path / "warehouse.duckdb"
    asked = ["cost", "--tokens", "1e12", "--price", "1", "--seq-len", "2048", "--json"]
    assert run([*asked, "--out", str(out), "--db", str(db)]) == 0
    assert json.loads(out.read_text()) == [row for row in rows if row["seq_len"] == 2048]


def test_a_table_is_in_units_of_people(ask: Any) -> None:
    code, out, err = ask("cost", "--model", "70B parameters", "--price", 2, json_rows=False)
    assert code == 0
    assert "variant corrected" in err
    head = out.splitlines()[0].split("  ")
    assert {"GPUs", "USD/GPU-hour"} <= {heading.strip() for heading in head}
    code, out, err = ask("cost", "--top", 1, json_rows=False)
    assert len(out.splitlines()) == 3
    assert "1 of 11 lines shown; --top N shows more" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("cost --model nonsense", 3, '`--model` "nonsense": no such run is stored'),
        ("cost --accelerator H300", 3, "stored: "),
        ("cost --tokens -1", 3, "`--tokens` -1 must be above 0"),
        ("cost --tokens nan", 3, "`--tokens` nan must be above 0"),
        ("cost --tokens 1e300", 3, "`--tokens` 1e300 must be at most 1e+30"),
        ("cost --price 0", 3, "`--price` 0 must be above 0"),
        ("cost --pue 0.9", 3, "`--pue` 0.9 must be at least 1 and at most 10"),
        ("cost --goodput 0", 3, "`--goodput` 0 must be above 0 and at most 1"),
        ("cost --goodput 1.1", 3, "`--goodput` 1.1 must be"),
        ("cost --goodput 90", 3, "hint: 0.9 for 90 %"),
        ("cost --goodput somewhere", 3, "is neither a number nor in the `goodput` table"),
        ("cost --electricity-price -0.1", 3, "`--electricity-price` -0.1 must be at least 0"),
        ("cost --year 2031", 3, "`--year` 2031 has no price"),
        ("cost --year 2024 --price 2", 2, "exclude each other"),
        ("cost --id 12", 3, "is neither a cell nor a problem"),
        ("cost --num-gpus 0", 2, "--num-gpus"),
        ("energy --carbon -1", 3, "`--carbon` -1 must be at least 0"),
        ("energy --carbon 385", 3, "at most 5\nhint: kg CO2e of a kWh: 0.385 for 385 grams"),
        ("energy --carbon Mars", 3, "is neither a number nor in the `grid_carbon` table"),
        (
            *("energy --carbon atlantis", 3),
            "hint: `warehouse sql 'select grid from grid_carbon'` lists all 306; similar: Albania;",
        ),
        (
            *("energy --carbon Frnace", 3),
            "hint: did you mean France? `warehouse sql 'select grid from grid_carbon'` lists all ",
        ),
        ("energy --carbon 0.1 --carbon -1", 3, "`--carbon` -1 must be at least 0"),
        ("cost --price 2 --price 0", 3, "`--price` 0 must be above 0"),
        ("cost --seq-len 77", 3, "hint: stored: 2048"),
        ("energy --watts 0", 3, "`--watts` 0 must be above 0"),
        (
            *("cost --electricity-price 70", 3),
            "`--electricity-price` 70 is more than 10 times the dearest published price of a kWh, "
            "0.083 USD (US industrial, 2022)\nhint: USD of a kWh: 0.07 for 70 USD/MWh",
        ),
        ("energy --electricity-price 0.84", 3, "is more than 10 times the dearest"),
        (
            *("energy --watts 1.2", 3),
            "`--watts` 1.2 is less than a tenth of the smallest published power of an accelerator, "
            "280 watts (MI250X (per GCD))\nhint: watts of one GPU with its share of the server: "
            "1200",
        ),
        ("cost --watts 27.9", 3, "`--watts` 27.9 is less than a tenth"),
        ("cost --watts 130e3", 3, "is more than 10 times the largest published power of a GPU"),
        ("energy --model gpt3_1T", 3, "--tokens 20e12"),
        ("energy --num-gpus 7", 3, "no run passes all filters together"),
    ],
)
def test_faults_are_reported_and_nothing_is_written(
    ask: Any, database: Path, arguments: str, code: int, words: str
) -> None:
    before = digest(database)
    found, rows, err = ask(*arguments.split())
    assert (found, rows) == (code, "")
    assert words in err
    assert digest(database) == before


@pytest.fixture
def stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Store studies in a new warehouse; return a command's rows and stderr."""

    def stored(command: str, *studies: str) -> tuple[list[dict[str, Any]], str]:
        path = tmp_path / "warehouse.duckdb"
        for number, text in enumerate(studies):
            study = tmp_path / f"study{number}.toml"
            study.write_text(text)
            assert run(["sweep", str(study), "--db", str(path)]) == 0
        capsys.readouterr()
        assert run([*command.split(), "--json", "--db", str(path)]) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    return stored


@pytest.mark.long
def test_a_system_that_is_not_sold_has_no_price(stored: Any) -> None:
    tenfold = STEPS.replace("[512, 1024]", "512")
    tenfold += "[system]\nmatrix_flops_per_second = [312e12, 3120e12]\n"
    rows, _ = stored("cost --tokens 1e12", tenfold)
    real = [row for row in rows if row["system_changes"] is None]
    assert {row["priced_as"] for row in real} == {"A100 SXM 80GB"}
    assert all(row["lowest_cost_usd"] > 0 and row["num_runs"] == 1 for row in real)
    other = only(rows, system_changes="matrix_flops_per_second 3120000000000000")
    assert (other["priced_as"], other["lowest_cost_usd"], other["num_runs"]) == (None, None, 1)
    assert other["price_note"] == "its system is not the accelerator as published"
    assert other["lowest_gpu_hours"] < real[0]["lowest_gpu_hours"]
    rows, _ = stored("energy --tokens 1e12 --carbon 0.1")
    other = only(rows, system_changes="matrix_flops_per_second 3120000000000000")
    assert other["power_note"] == "its system is not the accelerator as published"
    assert other["lowest_energy_kwh"] is None


@pytest.mark.long
def test_models_of_one_size_are_distinguished(stored: Any) -> None:
    sparse = BUDGET.replace("70e9", "671e9\nactive_parameters = [37e9, 671e9]")
    rows, _ = stored("cost --price 2 --tokens 1e12 --accelerator H100", sparse)
    hours = {row["model"]: row["lowest_gpu_hours"] for row in rows}
    assert set(hours) == {"671B parameters", "671B parameters, 37B active"}
    ratio = hours["671B parameters"] / hours["671B parameters, 37B active"]
    # whole GPUs in both
    assert ratio == pytest.approx(671 / 37, rel=0.02)


def test_experts_and_widths_are_distinguished(stored: Any) -> None:
    mixed = FLOW.replace("hidden_size = 4096", "hidden_size = 4096\nnum_experts = [1, 4]")
    mixed = mixed.replace("num_layers = 12", "num_layers = 12\nffn_ratio = [4, 8]")
    rows, _ = stored("cost --price 2", mixed)
    assert {row["model"] for row in rows} == {
        *("12 x 4096, ffn 16384", "12 x 4096, ffn 16384, 4 experts"),
        *("12 x 4096, ffn 32768", "12 x 4096, ffn 32768, 4 experts"),
    }


def test_a_named_model_of_another_shape_is_marked(stored: Any) -> None:
    deeper = STEPS.replace('"gpt3_1T"', '"gpt3_1T"\nnum_layers = [64, 128]')
    rows, _ = stored("cost --price 2 --tokens 1e12", deeper)
    assert {row["model"] for row in rows} == {"gpt3_1T", "gpt3_1T with num_layers 64"}


@pytest.mark.long
def test_each_estimator_is_asked_for_its_default_variant(stored: Any) -> None:
    rows, err = stored("cost --price 2", FLOW, 'variant = "both"\n' + BUDGET)
    assert {(row["estimator"], row["variant"]) for row in rows} == {
        ("dataflow", "published"),
        ("cluster", "corrected"),
    }
    assert {row["estimator"] for row in rows if row["is_lower_bound"]} == {"dataflow"}
    assert "lower bounds: all hours, dollars and energies of dataflow" in err


def test_lower_bounds_are_distinguished_from_times_at_a_given_rate(stored: Any) -> None:
    both = (
        'name = "both"\nestimator = "megatron_flops"\n[space]\nmodel = "megatron_1T"\n'
        'accelerator = "A100 SXM 80GB"\nnum_gpus = 3072\nglobal_batch_size = 3072\n'
        'dataset_tokens = 450e9\nactivation_recompute = "full"\n'
        "achieved_flops_per_second_per_gpu = [163e12, 312e12]\n"
    )
    rows, err = stored("cost --price 2", both)
    assert "lower bounds: some hours, dollars and energies of megatron_flops" in err
    hours = {row["is_lower_bound"]: row["lowest_gpu_hours"] for row in rows}
    # equation 3: 3.7e24 FLOPs; 163 of 312 TFLOP/s
    assert hours[True] / hours[False] == pytest.approx(163 / 312, rel=1e-12)


@pytest.mark.long
def test_runs_without_a_number_of_gpus_are_counted(stored: Any) -> None:
    rated = FLOW.replace('accelerator = "A100 SXM 80GB"\n', "")
    rated += "[system]\ncluster_flops_per_second = 1e15\n"
    _, err = stored("cost --price 2", rated, BUDGET)
    assert "left out, the number of GPUs is not known: 1 run\n" in err


@pytest.mark.long
def test_runs_whose_gpus_do_not_hold_the_model_are_left_out(stored: Any) -> None:
    # 16 bytes a parameter are 1.12 TB: 14 GPUs of 80 GB
    few = BUDGET.replace("mfu = [0.4, 0.5]", "mfu = 0.5\navailable_gpus = [13, 14]")
    rows, err = stored("cost --price 2 --accelerator H100", few)
    assert [(row["num_runs"], row["num_gpus"]) for row in rows] == [(1, 14)]
    assert "left out, the GPUs do not hold the model: 1 run\n" in err


def test_filters_that_leave_only_runs_without_a_time_say_why_these_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = BUDGET.replace("mfu = [0.4, 0.5]", "mfu = 0.5\navailable_gpus = 13")
    (tmp_path / "few.toml").write_text(few)
    database = ("--db", str(tmp_path / "warehouse.duckdb"))
    assert run(["sweep", str(tmp_path / "few.toml"), *database]) == 0
    capsys.readouterr()
    assert run(["cost", "--price", "2", "--accelerator", "H100", *database]) == 3
    assert capsys.readouterr().err == (
        "error: no run with a time passes the filters: the GPUs do not hold the model (1)\n"
        "hint: change a filter\n"
    )


@pytest.mark.long
def test_runs_that_differ_in_their_tokens_alone_are_counted_once(stored: Any) -> None:
    both = BUDGET.replace("dataset_tokens = 1.4e12", "dataset_tokens = [1.4e12, 3e12]")
    rows, _ = stored("cost --price 2 --accelerator H100", both)
    assert [(row["dataset_tokens"], row["num_runs"]) for row in rows] == [(1.4e12, 2), (3e12, 2)]
    rows, _ = stored("cost --price 2 --accelerator H100 --tokens 1e12")
    assert [(row["dataset_tokens"], row["num_runs"]) for row in rows] == [(1e12, 2)]


def test_mends_may_be_listed_in_any_order(stored: Any) -> None:
    two = 'mends = ["C1", "C2"]\n' + BUDGET
    for variant in ("C2,C1", "c2,c1"):
        rows, _ = stored(f"cost --price 2 --variant {variant}", two)
        assert {row["variant"] for row in rows} == {"C1,C2"}


def test_an_accelerator_without_a_price_of_the_year_says_of_which_it_has(ask: Any) -> None:
    _, rows, _ = ask("cost", "--model", "70B parameters", "--year", 2022)
    h100 = only(rows, accelerator="H100 SXM 80GB")
    assert (h100["lowest_cost_usd"], h100["basis"], h100["year"]) == (None, None, None)
    assert h100["price_note"].startswith("no price of 2022; known: 2023, 2024, 2025")
    assert {row["year"] for row in rows if row["lowest_cost_usd"] is not None} == {2022}


@pytest.mark.parametrize("command", ["cost", "energy"])
@pytest.mark.long
def test_figures_from_a_lower_bound_are_called_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flow.toml").write_text(FLOW)
    path = str(tmp_path / "warehouse.duckdb")
    assert run(["sweep", str(tmp_path / "flow.toml"), "--db", path]) == 0
    capsys.readouterr()
    arguments = ["--estimator", "dataflow", "--variant", "published", "--tokens", "1e12"]
    assert run([command, *arguments, "--db", path]) == 0
    assert capsys.readouterr().err.splitlines()[0].endswith("; its time is a lower bound")


def test_runs_are_filtered_by_the_length_of_their_sequences(ask: Any) -> None:
    arguments = ("cost", "--price", 2, "--tokens", "1e12")
    code, rows, _ = ask(*arguments, "--seq-len", 2048)
    assert code == 0
    assert {row["model"] for row in rows} == {"gpt3_1T"}
    assert len(rows) < len(ask(*arguments)[1])
    code, _, err = ask(*arguments, "--seq-len", 4096, json_rows=False)
    assert code == 3
    assert "`--seq-len` 4096: no such run is stored" in err
    assert "stored: 2048" in err


def test_owned_prices_of_servers_and_boards_are_distinguished() -> None:
    purchases = {"H100 SXM 80GB": "board", "A100 SXM 80GB": "server"}
    for bought, is_said in ((purchases, True), ({"H100 SXM 80GB": "board"}, False)):
        table = RunTable(("estimator", "is_lower_bound"), [], {}, purchases=bought)
        text = " ".join(_notes(table, [], {}))
        words = "owned: prices of a board for H100 SXM 80GB; of a server for A100 SXM 80GB"
        assert (words in text) is is_said


@pytest.mark.parametrize("command", ["cost", "energy"])
def test_the_least_chance_to_fit_is_a_share(ask: Any, command: str) -> None:
    code, _, err = ask(command, "--fit-probability", 95, json_rows=False)
    assert code == 3
    assert "it is a share, not a percentage: 0.95" in err
    code, rows, _ = ask(command, "--model", "gpt3_1T", "--tokens", 1e12, "--fit-probability", 0.5)
    assert code == 0
    assert rows
