"""GPU counts as they are sold: whole servers, or a power of two below one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.plan.question import TrainingRun

_SERVER = 8
"""GPUs of a server of up to eight that share NVLink, as DGX and HGX have (NVIDIA DGX H100 User
Guide, introduction)."""

_TRAY = 4
"""GPUs of a compute tray of a wider domain (NVIDIA GB200 NVL72: 18 trays of four)."""


def server_size(run: TrainingRun) -> int:
    """Return the GPUs of one server of the system."""
    domain = int(run.problem.get("nvlink_size") or 1)
    return _TRAY if domain > _SERVER else domain


def is_sold(num_gpus: int, server: int) -> bool:
    """Return whether a count is whole servers, or a power of two below one server."""
    if num_gpus < server:
        return num_gpus & (num_gpus - 1) == 0
    return num_gpus % server == 0


def multiples(least: int, most: int, unit: int) -> range:
    """Return the multiples of `unit` from `least` to `most`, both included."""
    return range(-(-least // unit) * unit, most + 1, unit)


def sold_between(least: int, most: int, server: int) -> Sequence[int]:
    """Return the counts that are sold from `least` to `most`, both included; `least` is above 0."""
    servers = multiples(least, most, server)
    if least >= server:
        return servers
    below = [n for n in range(least, min(most, server - 1) + 1) if is_sold(n, server)]
    return [*below, *servers]


def next_sold(num_gpus: int, server: int) -> tuple[int | None, int]:
    """Return the counts that are sold below and above one; None: there is none below."""
    if num_gpus < server:
        above = 1 << num_gpus.bit_length()
        below = 1 << (num_gpus - 1).bit_length() - 1 if num_gpus > 1 else None
        return below, min(above, server)
    smaller = num_gpus // server * server
    if smaller == num_gpus:
        smaller -= server
    return smaller or server // 2 or None, num_gpus // server * server + server
