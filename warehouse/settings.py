"""Settings for every command: from the environment, from `warehouse.toml`, or defaults.

A project's file is the `warehouse.toml` in the working directory or the nearest directory above it.
A user's file is in the directory of the user's configuration. The environment takes precedence over
the project's file, and that over the user's. A faulty file is an `InputError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from warehouse.errors import InputError
from warehouse.files import working_directory
from warehouse.limits import control_character

FILE = "warehouse.toml"
_DIRECTORY = "training-warehouse"
_PACKAGE = Path(__file__).parent

_BACKUPS, _PLAN_CACHE = "backups", "plan_cache_gb"
"""The settings that are numbers."""

_NUMBERS = {
    _BACKUPS: (r"\d{1,4}", "number of copies", "give 3, or 0 for none"),
    _PLAN_CACHE: (r"\d{1,6}(\.\d{1,6})?", "number of GB", "give 2, or 0.5"),
}
"""Setting -> how it is written, what it is, and a hint."""

_FORM = "write each line as: key = value"

IN_SOURCE_TREE = Path("db/warehouse.duckdb")
"""The default database in a clone, relative to the working directory."""

VARIABLES = {
    "database": "WAREHOUSE_DB",
    "cache": "WAREHOUSE_CACHE",
    "catalog": "WAREHOUSE_CATALOG",
    "backups": "WAREHOUSE_BACKUPS",
    "plan_cache_gb": "WAREHOUSE_PLAN_CACHE_GB",
}
"""Setting -> its environment variable."""


class Setting(NamedTuple):
    """A setting with where it comes from; None where the system has no place for it."""

    name: str
    value: Path | int | float | None
    origin: str


def database() -> Path:
    """Return the database of commands that name none."""
    return _path("database") or usual_database()


def usual_database() -> Path:
    """Return the default database.

    In a clone that is db/warehouse.duckdb below the working directory. An installed package has one
    per user, so that commands do not create databases in arbitrary folders. Where the user's
    directory cannot be written, as in some containers, it has that of a clone.
    """
    if not (_PACKAGE / "resources").is_dir():
        return IN_SOURCE_TREE
    data = _directory_of("XDG_DATA_HOME", ".local/share")
    if data is None or not _is_writable(data):
        return working_directory() / IN_SOURCE_TREE
    return data / "warehouse.duckdb"


def _is_writable(directory: Path) -> bool:
    """Return whether files can be written to a directory, or to one that can be created."""
    try:
        place = next(each for each in (directory, *directory.parents) if each.exists())
    except OSError:  # a folder that may not be entered
        return False
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def cache() -> Path | None:
    """Return the directory of the cache, None if the system has no place for it."""
    return _path("cache")


def catalog() -> Path | None:
    """Return the file of the user's own models and systems, None if no setting names one."""
    return _path("catalog")


def backups() -> int:
    """Return how many backups of the database to keep, a new one before each sweep; 0 for none."""
    value = _setting(_BACKUPS).value
    return value if isinstance(value, int) else 0


def plan_cache_bytes() -> float:
    """Return how many bytes the cells may take that only questions of `plan` asked for."""
    value = _setting(_PLAN_CACHE).value
    return 1e9 * value if isinstance(value, int | float) else 0.0


def settings() -> list[Setting]:
    """Return every setting in force."""
    return [_setting(name) for name in VARIABLES]


def files() -> list[Path]:
    """Return the files that may have settings, by precedence."""
    directories = [*(working_directory() / "file").parents]
    project = next((d / FILE for d in directories if (d / FILE).is_file()), directories[0] / FILE)
    user = _directory_of("XDG_CONFIG_HOME", ".config")
    return [project] if user is None else [project, user / FILE]


def _setting(name: str) -> Setting:
    variable = VARIABLES[name]
    if given := os.environ.get(variable):
        return Setting(name, _value(name, given, variable), variable)
    for file in files():
        if written := _read(file).get(name):
            return Setting(name, _value(name, written, f"{file}: `{name}`", file.parent), str(file))
    return Setting(name, _USUAL[name](), "default")


def _value(name: str, text: str, source: str, directory: Path | None = None) -> Path | int | float:
    """Return a value; paths in a file are relative to its directory, and `~` is the home there."""
    if name in _NUMBERS:
        form, what, hint = _NUMBERS[name]
        if not re.fullmatch(form, text, re.ASCII):
            raise InputError(f"{source} {text!r} is no {what}", hint)
        return int(text) if text.isdecimal() else float(text)
    if directory is None:
        return Path(text)
    try:
        return directory / Path(text).expanduser()
    except RuntimeError:
        raise InputError(
            f"{source} {text}: there is no such user", "write the whole path"
        ) from None


def _path(name: str) -> Path | None:
    value = _setting(name).value
    return value if isinstance(value, Path) else None


def _read(path: Path) -> dict[str, str]:
    """Return the settings of a file; none if there is no file."""
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}", "correct it, or remove it") from error
    import tomllib

    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply", _FORM) from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise InputError(f"{path}: {error}", _FORM) from error
    for key, value in content.items():
        if key not in VARIABLES:
            known = ", ".join(VARIABLES)
            raise InputError(f"{path}: `{key}` is not a setting", f"known: {known}")
        if key in _NUMBERS and type(value) in (int, float):
            content[key] = str(value)
            _value(key, content[key], f"{path}: `{key}`")
        elif not isinstance(value, str) or not value:
            said = "" if isinstance(value, dict | list) else f" {value!r}"
            if key in _NUMBERS:
                _, what, hint = _NUMBERS[key]
                raise InputError(f"{path}: `{key}`{said} is no {what}", hint)
            raise InputError(f"{path}: `{key}`{said} must be a text", f'write {key} = "a/path"')
        elif reason := control_character(value):
            raise InputError(f"{path}: `{key}` {value!r} {reason}", "remove it")
    return content


def _directory_of(variable: str, below_home: str) -> Path | None:
    """Return the package's directory within a directory of the XDG Base Directory Specification."""
    directory = Path(os.environ.get(variable, ""))
    try:  # the specification says to ignore relative paths
        directory = directory if directory.is_absolute() else Path.home() / below_home
    except RuntimeError:
        return None
    return directory / _DIRECTORY


_USUAL: dict[str, Callable[[], Path | float | None]] = {
    "database": usual_database,
    "cache": lambda: _directory_of("XDG_CACHE_HOME", ".cache"),
    "catalog": lambda: None,
    _BACKUPS: lambda: 0,
    _PLAN_CACHE: lambda: 2,
}
"""Setting -> its default."""
