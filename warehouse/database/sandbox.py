"""Runs one untrusted SELECT: read-only, without files or network, within limits.

DuckDB's settings are not enough. A function that builds one huge list takes memory that DuckDB does
not count, and a function that works long on a single value ignores interrupts. A program that runs
only this query can therefore also limit its process.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from warehouse.database.connection import open_for_read
from warehouse.database.failures import database_error
from warehouse.database.recast import TEXTS, excel_frame, readable, recast
from warehouse.database.sql_text import literal
from warehouse.errors import InputError, UsageError, WarehouseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars

    Block = list[tuple[Any, ...]]

_Value = TypeVar("_Value")

_BLOCK_ROWS = 10_000
_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')
_GRACE_SECONDS = 5.0
_HEADROOM_BYTES = 1 << 30  # stacks of threads, the interpreter, rows that are being printed
_FRAGMENTATION = 2  # a spilling sort maps up to half as much memory again as DuckDB counts
_INTERRUPTED = 128 + signal.SIGINT  # the exit code of this signal in shells
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

_SANDBOX = (
    "set enable_external_access = false",
    "set python_enable_replacements = false",  # a name must not mean a variable of this process
    "set max_temp_directory_size = '8GB'",
)
_DAMAGE = (
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.IOException,  # a query opens no other file: the fault is in the database
    duckdb.SerializationException,
)
_FEWER_ROWS = (
    "printing takes long: end the query in `limit 100`, write all rows with --out FILE, or allow "
    "more with --timeout"
)
_CORRUPT = "Corrupt database file"
_ONE_SELECT = "give one SELECT; FROM, WITH, VALUES, DESCRIBE, SUMMARIZE and SHOW TABLES count too"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a query may run inside DuckDB, and how much memory it may take."""

    seconds: float = 60.0
    memory: str = "2GB"

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 86_400:
            raise UsageError(
                f"a time limit of {self.seconds:g} seconds cannot be kept",
                "give more than 0 and at most 86400 seconds, such as --timeout 60",
            )
        if not 16e6 <= self.memory_bytes <= 1e15:
            raise UsageError(
                f"a memory limit of {self.memory} cannot be kept",
                "give at least 16MB, such as --memory 2GB",
            )

    @property
    def memory_bytes(self) -> int:
        """The memory limit as a number."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", self.memory.strip().upper())
        if match is None:
            raise UsageError(
                f'"{self.memory}" is not an amount of memory',
                "give a number and a unit, such as 500MB or 2GB",
            )
        number, unit, binary = match.groups()
        return int(float(number) * (1024 if binary else 1000) ** _UNITS[unit])


@dataclass(frozen=True, slots=True)
class Result:
    """A query's result: names, DuckDB types, and blocks of rows that can be read once."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    blocks: Iterator[Block]

    def rows(self) -> Block:
        """Return all rows that were not read yet."""
        return [row for block in self.blocks for row in block]


@dataclass(frozen=True, slots=True)
class Copied:
    """Rows that were written to a file."""

    rows: int
    changed: Mapping[str, str]  # columns that are written in another type -> that type
    texts: Sequence[int]  # indices of the columns that may hold texts


@contextmanager
def select(
    database: Path,
    sql: str,
    limits: Limits | None = None,
    *,
    bound_process: bool = False,
    printing: Callable[[], float] | None = None,
) -> Iterator[Result]:
    """Run one SELECT in a sandbox and yield its result.

    Parameters
    ----------
    bound_process
        Limit the whole process, for a program that only runs this query. On Linux it can use twice
        the memory limit and 1 GiB. A query that ignores the interrupt ends the process a few
        seconds after its time limit, with the error's message and exit code.
    printing
        A clock [s] of the time that the reader takes for each block. The time of all blocks except
        the last counts as well: a terminal prints a million rows in half a minute.
    """
    limits = limits or Limits()
    bounded = f"set memory_limit = '{limits.memory_bytes}B'"
    with _opened(database, sql, limits, bounded, bound_process=bound_process) as sandbox:
        connection, statement, timed = sandbox
        relation = timed(lambda: connection.sql(statement))  # its types, without its rows
        columns, types = relation.columns, relation.types
        timed(lambda: connection.execute(readable(statement, columns, types)))
        # Fetched before the result is returned: most failing queries fail here.
        block = timed(lambda: connection.fetchmany(_BLOCK_ROWS))
        blocks = _blocks(connection, block, timed, printing)
        yield Result(tuple(columns), tuple(map(str, types)), blocks)


