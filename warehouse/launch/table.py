"""The tables of programs: what each argument of a launch file means.

A table is a .toml file of this folder; megatron.toml says what its entries are. It is read in both
directions: `values` and `on` are one-to-one but for spellings of the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FILES = ("megatron",)


@dataclass(frozen=True)
class Flag:
    """An argument that is read: see megatron.toml."""

    column: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    on: Mapping[str, str] = field(default_factory=dict)
    off: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    default_as: str = ""
    beside: str = ""
    by: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it is given without a value."""
        return bool(self.on or self.off)


@dataclass(frozen=True)
class Table:
    """The arguments of a program.

    Attributes
    ----------
    flags
        Arguments that are read.
    ignored
        Argument -> why it changes nothing in the estimates.
    matters
        Argument -> what it does, which is not modelled.
    neutral
        Argument -> values with which it does not.
    only_with
        Argument -> the one without which it does not.
    absent, absent_of_experts
        Argument -> what its absence does, which is not modelled; the second of mixtures.
    refused
        Argument -> what no estimator has.
    same
        Key of a file -> the argument that it means; ``!`` before it: the opposite.
    sections
        Section of a file -> why nothing in it is read.
    implied
        Arguments that are on.
    """

    name: str
    framework: str
    flags: Mapping[str, Flag]
    ignored: Mapping[str, str]
    matters: Mapping[str, str]
    neutral: Mapping[str, list[str]]
    only_with: Mapping[str, str]
    absent: Mapping[str, str]
    absent_of_experts: Mapping[str, str]
    refused: Mapping[str, str]
    same: Mapping[str, str]
    sections: Mapping[str, str]
    implied: tuple[str, ...]

    def knows(self, flag: str) -> bool:
        """Return whether the program has an argument."""
        lists = (self.flags, self.ignored, self.matters, self.refused, self.absent)
        return any(flag in names for names in (*lists, self.absent_of_experts, self.same))


@cache
def table(program: str) -> Table:
    """Return the table of a program; `like` in it names one whose entries it has besides."""
    path = Path(__file__).with_name(f"{program}.toml")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    base = table(content["like"]) if "like" in content else None

    def joined(part: str, own: Mapping[str, Any]) -> dict[str, Any]:
        return {**(getattr(base, part) if base else {}), **own}

    flags = {name: _flag(entry) for name, entry in content.get("flags", {}).items()}
    ignored = {f: each["because"] for each in content.get("ignored", ()) for f in each["flags"]}
    matters = {f: each["does"] for each in content.get("matters", ()) for f in each["flags"]}
    blocks = content.get("matters", ())
    neutral = {f: v for each in blocks for f, v in each.get("neutral", {}).items()}
    only_with = {f: each["with"] for each in blocks if "with" in each for f in each["flags"]}
    plain = ("absent", "absent_of_experts", "refused", "same", "sections")
    return Table(
        content["name"],
        content["framework"],
        joined("flags", flags),
        joined("ignored", ignored),
        joined("matters", matters),
        joined("neutral", neutral),
        joined("only_with", only_with),
        **{part: joined(part, content.get(part, {})) for part in plain},
        implied=tuple(content.get("implied", ())),
    )


def _flag(entry: Mapping[str, Any]) -> Flag:
    return Flag(**{{"with": "beside"}.get(key, key): value for key, value in entry.items()})
