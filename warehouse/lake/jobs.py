"""Shards and the engines that run them: names, and the protocol of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from warehouse.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class EngineName(StrEnum):
    """The engines: processes of this machine, a Slurm array, a Ray cluster."""

    LOCAL = "local"
    SLURM = "slurm"
    RAY = "ray"


@dataclass(frozen=True)
class Shard:
    """One of `of` parts of a study, counted from 1; see `parts.cells_of_shard`."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class ShardReport:
    """The outcome of a shard: cells and rows that this run wrote, and cells of earlier runs."""

    study: str
    shard: Shard
    cells: int
    rows: int
    cells_before: int
    seconds: float


def read_shard(text: str) -> Shard:
    """Return the shard that ``I/N`` names."""
    number, _, of = text.partition("/")
    # short texts bound the time of int(), and keep the names of files short
    is_whole = all(part.isdecimal() and len(part) < 10 for part in (number, of))
    if is_whole and 1 <= int(number) <= int(of):
        return Shard(int(number), int(of))
    raise UsageError(
        f"`--shard` {text!r} must be I/N, with I from 1 to N", "the third of eight is 3/8"
    )


class LostWorkerError(Exception):
    """A process ended before its shard did: killed, preempted, out of time or memory."""


class Job(Protocol):
    """A shard that was started."""

    def is_done(self) -> bool:
        """Return whether it has ended: finished, refused or lost."""

    def result(self) -> ShardReport:
        """Return the outcome of a job that is done; raise `LostWorkerError` if it was lost."""

    def cancel(self) -> None:
        """End it, if it has not ended."""


class Engine(Protocol):
    """Starts shards."""

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        """Start shards of a study of a lake; return a job for each."""

    def close(self) -> None:
        """Release the engine's resources."""
