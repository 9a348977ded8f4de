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
class ProgramTable:
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
        names = (*lists, self.absent_of_experts, self.same)
        return any(flag in each for each in names) or self.section_of(flag) is not None

    def section_of(self, flag: str) -> str | None:
        """Return why nothing is read of the section that an argument is in, if so."""
        parts = flag.split(".")
        above = (".".join(parts[:number]) for number in range(1, len(parts)))
        return next((self.sections[name] for name in above if name in self.sections), None)

    def why_ignored(self, flag: str) -> str | None:
        """Return why an argument changes nothing, if it is one of those."""
        if flag in self.ignored or flag in self.matters or flag in self.flags:
            return self.ignored.get(flag)
        return self.section_of(flag)


@cache
def table(program: str) -> ProgramTable:
    """Return the table of a program; `like` in it names those whose entries it has besides."""
    path = Path(__file__).with_name(f"{program}.toml")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    like = content.get("like", [])
    bases = [table(name) for name in ([like] if isinstance(like, str) else like)]

    def joined(part: str, own: Mapping[str, Any]) -> dict[str, Any]:
        return {key: v for base in bases for key, v in getattr(base, part).items()} | dict(own)

    module = content.get("functions", "megatron")
    ignored, blocks = content.get("ignored", ()), content.get("matters", ())
    reasons = {name: each["because"] for each in ignored for name in each.get("sections", ())}
    own: dict[str, Mapping[str, Any]] = {
        "flags": {name: _flag(entry, module) for name, entry in content.get("flags", {}).items()},
        "ignored": {flag: each["because"] for each in ignored for flag in each["flags"]},
        "matters": {flag: each["does"] for each in blocks for flag in each["flags"]},
        "neutral": {f: texts for each in blocks for f, texts in each.get("neutral", {}).items()},
        "only_with": {f: each["with"] for each in blocks if "with" in each for f in each["flags"]},
        "sections": {**content.get("sections", {}), **reasons},
        **{part: content.get(part, {}) for part in _PLAIN},
    }
    implied = tuple(content.get("implied", next((base.implied for base in bases), ())))
    parts = {part: joined(part, entries) for part, entries in own.items()}
    return ProgramTable(content["name"], content["framework"], implied=implied, **parts)


_PLAIN = ("absent", "absent_of_experts", "refused", "same")


def _flag(entry: Mapping[str, Any], module: str) -> Flag:
    """Return an argument; `by` is the function with its module."""
    given = {{"with": "beside"}.get(key, key): value for key, value in entry.items()}
    return Flag(**given | ({"by": f"{module}.{given['by']}"} if "by" in given else {}))
