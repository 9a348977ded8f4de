"""The program `warehouse`: joins the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn, cast

import typer

from warehouse.cli.commands import COMMANDS
from warehouse.cli.interrupts import Received, interruptible
from warehouse.cli.lazy import LazyCommand, Program

INTERRUPTED = 130
"""Exit code that typer gives after ^C, as shells do: 128 + SIGINT."""

_WRONG_USAGE = 2

_STDOUT, _STDERR = 1, 2
"""File numbers of the streams that a command writes to."""

app = typer.Typer(
    name="warehouse",
    cls=Program,
    help=(
        "Evaluate whole search spaces of large-transformer training layouts and query every "
        "configuration in SQL.\n\nExit codes: 0 done, 2 wrong usage, 3 input refused, "
        "4 checks failed, 5 database locked or damaged."
    ),
    epilog="\b\nStart with:\n  warehouse quickstart",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def _show_version(is_given: bool) -> None:
    if is_given:
        from warehouse import __version__

        sys.stdout.write(f"warehouse {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


program = cast(Program, typer.main.get_command(app))
"""The program: the options above and the commands."""
for _entry in COMMANDS:
    program.add_command(LazyCommand(_entry))


def main() -> NoReturn:
    """Run one command as a program.

    The process ends without unloading its modules, which would take a tenth of the time of most
    commands. The system frees everything that they hold.
    """
    # products of small matrices: threads that wait for them take up to a third of a command's time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_closed_streams()
    code = run()
    if threading.active_count() > 1:
        sys.exit(code)  # which waits for the others
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Discard what is written to a stream that the caller closed (`>&-`).

    Else the next file that is opened, such as the database, would get the stream's number.
    """
    if sys.stdin and sys.stdout and sys.stderr:
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(number)
    for name, place in (("stdout", _STDOUT), ("stderr", _STDERR)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(place, "w", encoding="utf-8"))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake becomes a message on stderr."""
    context: dict[str, Path] = {}
    arguments = sys.argv[1:] if arguments is None else arguments
    if (text := _not_text(arguments)) is not None:
        sys.stderr.write(f"error: {text}\n")
        return _WRONG_USAGE
    received = Received()
    try:
        with interruptible() as received:
            program(arguments, prog_name="warehouse", obj=context)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
        if code == INTERRUPTED:
            sys.stderr.write(f"{received.in_words}\n")
            code = received.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(f"{received.in_words}\n")
        code = received.exit_code
    except Exception as error:
        message = _explained(error, context.get("database"))
        if message is None:
            raise
        text, code = message
        _flush()
        sys.stderr.write(f"error: {text}\n")
    lost = _flush()
    if lost is not None and code == 0:
        sys.stderr.write(f"error: {lost.strerror}\n")
        code = 1
    return code


def _not_text(arguments: Sequence[str]) -> str | None:
    """Return the error message for an argument that is not text; no library accepts one."""
    for number, argument in enumerate(arguments, 1):
        if argument.isprintable():
            continue
        from warehouse.limits import LINE_MARKS, control_character

        if reason := control_character(argument, LINE_MARKS):  # a query has several lines
            return (
                f"argument {number}, {ascii(argument)[:120]}, {reason}\n"
                "hint: leave it out: no value has one"
            )
        try:
            argument.encode()
        except UnicodeEncodeError:
            return (
                f"argument {number}, {ascii(argument)[:120]}, is not UTF-8 text\n"
                "hint: type it again in a terminal that uses UTF-8, or rename the file"
            )
    return None


def _explained(error: Exception, database: Path | None) -> tuple[str, int] | None:
    """Return the message and exit code of an error that the user, not the program, caused."""
    from estimators.contract import RefusedError
    from warehouse.errors import LONGEST_MESSAGE, InputError, WarehouseError, shortened

    if isinstance(error, WarehouseError):
        text = shortened(error.message, LONGEST_MESSAGE)
        return str(WarehouseError(text, error.hint)), error.exit_code
    if isinstance(error, RefusedError):
        return str(InputError.from_refusals(error.refusals)), InputError.exit_code
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}", WarehouseError.exit_code
    duckdb = sys.modules.get("duckdb")
    if duckdb and isinstance(error, duckdb.Error):
        from warehouse.database.failures import database_error

        known = database_error(error, database or Path("the database"))
        return str(known), known.exit_code
    return None


def _flush() -> OSError | None:
    """Flush stdout; return the error, or None if the reader of a pipe closed it."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None


if __name__ == "__main__":
    main()
