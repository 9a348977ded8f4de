"""Runs the shards of a sweep in processes of a cluster, and restarts lost ones.

An engine starts shards on machines that see the lake's folder: as tasks of Ray, as an array of
Slurm, or by the same package (submitit) as processes of this machine. The shard of a lost worker
starts again and continues after its last finished cell. A refused input ends the sweep.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warehouse.errors import UsageError, WarehouseError
from warehouse.lake.folder import Lake
from warehouse.lake.jobs import EngineName, LostWorkerError, Shard
from warehouse.lake.shard import run_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from warehouse.lake.jobs import Engine, Job, ShardReport

RETRIES = 3
"""Times that a lost shard is started again."""

POLL_SECONDS = 0.5
"""Seconds between two checks of the shards."""

LOGS = "logs"
"""Folder of the lake with the output of each job."""

_MINUTES = 24 * 60
"""Default time of a job: Slurm's own default may be minutes."""

_SHARED_OPTIONS = ("timeout_min", "cpus_per_task", "mem_gb", "name")
"""Options that submitit has for every cluster; it names the others ``slurm_...``."""


@dataclass(frozen=True)
class EngineReport:
    """The outcome: cells and rows written, and how often a shard was started again."""

    cells: int
    rows: int
    restarts: int


def run_shards(
    starter: Engine,
    folder: Path,
    study: str,
    num_shards: int,
    *,
    retries: int = RETRIES,
    on_cells: Callable[[int], None] = lambda _cells: None,
) -> EngineReport:
    """Run every shard of a study of a lake; start lost ones again."""
    lake = Lake(folder)
    waiting = [Shard(number, num_shards) for number in range(1, num_shards + 1)]
    running: dict[Shard, Job] = {}
    losses: Counter[Shard] = Counter()
    cells = rows = 0
    try:
        while waiting or running:
            if waiting:
                running |= zip(waiting, starter.start(folder, study, waiting), strict=True)
                waiting = []
            ended = [shard for shard, job in running.items() if job.is_done()]
            for shard in ended:
                try:
                    report = running.pop(shard).result()
                except LostWorkerError as error:
                    losses[shard] += 1
                    if losses[shard] > retries:
                        raise WarehouseError(
                            f"shard {shard} of {study} was lost {losses[shard]} times: {error}",
                            "written cells stay; the same command goes on with the rest",
                        ) from None
                    waiting.append(shard)
                else:
                    cells, rows = cells + report.cells, rows + report.rows
            on_cells(lake.num_cells())
            if running and not ended:
                time.sleep(POLL_SECONDS)
    finally:
        for job in running.values():
            job.cancel()
        starter.close()
    return EngineReport(cells, rows, losses.total())


def engine(name: EngineName, folder: Path, options: Mapping[str, str]) -> Engine:
    """Return an engine.

    Parameters
    ----------
    folder
        The lake: Slurm's logs go there.
    options
        Slurm: options of sbatch without dashes, such as ``partition``. Ray: arguments of
        ``ray.init``.
    """
    is_ray = name is EngineName.RAY
    values = {key: int(text) if text.isdecimal() else text for key, text in options.items()}
    try:
        return RayEngine(values) if is_ray else SubmititEngine(folder, values, str(name))
    except ImportError as error:
        raise UsageError(
            f"`--engine` {name} needs the package {error.name}",
            f"install it with `pip install 'training-warehouse[{'ray' if is_ray else 'slurm'}]'`",
        ) from None
    except (ConnectionError, NameError, RuntimeError, TypeError, ValueError) as error:
        hint = "`--engine local` runs the shards on this machine"
        if is_ray:
            hint = "give the cluster as --engine-option address=HOST:PORT"
        raise UsageError(f"`--engine` {name}: {str(error).partition(chr(10))[0]}", hint) from None


class RayEngine:
    """Runs shards on the cluster that Ray finds, or on the cores of this machine."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        import ray  # here: each engine needs its own package

        self._owns = not ray.is_initialized()
        if self._owns:
            ray.init(include_dashboard=False, log_to_driver=False, **options)
        # Lost shards are started again by `run_shards`, which counts them.
        self._task = ray.remote(max_retries=0)(run_shard)

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        """Start a task for each shard; see `Engine.start`."""
        return [_Task(self._task.remote(folder.absolute(), study, shard)) for shard in shards]

    def close(self) -> None:
        """Leave the cluster, unless the caller had joined it before."""
        import ray

        if self._owns:
            ray.shutdown()


class _Task:
    def __init__(self, reference: Any) -> None:
        import ray

        self._ray: Any = ray
        self._reference = reference

    def is_done(self) -> bool:
        return bool(self._ray.wait([self._reference], timeout=0)[0])

    def result(self) -> ShardReport:
        try:
            report: ShardReport = self._ray.get(self._reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise LostWorkerError(str(error).partition("\n")[0]) from None
        return report

    def cancel(self) -> None:
        self._ray.cancel(self._reference, force=True)


class SubmititEngine:
    """Submits shards as jobs to cluster ``slurm`` or ``local``."""

    def __init__(self, folder: Path, options: Mapping[str, Any], cluster: str) -> None:
        import submitit

        self._is_local = cluster == EngineName.LOCAL
        self._log = folder / LOGS / "local.log"
        self._executor = submitit.AutoExecutor(folder / LOGS, cluster=cluster)
        parameters: dict[str, Any] = {"timeout_min": _MINUTES, "name": "warehouse-sweep"}
        for option, value in options.items():
            name = option.replace("-", "_")
            parameters[name if name in _SHARED_OPTIONS else f"slurm_{name}"] = value
        self._executor.update_parameters(**parameters)

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
    def __init__(self, job: Any, is_local: bool) -> None:
        self._job, self._is_local = job, is_local

    def is_done(self) -> bool:
        return bool(self._job.done())

    def result(self) -> ShardReport:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        if self._is_local and not self._job.paths.result_pickle.exists():
            # submitit would wait for a slow network file system to show the file
            raise LostWorkerError(f"process {self._job.job_id} ended without a result")
        try:
            report: ShardReport = self._job.results()[0]
        except FailedJobError as error:
            fault = self._job.exception()
            if isinstance(fault, WarehouseError):
                raise fault from None
            raise LostWorkerError(_last_line(str(fault or error))) from None
        except UncompletedJobError as error:
            raise LostWorkerError(_last_line(str(error))) from None
        return report

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


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "it left no message"
