"""What all commands have in common: help, streams, exit codes, start-up time.

tests/test_wheel.py runs the example of each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from estimators.registry import ESTIMATORS
from tests.shared import Command, Program, Quickstart
from warehouse import __version__
from warehouse.cli.commands import COMMANDS
from warehouse.cli.options import DEFAULT_DATABASE
from warehouse.errors import CheckError, DatabaseError, InputError, UsageError

WITHOUT_DATABASE: set[str] = set()
EXAMPLES = {entry.name: entry.example for entry in COMMANDS}


def test_version_is_that_of_the_package(warehouse: Command) -> None:
    assert warehouse("--version") == (0, f"warehouse {__version__}\n", "")


def test_help_lists_every_command_with_a_whole_sentence(warehouse: Command) -> None:
    code, out, err = warehouse("--help")
    assert (code, err) == (0, "")
    lines = out.partition("Commands:")[2].splitlines()
    listed = {line.split()[0]: line for line in lines if re.match(r"  \w", line)}
    assert list(listed)[: len(EXAMPLES)] == list(EXAMPLES)
    assert all(listed[name].endswith(".") for name in EXAMPLES)
    assert not any(listed[name].endswith("...") for name in EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_of_a_command_ends_in_its_example_and_names_the_database(
    warehouse: Command, name: str
) -> None:
    code, out, _ = warehouse(name, "--help")
    assert code == 0
    example = [line.strip() for line in out.partition("Example:")[2].strip().splitlines()]
    assert example == EXAMPLES[name].splitlines()
    has_database = name not in WITHOUT_DATABASE
    assert ("--db" in out) == has_database
    assert ("WAREHOUSE_DB" in out) == has_database
    assert (str(DEFAULT_DATABASE) in " ".join(out.split())) == has_database


def test_the_example_of_quickstart_is_what_the_tests_of_the_whole_grid_run() -> None:
    assert EXAMPLES["quickstart"] == "warehouse quickstart"


def test_the_examples_of_validate_and_calibrate_are_what_their_own_tests_run() -> None:
    assert EXAMPLES["validate"] == "warehouse validate"
    calibrate = "warehouse calibrate published_megatron_recompute --name megatron_2022"
    assert EXAMPLES["calibrate"] == calibrate


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["rank", "--nonsense"], ["rank", "--format", "xml"], ["sql"], []]
)
def test_wrong_usage_exits_2_with_stdout_empty(program: Program, arguments: list[str]) -> None:
    done = program(*arguments)
    assert done.returncode == 2
    assert "Usage:" in done.stdout + done.stderr
    assert not arguments or not done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rank", "--top", "0"), "`--top` 0 must be at least 1"),
        (("rank", "--num-gpus", "1.5"), "`--num-gpus` 1.5 is not a whole number\nhint: write it"),
        (("cost", "--tokens", "many"), "`--tokens` many is not a number\nhint: write it as 15e12"),
        (("rank", "--json", "--format", "csv"), "`--json` contradicts `--format` csv\nhint: give"),
        (("status", "--out", "rows.xlsx"), "`--out` rows.xlsx does not say which format to write"),
    ],
)
def test_a_wrong_value_of_an_option_exits_2_and_is_named(
    warehouse: Command, arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = warehouse(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}")


@pytest.mark.parametrize("command", ["rank", "validate", "status", "sql"])
def test_a_missing_database_exits_5_and_says_how_to_make_one(
    warehouse: Command, tmp_path: Path, command: str
) -> None:
    query = ["select 1"] if command == "sql" else []
    code, out, err = warehouse(command, *query, "--db", tmp_path / "none.duckdb")
    assert (code, out) == (5, "")
    assert err.startswith(f"error: {tmp_path}/none.duckdb: there is no such database\nhint: ")
    assert "warehouse quickstart" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["init", "rank", "sql", "sweep", "drop", "quickstart"])
def test_a_file_that_is_no_database_exits_5_and_is_left_alone(
    warehouse: Command, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and dear to its owner")
    argument = {"sql": ["select 1"], "sweep": ["megatron"], "drop": ["megatron"]}.get(command, [])
    code, out, err = warehouse(command, *argument, "--db", path)
    assert (code, out) == (5, "")
    assert "is not a DuckDB database" in err
    assert path.read_text() == "not a database, and dear to its owner"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("wrong", "right"), 2),
        (InputError("wrong", "right"), 3),
        (CheckError("wrong", "right"), 4),
        (DatabaseError("wrong", "right"), 5),
        (OSError(28, "wrong\nhint: right"), 1),
    ],
)
def test_an_error_becomes_its_message_and_exit_code(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("warehouse.database.new_file.create_missing", fail)
    assert warehouse("init") == (code, "", "error: wrong\nhint: right\n")


def test_an_estimators_refusal_exits_3(warehouse: Command, tmp_path: Path) -> None:
    code, out, err = warehouse("evaluate", "nonsense", tmp_path / "a.csv", "--out", "b.csv")
    assert (code, out) == (3, "")
    assert {"roofline", "training_step"} <= set(ESTIMATORS)
    known = ", ".join(ESTIMATORS)
    assert err == f'error: `estimator` "nonsense" is not known\nhint: known: {known}\n'


def test_a_fault_of_the_program_is_not_hidden(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("warehouse.database.new_file.create_missing", fail)
    with pytest.raises(ZeroDivisionError):
        warehouse("init")


def test_an_interrupt_exits_130_with_a_word(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warehouse.database.new_file.create_missing", interrupted)
    assert warehouse("init") == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error(quickstart: Quickstart) -> None:
    query = (
        f'"{sys.executable}" -m warehouse.cli.main sql --db "{quickstart.database}" --format csv'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"{query} 'from range(300000)' | head -n 2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("range\n0\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("rows", [1, 300_000])
def test_a_full_disk_under_stdout_is_reported(
    program: Program, quickstart: Quickstart, rows: int
) -> None:
    query = f"from range({rows})"
    with Path("/dev/full").open("w") as full:
        done = program("sql", query, "--db", quickstart.database, stdout=full, stderr=-1)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_a_closed_stdout_is_no_error_and_its_number_goes_to_no_file(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import sys
from warehouse.cli import main

def run():
    sys.stdout.write("lost")
    with open(__file__) as file:
        sys.stderr.write(f"{file.fileno() > 2}")
    return 0

main.run = run
main.main()
"""
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" "{program}" >&-'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "True")


def test_the_database_may_be_named_by_the_environment(
    warehouse: Command, swept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAREHOUSE_DB", str(swept))
    assert warehouse("sql", "select 7 as x", "--format", "csv") == (0, "x\n7\n", "")
    other = shutil.copyfile(swept, tmp_path / "other.duckdb")
    monkeypatch.setenv("WAREHOUSE_DB", str(tmp_path / "none.duckdb"))
    assert warehouse("sql", "select 7 as x", "--format", "csv", "--db", other)[0] == 0


@pytest.mark.parametrize("thread", ["", "threading.Timer(0.1, print, ['of a thread']).start()"])
def test_a_program_ends_with_the_code_of_its_command_and_loses_nothing(thread: str) -> None:
    code = f"""if True:
        import atexit, sys, threading
        from warehouse.cli.main import main
        atexit.register(print, "at the end")
        {thread}
        sys.argv = ["warehouse", "nonsense"]
        print("before")
        main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.split("\n") == [
        "before",
        *(["of a thread"] if thread else []),
        "at the end",
        "",
    ]
    assert "nonsense" in done.stderr
