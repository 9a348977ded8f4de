"""Arguments of a program as its file gives them, and what has been read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS
from estimators.contract import RefusedError, Scalar
from warehouse.limits import accept

if TYPE_CHECKING:
    from warehouse.launch.table import Flag, ProgramTable
    from warehouse.studies.toml_files import Faults

Value = str | bool | list[str]
"""A value of an argument: a text, a switch, or several texts."""

OFF = ("none", "null", "false", "auto", "")
"""Values without effect; "auto" is that of the program, or of another file."""


@dataclass(frozen=True)
class Given:
    """Arguments as a file gives them.

    Attributes
    ----------
    values
        Argument -> its value.
    num_gpus
        GPUs of the run; None: the file does not say.
    places
        Argument -> what the file calls it, where that is not ``--argument``.
    columns
        Columns that the file names otherwise: those of a named configuration, or a model's file.
    ignored
        Paths that mean no argument -> why they change nothing.
    unknown
        What is not read -> why, after a semicolon.
    unsettled
        Arguments behind a condition that was not evaluated, with their lines.
    """

    table: ProgramTable
    values: Mapping[str, Value]
    num_gpus: int | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    unsettled: tuple[str, ...] = ()


@dataclass
class Arguments:
    """Arguments being read.

    Attributes
    ----------
    values
        Argument -> its value.
    num_gpus
        GPUs of the run, as far as the file says; None: it does not.
    settled
        Columns of which what the file says does not count: the user gives these or others.
    user
        Column -> its text, of those that the user gives besides.
    places
        Argument -> the path of the key that it is called by in a file of keys.
    columns
        Column -> its value in text.
    notes
        Argument -> what it does, which is not modelled.
    """

    table: ProgramTable
    values: Mapping[str, Value]
    faults: Faults
    num_gpus: int | None = None
    settled: frozenset[str] = frozenset()
    user: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def has(self, flag: str) -> bool:
        """Return whether an argument is given, and not switched off."""
        value = self.values.get(flag)
        return value.lower() not in OFF if isinstance(value, str) else bool(value)

    def differs(self, flag: str) -> bool:
        """Return whether an argument that matters is on, and at no value that changes nothing."""
        other = self.table.only_with.get(flag)
        texts = {text.lower() for text in self.several(flag)}
        is_neutral = bool(texts) and texts <= {*self.table.neutral.get(flag, ())}
        return self.has(flag) and not is_neutral and (other is None or self.has(other))

    def text(self, flag: str, default: str = "") -> str:
        """Return the value of an argument; of several the first."""
        value = self.values.get(flag) if self.has(flag) else default
        return str(value[0] if isinstance(value, list) else value)

    def several(self, flag: str) -> list[str]:
        """Return the values of an argument."""
        value = self.values.get(flag)
        return value if isinstance(value, list) else [self.text(flag)] if self.has(flag) else []

    def number(self, flag: str, default: int) -> int:
        """Return a whole number; a fault is noted, and gives the default."""
        text = self.text(flag, str(default))
        if text.lstrip("-").isdecimal() and len(text) < 19:
            return int(text)
        self.refuse(flag, text, "must be a whole number")
        return default

    def real(self, flag: str, default: float) -> float:
        """Return a number; a fault is noted, and gives the default."""
        try:
            return float(self.text(flag, str(default)))
        except ValueError:
            self.refuse(flag, self.text(flag), "must be a number")
            return default

    def whole(self, column: str, default: int) -> int:
        """Return the value of a column that the user gives, or that has been read."""
        text = self.user.get(column, self.columns.get(column, ""))
        return int(text) if text.isdecimal() else default

    def refuse(self, flag: str, value: object, reason: str, hint: str = "") -> None:
        """Note a fault of an argument."""
        unset = isinstance(value, str) and "$" in value
        if unset:
            reason, hint = "is a variable that the file does not set", "set it there"
        self.faults.add(self.called(flag), value, reason, hint)

    def called(self, flag: str) -> str:
        """Return an argument as the file calls it."""
        of_keys = not any(place.startswith("--") for place in self.places.values())
        is_path = bool(self.places) and of_keys
        return self.places.get(flag, flag.replace("-", "_") if is_path else f"--{flag}")

    def put(self, column: str, value: Scalar, flag: str = "") -> None:
        """Set a column to a value, checked by the data dictionary."""
        if column in self.settled or value is None:
            return
        kind = COLUMNS[column].kind
        given = _typed(kind, value)
        try:
            accepted = accept(COLUMNS[column], given)
        except RefusedError as error:
            for refusal in error.refusals:
                hint = f"it is `{column}`: {COLUMNS[column].meaning}"
                self.refuse(flag or column, value, refusal.reason, hint)
            return
        self.columns[column] = str(accepted).lower() if kind == "bool" else str(accepted)

    def read(self) -> None:
        """Set the columns of arguments that stand for themselves."""
        for name, flag in self.table.flags.items():
            if flag.beside and not self.has(flag.beside):
                continue
            if flag.is_switch:
                for column, value in (flag.on if self.has(name) else flag.off).items():
                    self.put(column, value, name)
            elif flag.column and self.has(name):
                self._valued(name, flag)
            elif flag.default is not None and flag.column not in self.columns:
                self.put(flag.column, flag.default, name)

    def fill(self) -> None:
        """Set the columns whose defaults are other columns."""
        for name, flag in self.table.flags.items():
            is_read = not flag.beside or self.has(flag.beside)
            if flag.default_as and is_read and flag.column not in self.columns:
                self.put(flag.column, self.columns.get(flag.default_as), name)

    def _valued(self, name: str, flag: Flag) -> None:
        text = self.text(name)
        if not flag.values:
            self.put(flag.column, text, name)
        elif text.lower() in flag.values:
            self.put(flag.column, flag.values[text.lower()], name)
        elif flag.column not in self.settled:
            known = ", ".join(flag.values)
            self.refuse(name, text, "is not a value that is modelled", f"known: {known}")


def _typed(kind: str, value: Scalar) -> Any:
    """Return a text as the type of a column, if it is one."""
    if not isinstance(value, str):
        return value
    if kind == "bool":
        return {"true": True, "false": False}.get(value.lower(), value)
    try:
        number = float(value)
    except ValueError:
        return value
    if kind == "int":
        return int(number) if number.is_integer() else number
    return number if kind == "float" else value
