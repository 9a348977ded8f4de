"""The program and its commands: each command is imported when it runs.

typer imports every command to list them, and pydantic to read a text. Both take longer than most
commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from warehouse.cli.plain_values import read_plainly
from warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

    from warehouse.cli.commands import Entry


class Program(TyperGroup):
    """The options of the program and its commands."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the options."""
        return read_plainly(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """A command that is imported when it runs; before, only its name and summary are known."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.summary, rich_markup_mode=None)
        self._entry = entry

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: Any
    ) -> Context:
        """Import the command and return its context, with what the command line gives it."""
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> Command:
        """Import the command and return it with its options."""
        from warehouse.cli.groups import expanded

        lines = self._entry.example.replace("\n", "\n  ")
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        register = alone.command(
            self._entry.name, cls=_PlainCommand, epilog=f"\b\nExample:\n  {lines}"
        )
        register(expanded(self._entry.function()))
        return typer.main.get_command(alone)


class _PlainCommand(TyperCommand):
    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: Any
    ) -> Context:
        """Return the context; errors name an option as the user wrote it."""
        args = [f" {word}" if _is_comment(word) else word for word in args]
        typed = {word.partition("=")[0] for word in args}  # before parsing takes the words away
        try:
            return super().make_context(info_name, args, parent, **extra)
        except WarehouseError as error:
            for parameter in self.params:
                first, *others = parameter.opts
                written = next((name for name in others if name in typed), first)
                if error.message.startswith(f"`{first}`") and first not in typed:
                    error.message = f"`{written}`{error.message.removeprefix(f'`{first}`')}"
            raise

    def get_params(self, ctx: Context) -> list[Parameter]:
        return read_plainly(super().get_params(ctx))


def _is_comment(word: str) -> bool:
    """Return whether a word is a comment of SQL, with which a query may begin, and no option."""
    return word.startswith("-- ") or (word.startswith("--") and "\n" in word.partition("=")[0])
