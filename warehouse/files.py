"""Text files, read whole; result files, checked before the work, written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse.errors import InputError
from warehouse.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_FORMULA = re.compile(
    r"[=@\t\r]|[+-](?!(?:[\deE.:+ -]|days?|months?|years?)*\Z)"  # such as -1e5, and -1 day
)


def formula_columns(columns: Iterable[tuple[str, Iterable[object]]]) -> list[str]:
    """Return the names of those columns of a CSV with a text that a spreadsheet runs as a formula.

    Signed numbers and intervals are none.
    """
    return [
        name
        for name, values in columns
        if any(map(_FORMULA.match, {value for value in values if type(value) is str}))
    ]


def formula_warning(columns: Iterable[str]) -> str:
    """Return the warning of a CSV with such texts in some columns."""
    names = ", ".join(f"`{name}`" for name in columns)
    return f"texts in {names} begin as formulas do: import the CSV into a spreadsheet as text"


_PARTIAL = re.compile(r"\.(?P<target>.+)\.(?P<process>[0-9]{1,19})\.partial(?:\.wal)?")
"""Name of a partial file, or of DuckDB's log of one."""

_STREAMS = ("/dev/stdout", "/dev/stderr")


def read_text(path: Path, most: int, hint: str) -> str:
    """Return the text of a file of at most so many bytes; errors name the file, with `hint`."""
    file = str(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{file}: is no file", hint)
        with path.open("rb") as opened:
            data = opened.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read: {reason}") from None
    if len(data) > most:
        raise InputError(f"{file}: has more than {most / 1e6:g} MB", hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{file}: line {line} is not UTF-8 text", hint) from None


def json_object(text: str, file: str, hint: str) -> dict[str, Any]:
    """Return the keys and values of a JSON text; errors name the file, with `hint`."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply", hint) from None
    except ValueError as error:  # JSONDecodeError, or a number of thousands of digits
        reason = str(error) if text.strip() else "it is empty"
        raise InputError(f"{file}: is not valid JSON: {reason}", hint) from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: must be an object of keys and values", hint)
    return content


def working_directory() -> Path:
    """Return the working directory; raise `InputError` if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise InputError(
            f"the working directory cannot be found: {error.strerror}",
            "it was removed: change to one that exists",
        ) from None


def refused_place(error: OSError) -> InputError | None:
    """Return the error of a file whose name no file can have, or of a removed working directory.

    None: the error has another reason.
    """
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) and error.filename is not None:
        return InputError(f"{error.filename}: {error.strerror}", "name another file")
    if isinstance(error, FileNotFoundError):
        try:
            working_directory()
        except InputError as removed:
            return removed
    return None


def check_target(out: Path) -> None:
    """Refuse a path at which no file can be written: a directory, or one that lies in none."""
    _stat(out, out)
    if out.is_dir():
        raise InputError(f"{out}: is a directory", hint="name a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: the directory {out.parent} does not exist", hint="make it first")
    _stat(partial_path(out), out)  # its name is longer


def _stat(path: Path, out: Path) -> None:
    """Refuse a path that no file can have; `out` is its name in errors."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{out}: cannot be reached: {reason}", "name another file") from None


def refuse_existing(out: Path, *, force: bool) -> None:
    """Refuse a file that exists already, unless `force` is given."""
    if out.is_file() and not force:
        raise InputError(f"{out}: exists already", "name another file, or replace it with --force")


def refuse_overwriting(out: Path, *, read: Iterable[Path], database: Path | None = None) -> None:
    """Refuse a result file that is one of the files that the command reads, or its database."""
    if out.exists() and not out.is_file():
        return  # a device or a pipe: nothing is overwritten
    for path, kind in (*((path, "the input file") for path in read), (database, "the database")):
        if path is not None and _is_same(path, out):
            raise InputError(f"{out}: is {kind}; it would be overwritten", hint="name another file")


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, which need not exist yet."""
    with suppress(OSError):
        return path.samefile(other)
    with suppress(OSError):
        return path.resolve() == other.resolve()
    return False


def partial_path(target: Path) -> Path:
    """Return where this process writes a file or folder that then takes the place of `target`."""
    return target.with_name(f".{target.name}.{os.getpid()}.partial")


def target_of_partial(path: Path) -> Path:
    """Return the path that `partial_path` gave a partial file for; another path is returned."""
    match = _PARTIAL.fullmatch(path.name)
    return path.with_name(match["target"]) if match else path


def partials(directory: Path, targets: Collection[str] | None = None) -> dict[Path, int]:
    """Return the partial files and folders of a directory, each with the process that writes it.

    `targets` are the names of the files that are to be written; None: any.
    """
    processes = {}
    with suppress(OSError):
        for path in directory.iterdir():
            match = _PARTIAL.fullmatch(path.name)
            if match and (targets is None or match["target"] in targets):
                processes[path] = int(match["process"])
    return processes


def abandoned(directory: Path, targets: Collection[str] | None = None) -> list[Path]:
    """Return those of `partials` that killed processes left."""
    written = partials(directory, targets)
    return [path for path, process in written.items() if not is_alive(process)]


def remove_abandoned(target: Path) -> None:
    """Remove partial files of `target` that killed processes left."""
    for path in abandoned(target.parent, [target.name]):
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def put_whole(target: Path) -> Iterator[Path]:
    """Yield a path beside `target`; the file there takes its place when the block ends.

    A block that fails, or that leaves no file, keeps `target` as it was, and so does a kill.
    """
    partial = partial_path(target)
    _remove(partial)  # of a killed process that had the number of this one
    try:
        yield partial
        with suppress(FileNotFoundError):
            partial.replace(target)
    finally:
        _remove(partial)


def _remove(partial: Path) -> None:
    for path in (partial, partial.with_name(f"{partial.name}.wal")):
        with suppress(OSError):
            path.unlink()


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def flush_directory(directory: Path) -> None:
    """Flush the names in a directory to the disk, where the system can."""
    with suppress(OSError):  # Windows opens no directories, some network file systems lack the call
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Yield a path to write to; the file there replaces `out` when the block ends.

    A block that fails, or a process that is killed, leaves `out` as it was. An existing file keeps
    its permissions, and a link keeps pointing where it did. A device or a pipe is written to
    directly.
    """
    # /dev/stdout leads to a pipe without a path, or to a file that the shell has open.
    is_stream = out.is_relative_to("/dev/fd") or str(out) in _STREAMS
    is_stream = is_stream or (out.exists() and not out.is_file())
    target = out if is_stream else out.resolve()
    if not is_stream:
        remove_abandoned(target)
    try:
        with nullcontext(out) if is_stream else put_whole(target) as partial:
            yield partial
            if not is_stream:
                with suppress(OSError):
                    shutil.copymode(target, partial)
    except OSError as error:
        names = [name for name in (error.filename, error.filename2) if name is not None]
        if names and not any(str(name).startswith(str(partial)) for name in names):
            raise  # the error is about another file
        hint = "free some space, or name another file"
        raise InputError(f"{out}: cannot be written: {error.strerror or error}", hint) from None
