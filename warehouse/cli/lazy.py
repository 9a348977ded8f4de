"""The commands as typer sees them: each is imported when it runs, and its values are read here.

typer imports every command to list them, and pydantic to read a text. Both take longer than most
commands.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from warehouse.errors import UsageError, WarehouseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.cli.commands import Entry

Reader = Callable[[Any], Any]
"""Returns the value of a parameter; a ValueError leaves the text to typer."""


class Program(TyperGroup):
    """The options of the program and its commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, all flags; without a default, pydantic would be imported for them."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.default = False
        return parameters


class LazyCommand(TyperCommand):
    """A command that is imported when it runs; before, only its name and summary are known."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, rich_markup_mode=None)
        self._entry = entry

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the summary, which the list of commands shows."""
        self.help = self._entry.summary()
        return super().get_short_help_str(limit)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Import the command and return its context, with what the command line gives it."""
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> _PlainCommand:
        """Import the command and return it with its options."""
        from warehouse.cli.groups import expanded

        lines = self._entry.example.replace("\n", "\n  ")
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        function = expanded(self._entry.function())
        register = alone.command(
            self._entry.name, cls=_PlainCommand, epilog=f"\b\nExample:\n  {lines}"
        )
        register(function)
        command = typer.main.get_command(alone)
        assert isinstance(command, _PlainCommand)
        command.readers = {
            name: reader_of(annotation) for name, annotation in function.__annotations__.items()
        }
        return command


class _PlainCommand(TyperCommand):
    """A command that reads usual values itself, and leaves others, faults and --help to typer."""

    readers: Mapping[str, Reader]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [f" {word}" if _is_comment(word) else word for word in args]
        values, rest, given = self.make_parser(ctx).parse_args([*args])
        if rest or any(parameter.is_eager for parameter in given):
            return super().parse_args(ctx, args)
        try:
            if not ctx.resilient_parsing:  # else a shell completes the line
                _refuse_two_values(given, args)
            for parameter in self.get_params(ctx):
                if parameter.expose_value:
                    ctx.params[parameter.name] = self._value(ctx, parameter, values)
        except ValueError:
            return super().parse_args(ctx, args)
        except WarehouseError as error:
            raise _with_written_name(error, given, args) from None
        return []

    def _value(self, ctx: Any, parameter: Any, values: Mapping[str, Any]) -> Any:
        value, source = parameter.consume_value(ctx, values)
        ctx.set_parameter_source(parameter.name, source)
        if ctx.resilient_parsing:
            return value
        if parameter.required and not value:
            raise ValueError
        if value is not None and source.name != "DEFAULT":
            value = self.readers[parameter.name](value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def reader_of(annotation: Any) -> Reader:
    """Return the function that reads what the command line has for a parameter."""
    kind, *marks = get_args(annotation) or (annotation,)
    if isinstance(kind, UnionType):
        kind = next(member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is list:
        read = reader_of(Annotated[get_args(kind)[0], *marks])
        return lambda values: [read(value) for value in values]
    if parsers := [mark.parser for mark in marks if getattr(mark, "parser", None)]:
        return cast("Reader", parsers[0])
    if kind is bool:
        return _flag
    is_choice = isinstance(kind, type) and issubclass(kind, Enum)
    return (lambda value: kind(value.lower())) if is_choice else kind


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):  # the text of an environment variable
        raise ValueError
    return value


def _refuse_two_values(given: Sequence[Any], args: Sequence[str]) -> None:
    """Refuse different values of an option that takes one: typer would take the last."""
    for option in given:
        if option.multiple or option.param_type_name == "argument" or option.is_flag:
            continue
        values = [
            following if word in option.opts else word.partition("=")[2]
            for word, following in pairwise([*args, ""])
            if word.partition("=")[0] in option.opts
        ]
        if given.count(option) > 1 and len(set(values)) > 1:
            times = "twice" if len(values) == 2 else f"{len(values)} times"
            hint = "give one; run the command once for each"
            if "," in str(option.metavar):
                hint = f"give it once, with commas: {option.opts[0]} {','.join(values)}"
            raise UsageError(f"`{option.opts[0]}` is given {times}: {', '.join(values)}", hint)


def _with_written_name(
    error: WarehouseError, given: Sequence[Any], args: Sequence[str]
) -> WarehouseError:
    """Return the error of an option under the name that the user wrote."""
    typed = {word.partition("=")[0] for word in args}
    for option in given:
        first = option.opts[0]
        written = next((name for name in option.opts if name in typed), first)
        if error.message.startswith(f"`{first}`"):
            error.message = f"`{written}`{error.message.removeprefix(f'`{first}`')}"
    return error


def _is_comment(word: str) -> bool:
    """Return whether a word is a comment of SQL, with which a query may begin, and no option."""
    return word.startswith("-- ") or (word.startswith("--") and "\n" in word.partition("=")[0])
