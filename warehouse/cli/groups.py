"""Gives typer the fields of a command's groups of options one by one, and the command whole groups.

Every command that opens its database gets option --wait.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from warehouse.cli.options import Opened, Wait
from warehouse.cli.output import Output
from warehouse.database.access import access_for, accessing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.database.access import Access


def _refuse_overwriting(values: Mapping[str, Any]) -> None:
    """Refuse an `--out` that is the database, or a file that another option or argument names."""
    if values.get("out") is None:
        return
    from warehouse.files import refuse_overwriting

    read = [value for name, value in values.items() if name not in ("out", "db")]
    read = [value for value in read if isinstance(value, Path)]
    read += [Path(values[name]) for name in _PATH_OR_NAME if values.get(name)]
    refuse_overwriting(values["out"], read=read, database=values.get("db"))


_PATH_OR_NAME = ("study", "reference")
"""Arguments that are a file, or the name of something that comes with the package."""


def _opened(hints: Mapping[str, Any]) -> Opened | None:
    """Return how a command opens its database, by the types of its parameters."""
    found = [mark for mark in get_args(hints.get("db"))[1:] if isinstance(mark, Opened)]
    return found[0] if found else None


def _access(opened: Opened | None, wait: float | None) -> Access:
    """Return how a command line opens the database."""
    from warehouse.cli.common import say

    return access_for(wait, writes=opened is not None and opened.writes, say=say)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups of options are single parameters, as typer reads them.

    Raises
    ------
    TypeError
        If two groups have an option of the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        groups[name] = (kind, [field.name for field in fields(kind)])
        types = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=types[field.name],
            )
            for field in fields(kind)
        ]
    opened = _opened(hints)
    if opened is not None:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("wait", keyword, default=None, annotation=Wait))
    # Every --help ends in the formats and the database.
    last = (*(field.name for field in fields(Output)), "db")
    parameters.sort(key=lambda p: last.index(p.name) + 1 if p.name in last else 0)
    names = [parameter.name for parameter in parameters]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{command.__name__} has options twice: {', '.join(sorted(twice))}")

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _refuse_overwriting(values)
        wait = values.pop("wait", None)
        for name, (kind, members) in groups.items():
            values[name] = kind(**{member: values.pop(member) for member in members})
        with accessing(_access(opened, wait)):
            command(**values)

    # typer reads these two; by `__wrapped__` it would find the command itself.
    one_by_one = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    vars(run).pop("__wrapped__")
    vars(run)["__signature__"] = inspect.Signature(one_by_one)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
