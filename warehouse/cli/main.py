"""The program `warehouse`: joins the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import codecs
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn, cast

import typer

from warehouse.cli.commands import COMMANDS
from warehouse.cli.interrupts import Received, interruptible
from warehouse.cli.lazy import LazyCommand, Program

INTERRUPTED = 130
"""Exit code that typer gives after ^C, as shells do: 128 + SIGINT."""

UNFORESEEN = 70
"""Exit code after a fault of the program: EX_SOFTWARE of sysexits.h."""

_WRONG_USAGE = 2

_NO_READER = 128 + getattr(signal, "SIGPIPE", 13)
"""Exit code of a program that SIGPIPE ends: the reader of its output has gone."""

_STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))
"""Name, file number and mode of each standard stream."""

_STOPPING = ("strict", "surrogateescape")
"""Error handlers of a stream that stop at a character that its encoding lacks."""

_LONGEST_FAULT = 300
"""Characters of an unforeseen error that are shown; the file of details has all."""

app = typer.Typer(
    name="warehouse",
    cls=Program,
    help=(
        "Evaluate whole search spaces of large-transformer training layouts and query every "
        "configuration in SQL.\n\nExit codes: 0 done, 2 wrong usage, 3 input refused, "
        "4 checks failed, 5 database locked or damaged, 70 fault of the program."
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
        from warehouse.database.stamp import reference_in_words

        sys.stdout.write(f"warehouse {__version__}, {reference_in_words()}\n")
        raise typer.Exit


def _set_debug(context: typer.Context, is_debug: bool) -> None:
    if is_debug and isinstance(context.obj, dict):  # none while a shell completes a line
        context.obj["debug"] = True


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    _debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=_set_debug,
            is_eager=True,
            envvar="WAREHOUSE_DEBUG",
            help="Show the traceback of a fault of the program.",
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
    _print_every_character()
    code = run()
    if threading.active_count() > 1:
        sys.exit(code)  # which waits for the others
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """Give an empty stdin, and discard what is written, where the caller closed a stream (`>&-`).

    Else the next file that is opened, such as the database, would get the stream's number.
    """
    if sys.stdin and sys.stdout and sys.stderr:
        return
    while (number := os.open(os.devnull, os.O_RDWR)) < len(_STREAMS):
        pass
    os.close(number)
    for name, number, mode in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _print_every_character() -> None:
    """Write a character that the encoding of stdout lacks with its number, as JSON does.

    A terminal, or PYTHONIOENCODING, may have another encoding than UTF-8.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in _STOPPING:
        codecs.register_error("json", _as_in_json)
        sys.stdout.reconfigure(errors="json")


def _as_in_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    import json

    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes a message on stderr."""
    context: dict[str, Any] = {}
    arguments = sys.argv[1:] if arguments is None else arguments
    if (text := _not_text(arguments)) is not None:
        _say(f"error: {text}")
        return _WRONG_USAGE
    received = Received()
    try:
        with interruptible() as received:
            program(arguments, prog_name="warehouse", obj=context)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
        if isinstance(stop.__context__, BrokenPipeError):  # typer turns it into exit code 1
            code = _NO_READER
        elif code == INTERRUPTED:
            _say(received.in_words)
            code = received.exit_code
    except KeyboardInterrupt:
        _say(received.in_words)
        code = received.exit_code
    except BrokenPipeError:  # typer writes an error of usage itself
        code = _NO_READER
    except BaseException as error:
        text, code = _explained(error, context) or _unforeseen(error, arguments, context)
        _flush()
        _say(f"error: {text}")
    lost = _flush()
    if lost is not None and code == 0:
        if isinstance(lost, BrokenPipeError):
            return _NO_READER
        _say(f"error: {lost.strerror}")
        code = 1
    return code


def _say(text: str) -> None:
    """Write a line to stderr, if anything can be written to it."""
    from warehouse.errors import escaped

    with suppress(OSError):
        sys.stderr.write(f"{escaped(text)}\n")


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


def _explained(error: BaseException, context: dict[str, Any]) -> tuple[str, int] | None:
    """Return the message and exit code of an error that the user, not the program, caused."""
    from estimators.contract import RefusedError
    from warehouse.errors import LONGEST_MESSAGE, InputError, WarehouseError, shortened
    from warehouse.files import refused_place

    if isinstance(error, OSError):
        error = refused_place(error) or error
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
        from pathlib import Path

        from warehouse.database.failures import database_error

        known = database_error(error, context.get("database") or Path("the database"))
        return str(known), known.exit_code
    return None


def _unforeseen(
    error: BaseException, arguments: Sequence[str], context: dict[str, Any]
) -> tuple[str, int]:
    """Return the message and exit code of a fault of the program; keep its traceback in a file."""
    import tempfile
    import traceback

    from warehouse import __version__
    from warehouse.errors import shortened

    said = " ".join("".join(traceback.format_exception_only(error)).split())
    text = f"an unforeseen fault of the program: {shortened(said, _LONGEST_FAULT)}"
    trace = "".join(traceback.format_exception(error))
    if context.get("debug"):
        _say(trace.rstrip())
        return text, UNFORESEEN
    hint = "run it again as `warehouse --debug`, which shows the details"
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile(
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            prefix="warehouse-",
            suffix=".txt",
            delete=False,
        ) as file,
    ):
        python = sys.version.partition(" ")[0]
        file.write(f"warehouse {__version__}, Python {python} on {sys.platform}\n")
        file.write(f"{list(arguments)}\n\n{trace}")
        hint = f"report it with {file.name}, which has the details; stored rows stay as they are"
    return f"{text}\nhint: {hint}", UNFORESEEN


def _flush() -> OSError | None:
    """Flush stdout; return the error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


if __name__ == "__main__":
    main()
