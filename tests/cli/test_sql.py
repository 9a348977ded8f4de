"""`warehouse sql`, called as a user calls it; test_query.py tests the sandbox."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.shared import Command, Program, Quickstart

ENDLESS = "with recursive a(i) as (select 1 union all select i + 1 from a) select count(*) from a"
DEAF = "select levenshtein(repeat('ab', 2000000), repeat('ba', 2000000))"
"""Takes hours, in a single call of a function that looks for no interrupt."""

IMPATIENT = """\
import sys
from warehouse.cli.main import run
from warehouse.database import sandbox
sandbox._GRACE_SECONDS = 0.5
sys.exit(run(sys.argv[1:]))
"""
"""The program, which gives a query less time to heed an interrupt."""


def test_each_format_writes_the_same_rows(warehouse: Command, quickstart: Quickstart) -> None:
    query = "select 'a|b' as t, 1.5::double as x, 12345678901234567 as n, null as none"

    def written(form: str) -> tuple[int, str, str]:
        return warehouse("sql", query, "--db", quickstart.database, "--format", form)

    assert written("csv") == (0, "t,x,n,none\na|b,1.5,12345678901234567,\n", "")
    assert json.loads(written("json")[1]) == [
        {"t": "a|b", "x": 1.5, "n": 12345678901234567, "none": None}
    ]
    assert written("markdown")[1].splitlines() == [
        "| t | x | n | none |",
        "| --- | ---: | ---: | --- |",
        "| a\\|b | 1.5 | 12345678901234567 |  |",
    ]
    assert written("table")[1].splitlines() == [
        "t      x                  n  none",
        "---  ---  -----------------  ----",
        "a|b  1.5  12345678901234567  NULL",
    ]


@pytest.mark.parametrize("comment", ["-- what it shows", "--\n-- what it shows", "--what"])
def test_a_query_may_begin_with_a_comment(
    warehouse: Command, quickstart: Quickstart, comment: str
) -> None:
    query = f"{comment}\nselect 1 as x"
    done = warehouse("sql", query, "--db", quickstart.database, "--format", "csv")
    assert done == (0, "x\n1\n", "")
    code, _, err = warehouse("sql", f"{comment}\nselct 1", "--db", quickstart.database)
    assert (code, f"LINE {comment.count(chr(10)) + 2}: selct" in err) == (3, True)


@pytest.mark.long
def test_a_dash_reads_the_query_from_stdin(program: Program, quickstart: Quickstart) -> None:
    arguments = ("sql", "-", "--format", "csv", "--db", quickstart.database)
    done = program(*arguments, input="select 'é' as x -- a comment\n;\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\né\n", "")


def test_a_query_with_a_zero_byte_is_refused(
    warehouse: Command, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"select 1\0")))
    code, out, err = warehouse("sql", "-", "--db", empty_warehouse)
    assert (code, out) == (3, "")
    assert err.startswith("error: the query has the control character \\x00\n")


def test_a_query_that_is_no_text_is_refused(
    program: Callable[..., subprocess.CompletedProcess[bytes]], quickstart: Quickstart
) -> None:
    arguments = ("sql", "-", "--db", quickstart.database)
    done = program(*arguments, input=b"select '\xff'", text=False)
    assert done.returncode == 3
    assert done.stderr == b"error: the query is not UTF-8 text\n"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select * from model where", 'syntax error at or near "where"'),
        ("select nothing from model", "Candidate bindings"),
        ("from modell", 'Did you mean "model"?'),
        ("insert into model from model", "not a SELECT but: INSERT"),
        ("from read_csv('/etc/passwd')", "file system operations are disabled"),
    ],
)
def test_what_duckdb_refuses_exits_3_in_its_words_with_stdout_empty(
    warehouse: Command, quickstart: Quickstart, query: str, says: str
) -> None:
    code, out, err = warehouse("sql", query, "--db", quickstart.database)
    assert (code, out) == (3, "")
    assert err.startswith("error: ")
    assert says in err


@pytest.mark.parametrize("query", [ENDLESS, DEAF], ids=["endless", "deaf"])
@pytest.mark.long
def test_a_query_ends_at_its_time_limit_even_if_it_ignores_interrupts(
    quickstart: Quickstart, query: str
) -> None:
    arguments = ("sql", query, "--timeout", "0.2", "--db", quickstart.database)
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the query was stopped after 0.2 seconds\n"
        "hint: narrow it, or allow more with --timeout\n"
    )


@pytest.mark.parametrize(
    ("width", "clock", "more"),
    [
        (80, "monotonic", ()),
        (80, "monotonic", ("--out", "rows.csv")),
        (None, "process_time", ("--format", "csv")),
        (None, "monotonic", ("--format", "csv")),  # of a slow reader
    ],
)
def test_printing_stops_at_the_time_limit_on_a_terminal_and_in_a_pipe(
    warehouse: Command,
    quickstart: Quickstart,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    width: int | None,
    clock: str,
    more: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    clocks = {"monotonic": lambda: 0.0, "process_time": lambda: 0.0}
    clocks[clock] = iter(range(0, 1_000_000, 20)).__next__
    monkeypatch.setattr("warehouse.database.sandbox._Stopwatch.__call__", lambda _, run: run())
    monkeypatch.setattr("warehouse.cli.query.time", SimpleNamespace(**clocks))
    monkeypatch.setattr("warehouse.cli.query.terminal_width", lambda: width)
    query = ("sql", "from range(50000)", "--db", quickstart.database)
    code, out, err = warehouse(*query, *more)
    if "--out" in more or (width is None and clock == "monotonic"):
        assert (code, err) == (0, "")
        return
    assert (code, out.count("\n")) == (3, 30_002 if width else 30_001)
    assert err == (
        "error: the query was stopped after 60 seconds\n"
        "hint: printing takes long: end the query in `limit 100`, write all rows with --out FILE, "
        "or allow more with --timeout\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound a process's memory")
@pytest.mark.parametrize(
    "query",
    ["select list(range) from range(100000000)", "select len(range(1000000000))"],
    ids=["counted by DuckDB", "not counted by DuckDB"],
)
@pytest.mark.long
def test_a_query_cannot_have_more_memory_than_allowed(
    program: Program, quickstart: Quickstart, query: str
) -> None:
    done = program("sql", query, "--memory", "200MB", "--db", quickstart.database)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: the query needs more than 200MB of memory\n"
        "hint: narrow it, or allow more with --memory\n"
    )


@pytest.mark.parametrize(
    "option",
    [
        ("--memory", "lots"),
        ("--memory", "1MB"),
        ("--memory", "-2GB"),
        ("--timeout", "0"),
        ("--timeout", "-1"),
        ("--timeout", "nan"),
        ("--timeout", "soon"),
        ("--format", "xml"),
    ],
)
def test_an_impossible_option_exits_2(
    warehouse: Command, quickstart: Quickstart, option: tuple[str, ...]
) -> None:
    code, out, err = warehouse("sql", "select 1", *option, "--db", quickstart.database)
    assert (code, out) == (2, "")
    assert "error:" in err.lower()


def has_open(pid: int, file: Path) -> bool:
    """Return whether a process has a file open."""
    for opened in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in the meantime
            if opened.samefile(file):
                return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupt_ends_a_query(quickstart: Quickstart) -> None:
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "warehouse.cli.main"),
            *("sql", ENDLESS, "--db", str(quickstart.database)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not has_open(running.pid, quickstart.database):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=600)
    assert (running.returncode, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select hardware from configuration", "did you mean accelerator?"),
        ("select c.gpus from configuration as c", "did you mean num_gpus?"),
        ("select model from training_step", "other tables have `model`;"),
        (
            'select "step_second " from study',
            "did you mean step_seconds, low_step_seconds or high_step_seconds?",
        ),
    ],
)
def test_an_unknown_column_says_which_may_be_meant_and_where_to_look(
    warehouse: Command, quickstart: Quickstart, query: str, hint: str
) -> None:
    code, out, err = warehouse("sql", query, "--db", quickstart.database)
    assert (code, out) == (3, "")
    assert f"hint: {hint} `warehouse schema VIEW` lists the columns of a view\n" in err


def test_a_csv_with_texts_that_begin_as_formulas_has_a_warning(
    warehouse: Command, empty_warehouse: Path
) -> None:
    query = "select '=1+1' as a, 'plain' as b, -1.5 as c, '-5' as d"
    code, out, err = warehouse("sql", query, "--format", "csv", "--db", empty_warehouse)
    assert (code, out) == (0, "a,b,c,d\n=1+1,plain,-1.5,-5\n")
    assert err.startswith("warning: texts in `a` begin as formulas do")
    assert warehouse("sql", query, "--db", empty_warehouse)[2] == ""


def test_ids_are_texts_in_json_on_request(warehouse: Command, quickstart: Quickstart) -> None:
    query = "select cell_id, num_rows, num_rows > 0 as has_rows from cell order by all limit 1"
    asked = ("sql", query, "--json", "--db", quickstart.database)
    [exact] = json.loads(warehouse(*asked)[1])
    [text] = json.loads(warehouse(*asked, "--ids-as-text")[1])
    assert text == {**exact, "cell_id": str(exact["cell_id"])}


@pytest.mark.parametrize(
    "options", [(), ("--format", "csv"), ("--out", "rows.md"), ("--out", "a.json", "--format=csv")]
)
def test_ids_as_texts_are_refused_in_other_formats(
    warehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = warehouse("sql", "select 1", "--ids-as-text", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: `--ids-as-text` is for JSON, and the format is ")
    assert not list(tmp_path.iterdir())


def test_intervals_in_a_csv_are_no_formulas(warehouse: Command, empty_warehouse: Path) -> None:
    query = "select interval '-1 month -3 days' as a, interval '-1 second' as b"
    code, _, err = warehouse("sql", query, "--format", "csv", "--db", empty_warehouse)
    assert (code, err) == (0, "")
