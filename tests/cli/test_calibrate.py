"""`warehouse calibrate`, and its profiles in sweep, evaluate and show."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from docs.build import calibration
from estimators import registry
from tests.shared import Command, Shared, call

STUDY = """\
name = "steps"
estimator = "training_step"

[space]
num_layers = 48
hidden_size = 6144
num_heads = 64
seq_len = 2048
vocab_size = 51200
accelerator = "A100 SXM 80GB"
framework = "megatron_lm_2022"
num_gpus = 8
global_batch_size = 16
activation_recompute = "full"
tensor_parallel = [4, 8]
{more}
"""

CONFIGURATION = (
    *("num_layers=48", "hidden_size=6144", "num_heads=64", "seq_len=2048", "vocab_size=51200"),
    *("accelerator=A100 SXM 80GB", "framework=megatron_lm_2022", "tensor_parallel=8"),
    *("num_gpus=8", "global_batch_size=4", "microbatch_size=4"),
)

pytestmark = pytest.mark.usefixtures("same_fits")

SHORT = ("calibrate", "published_megatron_scaling", "--fit", "product_rate_factor")


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, shared: Shared, empty_warehouse: Path
) -> tuple[Path, tuple[int, str, str]]:
    """A database with one profile, to copy, and the output of making it."""
    request.getfixturevalue("same_fits")

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "w.duckdb")
        asked = ("calibrate", "published_megatron_recompute", "--name", "tuned", "--db", path)
        (place / "done.json").write_text(json.dumps(call(*asked)), encoding="utf-8")

    place = shared("calibrated", make)
    code, out, err = json.loads((place / "done.json").read_text(encoding="utf-8"))
    return place / "w.duckdb", (code, out, err)


@pytest.fixture
def calibrated(made: tuple[Path, tuple[int, str, str]], tmp_path: Path) -> Path:
    """A copy of that database."""
    path = tmp_path / "calibrated.duckdb"
    path.write_bytes(made[0].read_bytes())
    return path


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Path]:
    def study(more: str = "") -> Path:
        path = tmp_path / "steps.toml"
        path.write_text(STUDY.format(more=more), encoding="utf-8")
        return path

    return study


def rows_of(database: Path, query: str) -> list[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_the_report_has_the_three_errors_and_those_on_other_tables(
    made: tuple[Path, tuple[int, str, str]],
) -> None:
    _, (code, out, err) = made
    assert code == 0, err
    assert "Constants fitted to 8 rows of published_megatron_recompute" in out
    for text in ("product_rate_factor@A100 SXM 80GB", "tensor_overlap_fraction@megatron_lm_2022"):
        assert text in out
    for text in ("\nuntuned ", "\nfitted (in sample) ", "\nleft out ", "\n175B selective "):
        assert text in out
    rest = out.partition("had no part in the fit")[2]
    assert "published_megatron_scaling " in rest
    assert "published_megatron_recompute" not in rest
    assert re.search(r": \d+\.\d % of the tensor collectives cannot be hidden", err)
    assert "  lowest without one row  highest without one row  " in out
    assert "profile tuned stored; use it with --profile tuned" in err


@pytest.mark.long
def test_without_a_name_nothing_is_stored_and_no_database_is_made(
    warehouse: Command, tmp_path: Path
) -> None:
    path = tmp_path / "none.duckdb"
    code, out, err = warehouse(*SHORT, "--db", path, "--json")
    assert code == 0
    assert not path.exists()
    assert "not stored" in err
    found = json.loads(out)
    assert found["profile"] is None
    assert [one["constant"] for one in found["constants"]] == ["product_rate_factor"]
    assert [one["estimate"] for one in found["errors"]] == [
        "untuned",
        "fitted (in sample)",
        "left out",
    ]
    assert len(found["rows"]) == 10
    assert all(one["num_rows"] for one in found["others"])
    untuned, fitted, _ = (one["mean_absolute_relative_error"] for one in found["errors"])
    assert fitted < untuned


@pytest.mark.long
def test_a_name_that_is_taken_is_refused_unless_replaced(
    warehouse: Command, calibrated: Path
) -> None:
    own = (*SHORT, "--name", "tuned", "--db", calibrated)
    code, out, err = warehouse(*own)
    assert (code, out) == (3, "")
    assert "there is a profile of that name" in err
    before = rows_of(calibrated, "select reference from calibration")
    assert before == [("published_megatron_recompute",)] * 2
    assert warehouse(*own, "--replace")[0] == 0
    after = rows_of(calibrated, "select reference from calibration")
    assert after == [("published_megatron_scaling",)]
    assert rows_of(calibrated, "select count(*) from calibration_row") == [(10,)]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["nothing"], 3, "known: published_megatron_scaling"),
        (["missing.csv"], 3, "there is no such file"),
        (["published_megatron_scaling", "--replace"], 2, "`--replace` needs --name"),
        (
            ["published_megatron_scaling", "--rows", "row=1.7B"],
            3,
            "at least 2 rows are needed; given: 1",
        ),
        (["published_megatron_scaling", "--fit", "nonsense"], 3, "no constant that can be fitted"),
        (["published_training_stage"], 3, "--rows accelerator=..."),
    ],
)
def test_what_cannot_be_calibrated_is_refused_in_words(
    warehouse: Command, arguments: list[str], code: int, expected: str
) -> None:
    found, out, err = warehouse("calibrate", *arguments)
    assert (found, out) == (code, "")
    assert expected in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def own_fit(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tuple[object, ...], str]:
    """A fit of one constant to three rows of a file: the command, and its document."""
    request.getfixturevalue("same_fits")
    path = tmp_path_factory.mktemp("fit") / "own.csv"
    names = [pair.partition("=")[0] for pair in CONFIGURATION]
    values = [pair.partition("=")[2] for pair in CONFIGURATION]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "step_seconds"])
        writer.writerows([*values, seconds] for seconds in (1.09, 1.1, 1.11))
    command = ("calibrate", path, "--fit", "product_rate_factor")
    code, out, err = call(*command, "--json")
    assert code == 0, err
    return command, out


def test_an_own_file_is_a_reference(own_fit: tuple[tuple[object, ...], str]) -> None:
    found = json.loads(own_fit[1])
    assert [row["published_row"] for row in found["rows"]] == ["row 1", "row 2", "row 3"]
    assert found["rows"][1]["published_step_seconds"] == 1.1


def test_the_rows_of_a_file_do_not_count_as_published(
    own_fit: tuple[tuple[object, ...], str],
) -> None:
    _, out, _ = call(*own_fit[0])
    assert "published row" not in out
    assert ("measured", "row", "measured", "step", "s") in {
        tuple(line.split()[:5]) for line in out.splitlines()
    }


@pytest.mark.long
def test_the_output_in_the_documentation_is_what_the_commands_write() -> None:
    page = calibration.PAGE.read_text(encoding="utf-8")
    assert len(calibration.BLOCK.findall(page)) == 4
    hint = "run `make pages ARGS=calibration.md`, and read what the page says about it"
    assert calibration.with_blocks(page) == page, hint


# ---- profiles in use ----


@pytest.mark.long
def test_a_profile_changes_problems_and_results_of_a_sweep_and_the_default_does_not(
    warehouse: Command, calibrated: Path, study: Callable[..., Path]
) -> None:
    path = study()
    assert warehouse("sweep", path, "--db", calibrated)[0] == 0
    assert warehouse("sweep", path, "--db", calibrated, "--profile", "tuned")[0] == 0
    found = rows_of(
        calibrated,
        "select study.study, problem.profile, problem.problem_id, problem.product_rate_factor, "
        "problem.tensor_overlap_fraction, min(step_seconds) as fastest, count(*) as num_rows "
        "from training_step inner join cell using (cell_id) "
        "inner join problem on cell.problem_id = problem.problem_id "
        "inner join study_cell using (cell_id) inner join study using (study) "
        "group by all order by 1",
    )
    [plain, tuned] = found
    fitted = dict(rows_of(calibrated, "select constant, fitted_constant_value from calibration"))
    assert plain[:2] == ("steps", "default")
    assert tuned[:2] == ("steps tuned", "tuned")
    assert plain[2] != tuned[2]
    assert plain[3:5] == (1, 1)
    assert tuned[3:5] == (fitted["product_rate_factor"], fitted["tensor_overlap_fraction"])
    assert plain[5] != tuned[5]
    assert plain[6] == tuned[6]
    for more in ([], ["--profile", "default"], ["--profile", "tuned"]):
        code, _, err = warehouse("sweep", path, "--db", calibrated, *more)
        assert (code, "nothing to do" in err) == (0, True)


@pytest.mark.long
def test_a_study_may_name_profiles_itself_and_give_constants_of_its_own(
    warehouse: Command, calibrated: Path, study: Callable[..., Path]
) -> None:
    path = study('profile = ["default", "tuned"]\n[system]\nproduct_rate_factor = 0.7')
    assert warehouse("sweep", path, "--db", calibrated, "--profile", "tuned")[0] == 0
    assert rows_of(
        calibrated,
        "select profile, product_rate_factor, tensor_overlap_fraction < 1 from problem order by 1",
    ) == [("default", 0.7, False), ("tuned", 0.7, True)]
    assert rows_of(calibrated, "select study from study") == [("steps",)]


def test_a_dry_run_counts_the_cells_of_a_profile(
    warehouse: Command, calibrated: Path, study: Callable[..., Path]
) -> None:
    code, out, _ = warehouse(
        "sweep", study(), "--db", calibrated, "--profile", "tuned", "--dry-run"
    )
    assert (code, "steps tuned" in out) == (0, True)


@pytest.mark.parametrize("how", ["option", "study"])
def test_a_sweep_under_an_unknown_profile_leaves_no_trace(
    warehouse: Command, calibrated: Path, study: Callable[..., Path], how: str
) -> None:
    path = study('profile = "tunde"' if how == "study" else "")
    more = ["--profile", "tunde"] if how == "option" else []
    code, out, err = warehouse("sweep", path, "--db", calibrated, *more)
    assert (code, out) == (3, "")
    assert '`profile` "tunde" is not a stored profile' in err
    assert "known: default, tuned" in err
    assert rows_of(calibrated, "from study") == []


def test_a_profile_of_a_missing_database_is_unknown_and_makes_none(
    warehouse: Command, tmp_path: Path, study: Callable[..., Path]
) -> None:
    path = tmp_path / "none.duckdb"
    code, _, err = warehouse("sweep", study(), "--db", path, "--profile", "tuned")
    assert code == 3
    assert "known: default;" in err
    assert not path.exists()


def test_a_profile_that_says_nothing_of_a_system_is_refused(
    warehouse: Command, calibrated: Path, tmp_path: Path
) -> None:
    path = tmp_path / "h100.toml"
    text = STUDY.format(more="").replace("A100 SXM", "H100 SXM").replace("_lm_2022", "_core")
    path.write_text(text, encoding="utf-8")
    code, _, err = warehouse("sweep", path, "--db", calibrated, "--profile", "tuned")
    assert code == 3
    assert "has no constant for H100 SXM 80GB under megatron_core" in err
    assert "product_rate_factor@A100 SXM 80GB" in err


@pytest.mark.parametrize("command", ["sweep", "evaluate", "show"])
def test_a_profile_for_an_estimator_without_constants_is_refused(
    warehouse: Command, calibrated: Path, tiny: Path, tmp_path: Path, command: str
) -> None:
    configs = tmp_path / "configs.csv"
    configs.write_text("model,num_gpus\ngpt3,64\n")
    arguments: dict[str, list[object]] = {
        "sweep": [tiny],
        "evaluate": ["--estimator", "roofline", configs, "--out", tmp_path / "out.csv"],
        "show": ["--estimator", "roofline", "model=gpt3"],
    }
    code, out, err = warehouse(
        command, *arguments[command], "--profile", "tuned", "--db", calibrated
    )
    assert (code, out) == (3, "")
    assert "roofline has no constants to calibrate" in err


@pytest.mark.long
def test_a_plan_with_a_profile_says_that_its_accuracy_is_without_it(
    warehouse: Command, calibrated: Path, tmp_path: Path
) -> None:
    own = shutil.copy(calibrated, tmp_path / "own.duckdb")
    asked = ("--model", "gpt3_1.3B", "--accelerator", "A100", "--tokens", "1e9", "--gpus", 2)
    code, out, err = warehouse("plan", *asked, "--profile", "tuned", "--db", own)
    assert code == 0, err
    said = "with the default constants, not those of tuned"
    assert said in " ".join(out.split())


def shown(warehouse: Command, *arguments: object) -> Any:
    code, out, err = warehouse(
        "show", "--estimator", "training_step", *CONFIGURATION, *arguments, "--json"
    )
    assert code == 0, err
    return json.loads(out)


@pytest.mark.long
def test_show_takes_a_profile_by_option_or_by_key(warehouse: Command, calibrated: Path) -> None:
    plain = shown(warehouse)
    option = shown(warehouse, "--profile", "tuned", "--db", calibrated)
    key = shown(warehouse, "profile=tuned", "--db", calibrated)
    assert option == key
    assert option["inputs"]["profile"] == "tuned"
    assert option["results"]["step_seconds"] != plain["results"]["step_seconds"]
    assert (
        shown(warehouse, "--profile", "default", "--db", calibrated)["results"]
        == (plain["results"])
    )
    own = shown(warehouse, "product_rate_factor=0.7", "--profile", "tuned", "--db", calibrated)
    assert own["inputs"]["product_rate_factor"] == 0.7
    fitted = dict(rows_of(calibrated, "select constant, fitted_constant_value from calibration"))
    assert own["inputs"]["tensor_overlap_fraction"] == fitted["tensor_overlap_fraction"]


@pytest.mark.long
def test_evaluate_takes_a_profile_where_a_row_names_none(
    warehouse: Command, calibrated: Path, tmp_path: Path
) -> None:
    names = [pair.partition("=")[0] for pair in CONFIGURATION]
    values = [pair.partition("=")[2] for pair in CONFIGURATION]
    configs, out = tmp_path / "configs.csv", tmp_path / "out.csv"
    with configs.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "profile"])
        writer.writerows([*values, profile] for profile in ("", "default", "tuned"))
    arguments = (
        "evaluate",
        "--estimator",
        "training_step",
        configs,
        "--out",
        out,
        "--db",
        calibrated,
    )

    def seconds(*more: object) -> list[float]:
        code, _, err = warehouse(*arguments, *more)
        assert code == 0, err
        with out.open(newline="") as file:
            return [float(row["step_seconds"]) for row in csv.DictReader(file)]

    plain, default, tuned = seconds()
    assert plain == default != tuned
    assert seconds("--profile", "tuned") == [tuned, default, tuned]
    assert seconds("--profile", "tuned", "--into-db") == [tuned, default, tuned]
    assert rows_of(calibrated, "select profile from problem order by 1") == [
        ("default",),
        ("tuned",),
    ]
    [(name,)] = rows_of(calibrated, "select study from study")
    assert name.endswith(" tuned")


@pytest.mark.long
def test_stored_rows_of_a_profile_are_evaluated_to_themselves(
    warehouse: Command, calibrated: Path, study: Callable[..., Path], tmp_path: Path
) -> None:
    assert warehouse("sweep", study(), "--db", calibrated, "--profile", "tuned")[0] == 0
    query = "from current_training_step order by all"
    code, out, _ = warehouse("sql", query, "--format", "csv", "--db", calibrated)
    assert code == 0
    stored, again = tmp_path / "stored.csv", tmp_path / "again.csv"
    stored.write_text(out)
    code, _, err = warehouse(
        "evaluate", "--estimator", "training_step", stored, "--out", again, "--db", calibrated
    )
    assert code == 0, err
    with stored.open(newline="") as one, again.open(newline="") as other:
        before = [float(row["step_seconds"]) for row in csv.DictReader(one)]
        after = [float(row["step_seconds"]) for row in csv.DictReader(other)]
    assert after == pytest.approx(before, rel=1e-12)


@pytest.mark.usefixtures("toy")
def test_estimators_without_constants_are_refused_with_those_that_have_some(
    tmp_path: Path,
) -> None:
    for estimator in registry.all_estimators():
        if estimator.constants.names:
            continue
        database = tmp_path / "none.duckdb"
        options = ("--estimator", estimator.name, "--name", "mine", "--db", database)
        code, out, err = call(*SHORT, *options)
        assert (code, out) == (2, "")
        assert f"`--estimator` {estimator.name} has no constants to calibrate" in err
        assert "hint: use training_step\n" in err
        assert not database.exists()


@pytest.mark.long
def test_the_same_call_gives_the_same_figures(
    warehouse: Command, own_fit: tuple[tuple[object, ...], str], fits: dict[object, Any]
) -> None:
    """Once with the default estimator named."""
    command, document = own_fit
    fits.clear()
    done = warehouse(*command, "--json", "--estimator", "training_step")
    assert done[:2] == (0, document)


@pytest.mark.long
def test_a_calibration_is_written_to_a_file_in_each_format(
    warehouse: Command, tmp_path: Path, own_fit: tuple[tuple[object, ...], str]
) -> None:
    command, printed = own_fit
    for ending in ("csv", "md"):
        out = tmp_path / f"fit.{ending}"
        code, said, err = warehouse(*command, "--out", out)
        assert (code, said) == (0, ""), err
    document = json.loads(printed)
    [constant] = csv.DictReader((tmp_path / "fit.csv").read_text().splitlines())
    expected = document["constants"][0]
    assert constant["step_constant"] == "product_rate_factor@A100 SXM 80GB"
    assert float(constant["fitted_constant_value"]) == expected["fitted_constant_value"]
    written = (tmp_path / "fit.md").read_text()
    assert "\n## Constants fitted to 3 rows of " in written
    assert "\n## Row by row\n" in written
