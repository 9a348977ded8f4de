"""The commands as typer sees them: each is imported when it runs, and its values are read here.

typer imports every command to list them, and pydantic to read a text. Both take longer than most
commands.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from warehouse.cli.commands import FIRST, FORMER_OPTIONS, GROUPS
from warehouse.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from warehouse.cli.commands import Listing


class Program(TyperGroup):
    """The options of the program and its commands."""

    _is_alone = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, all flags; without a default, pydantic would be imported for them."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.default = False
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note whether the program is called alone, which `format_commands` shows in short."""
        self._is_alone = not args
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its summary; called alone, the first ones, and groups."""
        if not self._is_alone:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(n, self.commands[n].get_short_help_str(90)) for n in FIRST])
        with formatter.section("Further commands (warehouse --help says what each does)"):
            formatter.write_dl([(name, ", ".join(group)) for name, group in GROUPS.items()])


class LazyCommand(TyperCommand):
    """A command that is imported when it runs; before, only its name and summary are known."""

    def __init__(self, listing: Listing) -> None:
        super().__init__(listing.name, rich_markup_mode=None)
        self._listing = listing

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the summary, which the list of commands shows."""
        self.help = self._listing.summary()
        return super().get_short_help_str(limit)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Import the command and return its context, with what the command line gives it."""
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> _PlainCommand:
        """Import the command and return it with its options."""
        from warehouse.cli.groups import expanded

        lines = self._listing.example.replace("\n", "\n  ")
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        function = expanded(self._listing.function())
        epilog = f"\b\nExample:\n  {lines}"
        alone.command(self._listing.name, cls=_PlainCommand, epilog=epilog)(function)
        command = typer.main.get_command(alone)
        assert isinstance(command, _PlainCommand)
        command.annotations = function.__annotations__
        return command


class _PlainCommand(TyperCommand):
    """A command that reads usual values itself, and leaves others, faults and --help to typer."""

    annotations: Mapping[str, Any]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [piece for piece in pieces if piece != "[ ]"]  # a hidden argument

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = [f" {word}" if _is_comment(word) else _renamed(word) for word in args]
        if any(parameter.name == "pairs" for parameter in self.get_params(ctx)):
            args = _with_pairs(args, {name for p in self.get_params(ctx) for name in p.opts})
        values, rest, given = self.make_parser(ctx).parse_args([*args])
        if rest or any(parameter.is_eager for parameter in given):
            return super().parse_args(ctx, args)
        try:
            if not ctx.resilient_parsing:  # else a shell completes the line
                _refuse_two_values(given, args)
            for parameter in self.get_params(ctx):
                if parameter.expose_value:
                    value = self._value(ctx, parameter, values, args)
                    ctx.params[parameter.name] = value
        except ValueError:
            return super().parse_args(ctx, args)
        return []

    def _value(
        self, ctx: Any, parameter: Any, values: Mapping[str, Any], args: Sequence[str]
    ) -> Any:
        value, source = parameter.consume_value(ctx, values)
        ctx.set_parameter_source(parameter.name, source)
        if ctx.resilient_parsing:
            return value
        if parameter.value_is_missing(value):
            if parameter.required:
                raise ValueError
            value = () if parameter.multiple or parameter.nargs == -1 else None
        elif source.name != "DEFAULT":
            from warehouse.options import reader_of

            typed = {word.partition("=")[0] for word in args}
            name = next((name for name in parameter.opts if name in typed), parameter.opts[0])
            value = reader_of(self.annotations[parameter.name], name)(value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _renamed(word: str) -> str:
    """Return a word with the name that its option has now."""
    name, equals, value = word.partition("=")
    if name not in FORMER_OPTIONS:
        return word
    from warehouse.cli.common import say

    say(f"deprecated: {name} is now {FORMER_OPTIONS[name]}; the next version drops that name")
    return f"{FORMER_OPTIONS[name]}{equals}{value}"


def _with_pairs(args: Sequence[str], own: Collection[str]) -> list[str]:
    """Return words with flags of other programs as KEY=VALUE: --tensor-model-parallel-size 4.

    Columns may be written as flags, too. Options of the command, `own`, stay as they are, and words
    that nothing knows, for typer to refuse.
    """
    if not any(word.startswith("--") and word.partition("=")[0] not in own for word in args):
        return [*args]
    from warehouse.evaluate.words import is_name

    words: list[str] = []
    left = [*reversed(args)]
    while left:
        word = left.pop()
        name, equals, value = word.partition("=")
        if word == "--" or not name.startswith("--") or name in own or not is_name(name):
            words.append(word)
            continue
        is_flag = not equals and (not left or left[-1].startswith("--") or "=" in left[-1])
        value = "true" if is_flag else value if equals else left.pop()
        words.append(f"{name[2:]}={value}")
    return words


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


def _is_comment(word: str) -> bool:
    """Return whether a word is a comment of SQL, with which a query may begin, and no option."""
    return word.startswith("-- ") or (word.startswith("--") and "\n" in word.partition("=")[0])
