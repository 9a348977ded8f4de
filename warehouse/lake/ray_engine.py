"""Shards as tasks of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray

from warehouse.errors import UsageError
from warehouse.lake.jobs import LostWorkerError
from warehouse.lake.shard import run_shard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from warehouse.lake.jobs import Job, Shard, ShardReport


class RayEngine:
    """Runs shards on the cluster that Ray finds, or on the cores of this machine."""

    def __init__(self, options: Mapping[str, str]) -> None:
        arguments: dict[str, Any] = {
            name: int(value) if value.isdecimal() else value for name, value in options.items()
        }
        self._owns = not ray.is_initialized()
        try:
            if self._owns:
                ray.init(include_dashboard=False, log_to_driver=False, **arguments)
        except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(
                f"`--engine` ray: {str(error).partition(chr(10))[0]}",
                "give the cluster as --engine-option address=HOST:PORT",
            ) from None
        # Lost shards are started again by `run_shards`, which counts them.
        self._task = ray.remote(max_retries=0)(run_shard)

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        """Start a task for each shard; see `Engine.start`."""
        place = folder.absolute()
        return [_Task(self._task.remote(place, study, shard)) for shard in shards]

    def close(self) -> None:
        """Leave the cluster, unless the caller had joined it before."""
        if self._owns:
            ray.shutdown()


class _Task:
    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def is_done(self) -> bool:
        return bool(ray.wait([self._reference], timeout=0)[0])

    def result(self) -> ShardReport:
        try:
            report: ShardReport = ray.get(self._reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise LostWorkerError(str(error).partition("\n")[0]) from None
        return report

    def cancel(self) -> None:
        ray.cancel(self._reference, force=True)
