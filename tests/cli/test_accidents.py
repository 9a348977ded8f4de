"""Full disks, ^C, unreadable and damaged files: message and exit code of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import duckdb
import pytest

from tests.shared import Command, Program
from warehouse.database.connection import open_for_write
from warehouse.database.facts import folder_of

pytestmark = pytest.mark.long


@pytest.fixture
def on_a_full_disk(program: Program) -> Program:
    """Run a command that may not make a file larger than a number of bytes."""
    resource = pytest.importorskip("resource")

    def on_a_full_disk(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        return program(*arguments, preexec_fn=limit)

    return on_a_full_disk


def is_reported_as_full(done: subprocess.CompletedProcess[str], database: Path) -> bool:
    return (done.returncode, done.stdout) == (5, "") and done.stderr in {
        f"error: {path}: there is no space left for it\n"
        "hint: raise the largest size of a file (`ulimit -f`) and run the same command again: "
        "committed rows stay\n"
        for path in (database, folder_of(database))
    }


def test_a_disk_that_fills_up_under_a_sweep_exits_5_and_the_sweep_can_be_resumed(
    warehouse: Command, on_a_full_disk: Program, database: Path
) -> None:
    open_for_write(database).close()
    size = database.stat().st_size + 1_000_000
    done = on_a_full_disk(size, "sweep", "gpt3_1T_1d", "--db", database)
    assert is_reported_as_full(done, database), done.stderr
    assert warehouse("sweep", "gpt3_1T_1d", "--db", database)[0] == 0


@pytest.mark.parametrize("command", [["sweep", "gpt3_1T_1d", "--force"], ["drop", "gpt3_1T_1d"]])
def test_a_full_disk_exits_5_and_loses_nothing(
    on_a_full_disk: Program, warehouse: Command, swept: Path, command: list[str]
) -> None:
    query = ("sql", "select count(*), sum(step_seconds) from roofline", "--db", swept)
    before = warehouse(*query)
    done = on_a_full_disk(8192, *command, "--db", swept)
    assert is_reported_as_full(done, swept), done.stderr
    assert warehouse(*query) == before


def test_what_duckdb_raises_anywhere_exits_5_and_names_the_file(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    def fail(*_: object) -> None:
        raise duckdb.FatalException("FATAL Error: Failed to create checkpoint\nand a long trace")

    monkeypatch.setattr("warehouse.database.new_file.create_missing", fail)
    code, out, err = warehouse("init", "--db", database)
    assert (code, out) == (5, "")
    said = f"error: {database}: DuckDB failed: FATAL Error: Failed to create checkpoint\nhint: "
    assert err.startswith(said)


@pytest.mark.parametrize(
    ("number", "exit_code", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_stops_a_sweep_which_leaves_nothing_but_the_database(
    database: Path, number: int, exit_code: int, said: str
) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "warehouse.cli.main", "sweep", "paper_grid", "--db", str(database)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    progress = Path(f"{database}.progress.json")
    until = time.monotonic() + 600
    while not progress.exists() and time.monotonic() < until:
        time.sleep(0.01)
    running.send_signal(number)
    out, err = running.communicate(timeout=600)
    assert (running.returncode, out) == (exit_code, ""), err
    said_first, _, rest = err.partition("\n")
    assert said_first.startswith("paper_grid: 9,183,444 rows of 702 cells to evaluate and store")
    assert rest == f"paper_grid: stopped; stored rows stay, the same command resumes\n{said}\n"
    assert {path.name for path in database.parent.iterdir()} <= {
        *(database.name, f"{database.name}.wal", folder_of(database).name)
    }


def stopped_by(number: int) -> Callable[..., None]:
    """Return a function that a signal stops as it does DuckDB, which raises its own error."""

    def stopped(*_: object, **__: Any) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(1)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    return stopped


@pytest.mark.parametrize(
    ("number", "exit_code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "the terminal was closed"),
    ],
)
def test_a_signal_that_duckdb_turned_into_its_own_error_stops_a_sweep(
    warehouse: Command,
    tiny: Path,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    exit_code: int,
    said: str,
) -> None:
    monkeypatch.setattr("warehouse.sweep.runner.run_study", stopped_by(number))
    # the process that runs the tests may ignore some, as nohup does
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)
    try:
        code, out, err = warehouse("sweep", tiny, "--db", database)
        assert signal.getsignal(number) is default
    finally:
        signal.signal(number, before)
    assert (code, out) == (exit_code, "")
    assert err.startswith("tiny: stopped; stored rows stay")
    assert err.endswith(f"\n{said}\n")


def test_a_signal_that_the_caller_ignores_stays_ignored(
    warehouse: Command, tiny: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nohup warehouse sweep` goes on when its terminal is closed."""
    monkeypatch.setattr("warehouse.sweep.runner.run_study", stopped_by(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code, _, err = warehouse("--debug", "sweep", tiny, "--db", database)
        assert (code, "AttributeError" in err) == (70, True)  # it went on, and made no report
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_slow_check_can_be_interrupted(
    warehouse: Command, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.cli.validate.run_checks", stopped_by(signal.SIGINT))
    assert warehouse("validate", "--db", empty_warehouse) == (130, "", "interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def nothing_readable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have every file refuse to be read, as to another user; root may read all files."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> IO[Any]:
        if path.suffix == ".duckdb" or path.name == "in.csv":
            raise PermissionError(13, "Permission denied", str(path))
        file: IO[Any] = opened(path, *arguments, **options)
        return file

    def refuse_stored() -> None:
        monkeypatch.setattr(Path, "open", refuse)

    return refuse_stored


@pytest.mark.parametrize("command", [["status"], ["rank"], ["sql", "select 1"], ["drop", "a"]])
def test_a_database_that_may_not_be_read_exits_5(
    warehouse: Command, swept: Path, nothing_readable: Callable[[], None], command: list[str]
) -> None:
    nothing_readable()
    code, out, err = warehouse(*command, "--db", swept)
    assert (code, out) == (5, "")
    assert err.startswith(f"error: {swept}: cannot be opened: Permission denied\nhint: ")


def test_configurations_that_may_not_be_read_exit_3(
    warehouse: Command, tmp_path: Path, nothing_readable: Callable[[], None]
) -> None:
    configs = tmp_path / "in.csv"
    configs.write_text("model\ngpt3\n")
    nothing_readable()
    code, out, err = warehouse(
        "evaluate", "--estimator", "roofline", configs, "--out", tmp_path / "out.csv"
    )
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {configs}: cannot be read: Permission denied")


def test_a_database_with_bad_blocks_exits_5_in_every_command(program: Program, swept: Path) -> None:
    content = bytearray(swept.read_bytes())
    with duckdb.connect(str(swept), read_only=True) as connection:
        blocks = connection.execute(
            " union ".join(
                f"select block_id from pragma_storage_info('{table}') where block_id >= 0"
                for table in ("roofline", "leading_row")
            )
        ).fetchall()
    assert blocks
    for (block,) in blocks:
        start = 3 * 4096 + block * 262_144 + 4096
        content[start : start + 1024] = b"\xa5" * 1024
    swept.write_bytes(content)
    query = "select count(*), sum(step_seconds) from roofline"
    for command in (["rank"], ["validate"], ["sql", query]):
        done = program(*command, "--db", swept)
        assert done.returncode == 5, (command, done.stderr)
        assert f"error: {swept}: " in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        "delete from warehouse_meta where key = 'schema_version'",
        "update warehouse_meta set value = 'x' where key = 'schema_version'",
        "update warehouse_meta set value = null where key = 'schema_version'",
        "alter table warehouse_meta rename key to name",
    ],
)
def test_a_damaged_table_of_versions_exits_5(
    warehouse: Command, tiny_database: Path, change: str
) -> None:
    with duckdb.connect(str(tiny_database)) as connection:
        connection.execute(change)
    for command in (["status"], ["init"]):
        code, out, err = warehouse(*command, "--db", tiny_database)
        assert (code, out) == (5, "")
        assert err.startswith(f"error: {tiny_database}: ")


def test_files_of_one_name_in_two_directories_are_two_studies(
    warehouse: Command, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = "model,accelerator,nvlink_size,num_gpus,global_batch_size\ngpt3,H200,8,64,{}\n"
    for name, batch in (("a", 64), ("b", 128)):
        Path(name).mkdir()
        Path(name, "c.csv").write_text(row.format(batch))
        arguments = (f"{name}/c.csv", "--out", "out.csv", "--into-db", "--db", database)
        assert warehouse("evaluate", "--estimator", "roofline", *arguments)[0] == 0
    with duckdb.connect(str(database), read_only=True) as connection:
        studies = connection.execute("select study, num_cells from study order by 1").fetchall()
    assert studies == [("evaluate a/c.csv corrected", 1), ("evaluate b/c.csv corrected", 1)]