def copy_to(
    database: Path,
    sql: str,
    target: Path,
    options: str,
    limits: Limits,
    casts: Sequence[Mapping[str, str]] = ({},),
) -> Copied:
    """Let DuckDB write the rows of one SELECT to a file.

    The query runs in the sandbox, in which DuckDB may open `target` and no other file. Memory has
    DuckDB's own limit. A file that cannot be written is a `duckdb.IOException`.

    Parameters
    ----------
    options
        Those of COPY, such as ``format csv, header``.
    casts
        Other types of columns, as `recast` takes them.
    """
    path = str(target.absolute())
    allowed = f"set allowed_paths = [{literal(path)}]"
    with _opened(database, sql, limits, allowed, target=path) as sandbox:
        connection, statement, timed = sandbox
        relation = timed(lambda: connection.sql(statement))
        columns, types = relation.columns, relation.types
        texts = [index for index, kind in enumerate(types) if kind.id in TEXTS]

        def copied(query: str, changed: Mapping[str, str]) -> Copied:
            copy = f"copy (from query({literal(query)})) to {literal(path)} ({options})"
            [(rows,)] = timed(lambda: connection.execute(copy).fetchall())
            return Copied(int(rows), changed, texts)

        def holds(query: str) -> bool:
            # A hash of each value: without a use of them, DuckDB leaves out the cast.
            check = f"select max(hash(x)) from query({literal(query)})"
            try:
                timed(lambda: connection.execute(check).fetchall())
            except duckdb.ConversionException:
                return False
            return True

        with suppress(duckdb.ConversionException):  # a number is too large
            return copied(*recast(statement, columns, types, casts))
        return copied(*recast(statement, columns, types, casts, holds))


def sheet_of(
    database: Path, sql: str, limits: Limits, most_rows: int
) -> tuple[polars.DataFrame, list[str]]:
    """Return the first rows of one SELECT as a frame for Excel, and the columns that are texts."""
    with _opened(database, sql, limits) as (connection, statement, timed):
        return timed(lambda: excel_frame(connection.sql(statement).limit(most_rows)))


@contextmanager
def _opened(
    database: Path,
    sql: str,
    limits: Limits,
    *settings: str,
    target: str = "",
    bound_process: bool = False,
) -> Iterator[tuple[duckdb.DuckDBPyConnection, str, _Stopwatch]]:
    """Yield a locked connection, the SELECT, and what runs parts of it within the limits."""
    bytes_more = _FRAGMENTATION * limits.memory_bytes + _HEADROOM_BYTES
    bounded = _bounded_memory(bytes_more) if bound_process else nullcontext()
    with open_for_read(database) as connection, explained(database, limits, target), bounded:
        for setting in settings:
            connection.execute(setting)
        statement = sandboxed(connection, sql)
        connection.execute("set lock_configuration = true")
        with _Stopwatch(connection, limits, bound_process=bound_process) as timed:
            yield connection, statement, timed


