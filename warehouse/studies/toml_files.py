"""TOML files: read as a whole, with all faults reported at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from estimators.contract import Refusal, RefusedError
from estimators.names import did_you_mean
from warehouse.errors import InputError
from warehouse.limits import shown

if TYPE_CHECKING:
    from pathlib import Path

_T = TypeVar("_T")

MAX_BYTES = 8_000_000
"""Largest file: two lists with the most values that a study may have are smaller."""


class Faults:
    """Collects refusals, so that one error lists all of them."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def add(self, key: str, value: object, reason: str, hint: str = "") -> None:
        """Add the refusal of `value` of `key`."""
        self.refusals.append(Refusal(key, shown(value), reason, hint))

    def catch(self, function: Callable[..., _T], *arguments: object, where: str = "") -> _T | None:
        """Return the function's result, or None if it refuses."""
        try:
            return function(*arguments)
        except RefusedError as error:
            for r in error.refusals:
                self.refusals.append(Refusal(r.column, r.value, where + r.reason, r.hint))
        return None


def read_toml(path: Path, kind: str, needs: str) -> dict[str, Any]:
    """Return the content of a file, which should be `kind`, such as "a study".

    `needs` is the hint for an empty file.
    """
    text = _read(path, str(path), kind)
    if not text.strip():
        raise InputError(f"{path}: is empty", hint=needs)
    return _parse(text, str(path))


def nearest(key: str, known: Sequence[str]) -> str:
    """Return a hint that names the known keys most like `key`, or all of them."""
    near = get_close_matches(key, known, n=3, cutoff=0.6)
    return did_you_mean(near) or f"known: {', '.join(known)}"


def _read(path: Path, file: str, kind: str) -> str:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{file}: is a pipe or a device, not {kind}", "name a .toml file")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"{file}: has more than {MAX_BYTES / 1e6:g} MB",
                "write ranges instead of lists, or several studies",
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{file}: is a directory, not {kind}", hint="name a .toml file") from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read: {reason}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        hint = "save the file as UTF-8"
        raise InputError(f"{file}: line {line} is not UTF-8 text", hint=hint) from None


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        place = re.search(r"line (\d+)", str(error))
        lines = text.splitlines()
        line = lines[int(place[1]) - 1].strip() if place and int(place[1]) <= len(lines) else ""
        hint = f"the line reads: {line[:100]}" if line else ""
        raise InputError(f"{file}: is not valid TOML: {error}", hint=hint) from None
