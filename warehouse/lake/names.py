"""Shards and engines, as options name them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from warehouse.errors import UsageError


class EngineName(StrEnum):
    """The engines: processes of this machine, a Slurm array, a Ray cluster."""

    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


@dataclass(frozen=True)
class Shard:
    """One of `of` parts of a study, counted from 1; see `sweep.planned.cells_of_part`."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def read_shard(text: str) -> Shard:
    """Return the shard that ``I/N`` names.

    Raises
    ------
    UsageError
        If the text is not of this form.
    """
    number, _, of = text.partition("/")
    # short texts bound the time of int(), and keep the names of files short
    is_whole = all(part.isdecimal() and len(part) < 10 for part in (number, of))
    if is_whole and 1 <= int(number) <= int(of):
        return Shard(int(number), int(of))
    raise UsageError(
        f"`--shard` {text!r} must be I/N, with I from 1 to N", "the third of eight is 3/8"
    )
