"""Shards as a Slurm array, by submitit; the same without Slurm as processes of this machine."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import submitit

from warehouse.errors import UsageError, WarehouseError
from warehouse.lake.jobs import EngineName, LostWorkerError
from warehouse.lake.shard import run_shard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from warehouse.lake.jobs import Job, Shard, ShardReport

LOGS = "logs"
"""Folder of the lake with the output of each job."""

_MINUTES = 24 * 60
"""Default time of a job: Slurm's own default may be minutes."""


class SubmititEngine:
    """Submits shards as jobs.

    Parameters
    ----------
    options
        As `sbatch` has them, without the dashes: ``partition``, ``time``, ``cpus_per_task``.
    cluster
        ``slurm`` or ``local``.
    """

    def __init__(self, folder: Path, options: Mapping[str, str], cluster: str) -> None:
        self._is_local = cluster == EngineName.LOCAL
        self._log = folder / LOGS / "local.log"
        try:
            self._executor = submitit.AutoExecutor(folder / LOGS, cluster=cluster)
            self._executor.update_parameters(
                **{
                    "timeout_min": _MINUTES,
                    "name": "warehouse-sweep",
                    **{_parameter(name): _value(value) for name, value in options.items()},
                }
            )
        except (NameError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(
                f"`--engine` {cluster}: {str(error).partition(chr(10))[0]}",
                "`--engine local` runs the shards on this machine",
            ) from None

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        """Submit shards as one array; see `Engine.start`."""
        # submitit's local processes print a traceback when they are interrupted
        with _errors_go_to(self._log) if self._is_local else nullcontext(), self._executor.batch():
            jobs = [
                self._executor.submit(run_shard, folder.absolute(), study, shard)
                for shard in shards
            ]
        return [_Submitted(job, self._is_local) for job in jobs]

    def close(self) -> None:
        """Do nothing: this engine has no resources."""


class _Submitted:
    def __init__(self, job: submitit.Job[ShardReport], is_local: bool) -> None:
        self._job, self._is_local = job, is_local

    def is_done(self) -> bool:
        return bool(self._job.done())

    def result(self) -> ShardReport:
        if self._is_local and not self._job.paths.result_pickle.exists():
            # submitit would wait for a slow network file system to show the file
            raise LostWorkerError(f"process {self._job.job_id} ended without a result")
        try:
            return self._job.results()[0]
        except submitit.core.utils.FailedJobError as error:
            fault = self._job.exception()
            if isinstance(fault, WarehouseError):
                raise fault from None
            raise LostWorkerError(_last_line(str(fault or error))) from None
        except submitit.core.utils.UncompletedJobError as error:
            raise LostWorkerError(_last_line(str(error))) from None

    def cancel(self) -> None:
        self._job.cancel(check=False)


@contextmanager
def _errors_go_to(log: Path) -> Iterator[None]:
    """Redirect the standard error of processes started in the block to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _parameter(name: str) -> str:
    """Return submitit's name of an option of sbatch."""
    shared = ("timeout_min", "cpus_per_task", "mem_gb", "name")
    plain = name.replace("-", "_")
    return plain if plain in shared else f"slurm_{plain}"


def _value(value: str) -> Any:
    return int(value) if value.isdecimal() else value


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "it left no message"
