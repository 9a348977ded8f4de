"""What all commands have in common: help, streams, exit codes, start-up time.

tests/test_wheel.py runs the example of each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from estimators.registry import ESTIMATORS
from tests.shared import Command, Program, Quickstart
from warehouse import __version__
from warehouse.cli.commands import COMMANDS, FIRST, GROUPS
from warehouse.cli.options import DEFAULT_DATABASE
from warehouse.database.stamp import reference_version
from warehouse.errors import CheckError, DatabaseError, InputError, UsageError

WITHOUT_DATABASE: set[str] = set()
EXAMPLES = {entry.name: entry.example for entry in COMMANDS}


def test_version_is_that_of_the_package(warehouse: Command) -> None:
    said = f"warehouse {__version__}, reference data {reference_version()}\n"
    assert warehouse("--version") == (0, said, "")


def test_help_lists_every_command_with_a_whole_sentence(warehouse: Command) -> None:
    code, out, err = warehouse("--help")
    assert (code, err) == (0, "")
    lines = out.partition("Commands:")[2].splitlines()
    listed = {line.split()[0]: line for line in lines if re.match(r"  \w", line)}
    assert list(listed)[: len(EXAMPLES)] == list(EXAMPLES)
    assert all(listed[name].endswith(".") for name in EXAMPLES)
    assert not any(listed[name].endswith("...") for name in EXAMPLES)


def test_the_program_alone_shows_six_commands_by_task_and_the_rest_in_groups(
    warehouse: Command,
) -> None:
    out = "".join(warehouse()[1:])
    lines = out.partition("\nCommands:\n")[2].splitlines()
    first = lines[: lines.index("")]
    assert [line.split()[0] for line in first] == list(FIRST)
    assert all(line.endswith(".") for line in first)
    assert FIRST == ("plan", "why", "rank", "measure", "report", "sql")
    grouped = [name for group in GROUPS.values() for name in group]
    assert sorted([*FIRST, *grouped]) == sorted(EXAMPLES)
    for name, group in GROUPS.items():
        assert re.search(rf"^  {name} +{', '.join(group)}$", out, re.MULTILINE)


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
    code, out, err = warehouse(
        "evaluate", "--estimator", "nonsense", tmp_path / "a.csv", "--out", "b.csv"
    )
    assert (code, out) == (3, "")
    assert {"roofline", "training_step"} <= set(ESTIMATORS)
    known = ", ".join(ESTIMATORS)
    assert err == f'error: `estimator` "nonsense" is not known\nhint: known: {known}\n'


class PanicError(BaseException):
    """An error that is no Exception, as those that Rust raises."""


FAULTS = (ZeroDivisionError("by zero"), MemoryError(), RecursionError("too deep"), PanicError("oh"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[BaseException], Path]:
    """Have `warehouse init` raise an error; return the folder of temporary files."""

    def failing(error: BaseException) -> Path:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr("warehouse.database.new_file.create_missing", fail)
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        return tmp_path / "temporary"

    return failing


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_an_unforeseen_error_is_a_sentence_and_a_file_of_details(
    warehouse: Command, failing: Callable[[BaseException], Path], error: BaseException
) -> None:
    place = failing(error)
    code, out, err = warehouse("init")
    [file] = place.iterdir()
    assert (code, out) == (70, "")
    first, hint = err.splitlines()
    assert first.startswith("error: an unforeseen fault of the program: ")
    assert type(error).__name__ in first
    assert str(error) in first
    assert str(file) in hint
    details = file.read_text("utf-8")
    assert details.startswith(f"warehouse {__version__}, Python ")
    assert "['init']" in details
    assert "Traceback (most recent call last):" in details


@pytest.mark.parametrize("way", ["option", "variable"])
def test_debug_shows_the_traceback_of_an_unforeseen_error(
    warehouse: Command,
    failing: Callable[[BaseException], Path],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    place = failing(ZeroDivisionError("by zero"))
    if way == "variable":
        monkeypatch.setenv("WAREHOUSE_DEBUG", "1")
    code, out, err = warehouse(*(["--debug"] if way == "option" else []), "init")
    assert (code, out) == (70, "")
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1].endswith("of the program: ZeroDivisionError: by zero")
    assert not list(place.iterdir())


def test_without_a_folder_of_temporary_files_the_sentence_names_the_option(
    warehouse: Command, failing: Callable[[BaseException], Path]
) -> None:
    failing(ZeroDivisionError("by zero")).rmdir()
    code, _, err = warehouse("init")
    assert (code, err.count("\n")) == (70, 2)
    assert "warehouse --debug" in err


def test_a_long_error_is_shortened(
    warehouse: Command, failing: Callable[[BaseException], Path]
) -> None:
    failing(ZeroDivisionError("so long " * 10_000))
    code, _, err = warehouse("init")
    assert (code, len(err) < 1000) == (70, True)


def test_an_interrupt_exits_130_with_a_word(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warehouse.database.new_file.create_missing", interrupted)
    assert warehouse("init") == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("query", "reader", "read"),
    [("from range(300000)", "head -n 2", "range\n0\n"), ("select 1", "true", "")],
)
def test_a_reader_that_goes_away_ends_the_program_in_silence(
    quickstart: Quickstart, query: str, reader: str, read: str
) -> None:
    """The exit code is that of a program which SIGPIPE ends."""
    command = f'"{sys.executable}" -m warehouse sql --db "{quickstart.database}" --format csv'
    done = subprocess.run(
        [
            *("/bin/bash", "-c"),
            f"{command} '{query}' | {reader}; echo ${{PIPESTATUS[0]}} >&2",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (read, "141\n")


def test_a_message_without_a_reader_changes_no_exit_code(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m warehouse status --db none.duckdb'
    done = subprocess.run(
        ["/bin/bash", "-c", f"{command} 2>&1 | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_a_usage_error_without_a_reader_ends_in_silence() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "warehouse", "nonsense"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=writer, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 141


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


@pytest.mark.parametrize(
    ("closed", "code", "err"),
    [
        ("<&-", 3, "error: the query is empty\nhint: give one SELECT; FROM, WITH, VALUES, "),
        ("2>&-", 3, ""),
        ("<&- >&- 2>&-", 3, ""),
        ("2>/dev/full", 3, ""),
    ],
)
def test_closed_streams_lead_to_no_traceback(
    quickstart: Quickstart, closed: str, code: int, err: str
) -> None:
    command = f'"{sys.executable}" -m warehouse sql - --db "{quickstart.database}"'
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {closed}"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(err)
    assert "Traceback" not in done.stderr


LATIN = {"PYTHONIOENCODING": "latin-1"}
BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(
    ("environment", "form", "printed"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "csv", rb"\u20ac,\u00e9"),
        ({"PYTHONIOENCODING": "ascii"}, "json", rb'{"x": "\u20ac", "y": "\u00e9"}'),
        ({"PYTHONIOENCODING": "ascii:replace"}, "csv", b"?,?"),
        (LATIN, "csv", b"\\u20ac,\xe9"),
        (BARE, "csv", rb"\u20ac,\u00e9"),
        ({"PYTHONIOENCODING": "utf-8"}, "csv", "€,é".encode()),
    ],
    ids=repr,
)
def test_a_character_that_the_encoding_lacks_is_printed_with_its_number(
    quickstart: Quickstart, environment: dict[str, str], form: str, printed: bytes
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "warehouse", "sql", "-"),
            *("--format", form, "--db", str(quickstart.database)),
        ],
        input="select '€' as x, 'é' as y".encode(),
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed in done.stdout.splitlines()


@pytest.mark.parametrize(
    "more",
    [("status",), ("status", "--db", "some.duckdb"), ("sweep", "x"), ("config",), ("schema",)],
)
def test_a_removed_working_directory_is_named(tmp_path: Path, more: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'cd "{gone}"; rmdir "{gone}"; "{sys.executable}" -m warehouse {" ".join(more)}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the working directory cannot be found: No such file or directory\n"
        "hint: it was removed: change to one that exists\n"
    )


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
