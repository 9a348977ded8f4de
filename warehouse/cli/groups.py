"""Gives typer the fields of a command's groups of options one by one, and the command whole groups.

Every command that opens its database gets option --wait.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from warehouse.cli import completion
from warehouse.cli.common import say
from warehouse.cli.options import Opened, Wait
from warehouse.cli.output import Output
from warehouse.database.access import access_for, accessing
from warehouse.options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PATH_OR_NAME = ("study", "reference")
"""Arguments that are a file, or the name of something that comes with the package."""

_LAST = (*(field.name for field in fields(Output)), "db")
"""Options in which every --help ends: the formats and the database."""


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups of options are single parameters, as typer reads them."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if isinstance(group := hints[name], type) and is_dataclass(group):
            members = list(_members(group))
            groups[name] = (group, [member.name for member in members])
            parameters += members
        else:
            parameters.append(_parameter(name, parameter.default, hints[name]))
    opened = next((mark for mark in get_args(hints.get("db")) if isinstance(mark, Opened)), None)
    if opened:
        parameters.append(_parameter("wait", None, Wait))
    parameters.sort(key=lambda p: _LAST.index(p.name) + 1 if p.name in _LAST else 0)
    names = [parameter.name for parameter in parameters]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{command.__name__} has options twice: {', '.join(sorted(twice))}")

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _refuse_overwriting(values)
        wait = values.pop("wait", None)
        for name, (group, members) in groups.items():
            values[name] = group(**{member: values.pop(member) for member in members})
        writes = opened is not None and opened.writes
        with accessing(access_for(wait, writes=writes, say=say)):
            command(**values)

    # typer reads these two; by `__wrapped__` it would find the command itself.
    vars(run).pop("__wrapped__")
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _members(group: type) -> Iterator[inspect.Parameter]:
    """Yield the fields of a group that are options or arguments."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if len(get_args(hints[field.name])) > 1:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield _parameter(field.name, default, hints[field.name])


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    """Return a parameter as typer declares it."""
    kind, *marks = get_args(annotation) or (annotation,)
    for option in marks:
        if isinstance(option, Option):
            declared = typer.Option(
                option.name,
                *option.more_names,
                metavar=option.metavar,
                help=option.text,
                show_default=option.show_default,
                envvar=option.envvar,
                parser=option.parser,
                autocompletion=completion.BY_OPTION.get(option.name),
                readable=False,  # typer would call a file that may not be read wrong usage
            )
            annotation = Annotated[kind, declared]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def _refuse_overwriting(values: Mapping[str, Any]) -> None:
    """Refuse an `--out` that is the database, or a file that another option or argument names."""
    if values.get("out") is None:
        return
    from warehouse.files import refuse_overwriting

    read = [value for name, value in values.items() if name not in ("out", "db")]
    read = [value for value in read if isinstance(value, Path)]
    read += [Path(values[name]) for name in _PATH_OR_NAME if values.get(name)]
    refuse_overwriting(values["out"], read=read, database=values.get("db"))
