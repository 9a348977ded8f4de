"""Result files: checked before the work, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_target(out: Path) -> None:
    """Refuse a path at which no file can be written.

    Raises
    ------
    InputError
        If it is a directory or lies in none.
    """
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            out.stat()
    except OSError as error:
        raise InputError(f"{out}: cannot be reached: {error.strerror}") from None
    if out.is_dir():
        raise InputError(f"{out}: is a directory", hint="name a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: the directory {out.parent} does not exist", hint="make it first")


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Yield a path to write to; what is there takes the place of `out` when the block ends.

    A block that fails, or a process that is killed, leaves `out` as it was. An existing file keeps
    its permissions, and a link keeps pointing where it did. A device or a pipe is written to
    directly.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    target = out.resolve()
    is_stream = target.exists() and not target.is_file()
    partial = target if is_stream else target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        if not is_stream:
            with suppress(OSError):
                shutil.copymode(target, partial)
            partial.replace(target)
    except OSError as error:
        if error.filename not in (None, str(partial)):
            raise  # the fault of another file
        hint = "free some space, or name another file with --out"
        raise InputError(f"{out}: cannot be written: {error.strerror or error}", hint) from None
    finally:
        if not is_stream:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