def sandboxed(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Close files and the network to a connection; return `sql` if it is exactly one SELECT.

    All connections of this process to the same database lose them, until the last one is closed.
    """
    for setting in _SANDBOX:
        connection.execute(setting)
    statements = connection.extract_statements(sql)
    if not statements:
        raise InputError("the query is empty", _ONE_SELECT)
    if len(statements) > 1:
        raise InputError(f"the query has {len(statements)} statements", _ONE_SELECT)
    kind = statements[0].type
    if kind == duckdb.StatementType.MULTI:
        raise InputError(
            "PIVOT without `in (...)` runs two queries",
            "name its columns, in a subquery: pivot (select ...) on x in (1, 2) using sum(y)",
        )
    if kind != duckdb.StatementType.SELECT:
        raise InputError(f"the query is not a SELECT but: {kind.name}", _ONE_SELECT)
    return str(statements[0].query)


def _blocks(
    connection: duckdb.DuckDBPyConnection,
    block: Block,
    timed: _Stopwatch,
    printing: Callable[[], float] | None,
) -> Iterator[Block]:
    while block:
        started = printing() if printing else 0.0
        yield block
        if printing and len(block) == _BLOCK_ROWS:
            timed.spend(printing() - started)
        block = timed(lambda: connection.fetchmany(_BLOCK_ROWS))


class _Stopwatch:
    """Runs the parts of a query and interrupts them at the time limit.

    They run in another thread, because DuckDB ignores ^C while it works.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, limits: Limits, *, bound_process: bool
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._bound_process = bound_process
        self._seconds_left = limits.seconds
        self._thread = ThreadPoolExecutor(max_workers=1)

    def __enter__(self) -> _Stopwatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def __call__(self, run: Callable[[], _Value]) -> _Value:
        started = time.monotonic()
        running = self._thread.submit(run)
        try:
            return running.result(max(self._seconds_left, 0.0))
        except TimeoutError:
            error = _too_long(self._limits)
            self._interrupt(running, f"error: {error}", error.exit_code)
            return running.result()
        except KeyboardInterrupt:
            self._interrupt(running, "interrupted", _INTERRUPTED)
            raise
        finally:
            self._seconds_left -= time.monotonic() - started

    def spend(self, seconds: float) -> None:
        """Take time that the rows' reader needed off the limit; raise if none is left."""
        self._seconds_left -= seconds
        if self._seconds_left <= 0:
            raise _too_long(self._limits, _FEWER_ROWS)

    def _interrupt(self, running: Future[Any], message: str, exit_code: int) -> None:
        self._connection.interrupt()
        if self._bound_process and not wait([running], _GRACE_SECONDS).done:
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()
            os._exit(exit_code)  # Python cannot end a thread that ignores the interrupt


@contextmanager
def explained(database: Path, limits: Limits | None = None, target: str = "") -> Iterator[None]:
    """Turn errors of DuckDB, also those while rows are read, into errors for the user.

    Those that name `target`, the file that is written, are raised as they are.
    """
    limits = limits or Limits()
    try:
        yield
    except WarehouseError:
        raise
    except duckdb.InterruptException:
        raise _too_long(limits) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise InputError(
            f"the query needs more than {limits.memory} of memory",
            "narrow it, or allow more with --memory",
        ) from None
    except _DAMAGE as error:
        if target and target in str(error):
            raise
        raise database_error(error, database) from None
    except duckdb.PermissionException as error:
        raise InputError(
            str(error), "queries read the tables and views of the database, nothing else"
        ) from None
    except duckdb.CatalogException as error:
        raise InputError(str(error), 'see what there is: warehouse sql "show tables"') from None
    except duckdb.Error as error:
        if _CORRUPT in str(error):  # DuckDB has no class for this error
            raise database_error(error, database) from None
        raise InputError(str(error), _column_hint(str(error))) from None


def _column_hint(message: str) -> str:
    """Return a hint on an unknown column: similar columns, and where to look; else nothing."""
    match = _NO_COLUMN.search(message)
    if match is None:
        return ""
    from estimators.columns import COLUMNS
    from estimators.names import did_you_mean, joined_hint, nearest_columns

    word = match[1]
    where = "`warehouse schema VIEW` lists the columns of a view"
    has_other_name = any(word.lower() in column.other_names for column in COLUMNS.values())
    if word in COLUMNS and not has_other_name:
        return f"other tables have `{word}`; {where}"
    return joined_hint(did_you_mean(nearest_columns(word, COLUMNS.keys() - {word})), where)


def _too_long(limits: Limits, hint: str = "narrow it, or allow more with --timeout") -> InputError:
    return InputError(f"the query was stopped after {limits.seconds:g} seconds", hint)


@contextmanager
def _bounded_memory(size: int) -> Iterator[None]:
    """Let the process allocate at most `size` more bytes; only on Linux."""
    if sys.platform != "linux":
        yield
        return
    import resource

    status = Path("/proc/self/status").read_text()
    used = re.search(r"^VmData:\s+(\d+) kB", status, re.MULTILINE)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = size + (int(used[1]) * 1024 if used else 0)
    known = [limit for limit in (bound, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
