"""Runs the shards of a sweep in processes of a cluster, and restarts lost ones.

An engine starts shards on machines that see the lake's folder. The shard of a lost worker starts
again and continues after its last finished cell. A refused input ends the sweep.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.errors import UsageError, WarehouseError
from warehouse.lake.folder import Lake
from warehouse.lake.jobs import EngineName, LostWorkerError, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from warehouse.lake.jobs import Engine, Job

RETRIES = 3
"""Times that a lost shard is started again."""

POLL_SECONDS = 0.5
"""Seconds between two checks of the shards."""


@dataclass(frozen=True)
class EngineReport:
    """The outcome: cells and rows written, and how often a shard was started again."""

    cells: int
    rows: int
    restarts: int


def engine(name: EngineName, folder: Path, options: Mapping[str, str]) -> Engine:
    """Return an engine.

    Parameters
    ----------
    folder
        The lake: Slurm's logs go there.
    options
        Slurm: options of sbatch, such as ``partition``. Ray: arguments of ``ray.init``.
    """
    try:
        if name is EngineName.RAY:
            from warehouse.lake.ray_engine import RayEngine

            return RayEngine(options)
        from warehouse.lake.slurm_engine import SubmititEngine

        return SubmititEngine(folder, options, cluster=str(name))
    except ImportError as error:
        extra = "ray" if name is EngineName.RAY else "slurm"
        raise UsageError(
            f"`--engine` {name} needs the package {error.name}",
            f"install it with `pip install 'training-warehouse[{extra}]'`",
        ) from None


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
    shards = [Shard(number, num_shards) for number in range(1, num_shards + 1)]
    running: dict[Shard, Job] = {}
    losses: Counter[Shard] = Counter()
    cells = rows = 0
    try:
        running |= zip(shards, starter.start(folder, study, shards), strict=True)
        while running:
            ended = [shard for shard, job in running.items() if job.is_done()]
            lost: list[Shard] = []
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
                    lost.append(shard)
                else:
                    cells, rows = cells + report.cells, rows + report.rows
            if lost:
                running |= zip(lost, starter.start(folder, study, lost), strict=True)
            on_cells(lake.num_cells())
            if running and not ended:
                time.sleep(POLL_SECONDS)
    finally:
        for job in running.values():
            job.cancel()
        starter.close()
    return EngineReport(cells, rows, losses.total())
