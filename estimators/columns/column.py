"""`Column`, an entry of the data dictionary, and short ways to write common kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

from estimators.columns.forms import FORM_OF_UNIT, IDENTIFIER, PLAIN, SHARE, Form

if TYPE_CHECKING:
    from typing import Unpack

Kind = Literal["int", "float", "bool", "str", "date", "time"]
Better = Literal["lower", "higher", ""]

_STORAGE = {
    "int": "INTEGER",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "date": "DATE",
    "time": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    name, kind, unit, meaning, source
        As documented to users; `unit` is empty for pure numbers and texts.
    storage
        DuckDB type, by default that of the kind.
    minimum, maximum
        Smallest and largest value accepted as input (an integer is also bound by `storage`).
    above
        Exclusive lower bound, for quantities that must be positive.
    choices
        The accepted values, where they are few.
    shown_as
        How its figures are written for people; None: as its unit is.
    heading
        Heading in tables for people; by default its name, with the unit that people read.
    short
        Its name before its value in a layout in one line: `tp` in "tp8".
    better
        Whether "lower" or "higher" values are better; empty where neither is.
    neutral
        The value that means unused: tables omit the column if all rows have this value.
    is_optional
        Whether tables omit it if no row has a value, because some estimators do not have it.
    in_layout
        Whether it is part of a layout.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    source: str = ""
    storage: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    shown_as: Form | None = None
    heading: str = ""
    short: str = ""
    better: Better = ""
    neutral: int | str | None = None
    is_optional: bool = False
    in_layout: bool = False

    def __post_init__(self) -> None:
        """Give the column the heading that follows from its name and form."""
        if not self.heading:
            object.__setattr__(self, "heading", self.form.heading(self.name))

    @property
    def form(self) -> Form:
        """How the column's figures are written for people."""
        if self.kind not in ("int", "float"):
            return PLAIN
        return self.shown_as or FORM_OF_UNIT.get(self.unit, PLAIN)

    @property
    def duckdb_type(self) -> str:
        """DuckDB type of the column in storage."""
        return self.storage or _STORAGE[self.kind]

    @property
    def dtype(self) -> type:
        """Numpy dtype of the column in arithmetic."""
        from estimators.columns.dtypes import DTYPES

        return DTYPES[self.kind]

    def as_real(self) -> Column:
        """Return the column with real values, where an estimator takes degrees as continuous."""
        return replace(self, kind="float", storage="")

    @property
    def comment(self) -> str:
        """Meaning, unit, accepted values and source in one line, for COMMENT ON and docs."""
        unit = f" [{self.unit}]" if self.unit else ""
        choices = f" One of {', '.join(self.choices)}." if self.choices else ""
        source = f" Source: {self.source}." if self.source else ""
        return f"{self.meaning}{unit}.{choices}{source}"


class Facts(TypedDict, total=False):
    """Attributes of a `Column` that the functions below pass on."""

    shown_as: Form
    heading: str
    short: str
    better: Better
    neutral: int | str | None
    is_optional: bool
    in_layout: bool


def count(
    name: str,
    meaning: str,
    unit: str = "",
    source: str = "",
    storage: str = "",
    maximum: float | None = None,
    **facts: Unpack[Facts],
) -> Column:
    """Return a column of a positive whole number."""
    return Column(name, "int", unit, meaning, source, storage, minimum=1, maximum=maximum, **facts)


def identifier(name: str, meaning: str) -> Column:
    """Return a column of a 63-bit number that names something."""
    return Column(name, "int", "", meaning, storage="BIGINT", shown_as=IDENTIFIER)


def positive(
    name: str, unit: str, meaning: str, source: str = "", **facts: Unpack[Facts]
) -> Column:
    """Return a column of a positive real number."""
    return Column(name, "float", unit, meaning, source, above=0, **facts)


def rate(name: str, unit: str, meaning: str, **facts: Unpack[Facts]) -> Column:
    """Return a column of a rate or capacity: bounded, so that no time over- or underflows."""
    return Column(name, "float", unit, meaning, minimum=1, maximum=1e30, **facts)


def latency(name: str, meaning: str, source: str = "", **facts: Unpack[Facts]) -> Column:
    """Return a column of a latency in seconds."""
    return Column(name, "float", "seconds", meaning, source, minimum=0, maximum=1e6, **facts)


def efficiency(name: str, meaning: str, source: str = "", **facts: Unpack[Facts]) -> Column:
    """Return a column of a share of a peak that is reached: above 0, to 1."""
    return Column(name, "float", "", meaning, source, minimum=1e-6, maximum=1, **facts)


def measure(name: str, unit: str, meaning: str, source: str = "", **facts: Unpack[Facts]) -> Column:
    """Return a column of a real number that is not negative."""
    return Column(name, "float", unit, meaning, source, minimum=0, **facts)


def signed(name: str, meaning: str, shown_as: Form) -> Column:
    """Return a column of a pure number of either sign."""
    return Column(name, "float", "", meaning, shown_as=shown_as)


def fraction(name: str, meaning: str, source: str = "", **facts: Unpack[Facts]) -> Column:
    """Return a column of a share: 0 to 1, read as percent."""
    facts.setdefault("shown_as", SHARE)
    return Column(name, "float", "", meaning, source, minimum=0, maximum=1, **facts)


def text(name: str, meaning: str, *choices: str, **facts: Unpack[Facts]) -> Column:
    """Return a column of text, one of `choices` where there are any."""
    return Column(name, "str", "", meaning, choices=choices, **facts)


PAPER = "arXiv 2410.00273"
MEGATRON = "arXiv 2104.04473"
