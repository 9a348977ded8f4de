"""Values of options and arguments, read without pydantic; a value given twice is refused.

typer reads each value with pydantic, which takes a tenth of a second to import. Texts, flags, paths
and choices do not need it. Unusual and wrong values are left to typer, which has the messages.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from typer.core import TyperArgument, TyperOption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typer._click import Context, Parameter
    from typer._click.core import ParameterSource
    from typer._click.parser import _OptionParser
    from typer._coercion import RuntimeParam
    from typer.models import ParameterInfo


def read_plainly(parameters: list[Parameter]) -> list[Parameter]:
    """Make typer's parameters read their values without pydantic where possible; return them."""
    for parameter in parameters:
        if type(parameter) is TyperOption:
            parameter.__class__ = _Option
        elif type(parameter) is TyperArgument:
            parameter.__class__ = _Argument
    return parameters


class _Option(TyperOption):
    def add_to_parser(self, parser: _OptionParser, ctx: Context) -> None:
        """Make the parser collect the values: typer would keep the last and forget the others."""
        if self.is_flag or self.multiple:
            super().add_to_parser(parser, ctx)
            return
        parser.add_option(
            obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs
        )

    def consume_value(self, ctx: Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        values = opts.get(self.name)
        if values is None or self.is_flag or self.multiple:
            return super().consume_value(ctx, opts)
        if len(set(values)) > 1 and not ctx.resilient_parsing:
            raise _given_twice(self, values)
        return super().consume_value(ctx, {**opts, self.name: values[-1]})

    def get_runtime_param(self) -> RuntimeParam:
        return cast("RuntimeParam", _Reader(self, super().get_runtime_param))


def _given_twice(option: TyperOption, values: Sequence[str]) -> Exception:
    """Return the error for an option that takes one value and was given several."""
    from warehouse.errors import UsageError

    times = "twice" if len(values) == 2 else f"{len(values)} times"
    hint = "give one; run the command once for each"
    if "," in str(option.metavar):
        hint = f"give it once, with commas: {option.opts[0]} {','.join(values)}"
    return UsageError(f"`{option.opts[0]}` is given {times}: {', '.join(values)}", hint)


class _Argument(TyperArgument):
    def get_runtime_param(self) -> RuntimeParam:
        return cast("RuntimeParam", _Reader(self, super().get_runtime_param))


class _Reader:
    """Replaces typer's reader of one parameter; `typers` makes that reader."""

    def __init__(
        self, parameter: TyperOption | TyperArgument, typers: Callable[[], RuntimeParam]
    ) -> None:
        self._parameter = parameter
        self._typers = typers

    def coerce(self, value: Any, param: TyperOption | TyperArgument, ctx: Context) -> Any:
        try:
            return self._read(value)
        except ValueError:
            return self._typers().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any) -> Any:
        """Return the value; raise ValueError if typer has to read it."""
        is_list = self._parameter.multiple or self._parameter.nargs == -1
        if value is None:
            return () if is_list else None
        described = self._parameter.type_descriptor
        info, kind = described.parameter_info, described.annotation
        if is_list:
            if kind != list[str] or info.parser is not None or isinstance(value, str):
                raise ValueError
            return [_text(each) for each in value]
        if info.parser is not None:
            return info.parser(value)
        if kind is str:
            return _text(value)
        if kind is Path and not _is_checked(info):
            return Path(value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return _choice(value, kind, info.case_sensitive)
        if kind in (bool, float) and isinstance(value, kind):
            return value
        raise ValueError


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _is_checked(info: ParameterInfo) -> bool:
    """Return whether typer checks the file at a path."""
    named = ("exists", "readable", "writable", "resolve_path", "allow_dash", "path_type")
    return not (info.file_okay and info.dir_okay) or any(getattr(info, name) for name in named)


def _choice(value: Any, kind: type[Enum], is_case_sensitive: bool) -> Enum:
    """Return the member that a text names, or the member itself."""
    if isinstance(value, kind):
        return value
    for member in kind:
        name = str(member.value)
        if value == name or (not is_case_sensitive and value.casefold() == name.casefold()):
            return member
    raise ValueError
