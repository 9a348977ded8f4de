"""The protocol of engines: an engine starts shards as jobs on machines that see the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from warehouse.lake.names import Shard
    from warehouse.lake.shard import ShardReport


class LostWorkerError(Exception):
    """A process ended before its shard did: killed, preempted, out of time or memory."""


class Job(Protocol):
    """A shard that was started."""

    def is_done(self) -> bool:
        """Return whether it has ended: finished, refused or lost."""

    def result(self) -> ShardReport:
        """Return the outcome of a job that is done.

        Raises
        ------
        LostWorkerError
            If the process ended before the shard did.
        WarehouseError
            If the shard was refused.
        """

    def cancel(self) -> None:
        """End it, if it has not ended."""


class Engine(Protocol):
    """Starts shards."""

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        """Start shards of a study of a lake; return a job for each."""

    def close(self) -> None:
        """Release the engine's resources."""
