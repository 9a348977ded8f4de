"""Timed collectives of NCCL in a node, compared with those of a step.

The time of a collective is a sum of a fixed cost, a latency for each hop, and the bytes that each
GPU sends over its links. Each part has its constant (module `network`):

- an all-gather or reduce-scatter of n GPUs has n - 1 hops and (n - 1) / n of the message,
- an all-reduce has twice both,
- an all-to-all has one hop and (n - 1) / n of the message.

Pairs of GPUs gather at another rate (`pair_ring_share`). The size of a message is that of
NVIDIA/nccl-tests (doc/PERFORMANCE.md): the whole buffer, gathered or not yet scattered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import Columns
from estimators.timings import SECONDS, Compared, TimedInput, TimedKind
from estimators.training_step import network
from estimators.training_step.network import Group

if TYPE_CHECKING:
    from estimators.training_step.problem import Network
    from estimators.values import Array, Real

GATHER, REDUCE, EXCHANGE = "gather", "all_reduce", "alltoall"

SPELLINGS = {
    **dict.fromkeys(("all_gather", "allgather", "reduce_scatter", "reducescatter"), GATHER),
    **dict.fromkeys(("all_reduce", "allreduce"), REDUCE),
    **dict.fromkeys(("alltoall", "all_to_all", "all2all"), EXCHANGE),
}
"""Name of a collective -> the kind whose time it takes."""

COLLECTIVES = (
    TimedInput("collective", choices=SPELLINGS),
    TimedInput("num_gpus", limits=(2, 2**20)),
    TimedInput("message_bytes", limits=(1, 2**40)),
    SECONDS,
)

RATIOS = {"pair_ring_share": 1.0, "all_reduce_ratio": 2.0}
"""Constant that is a ratio to the rate of gathers -> the largest value that it may have."""

FASTEST = 1.02
"""A gathering faster than this times its links is a mistake. An all-reduce may be twice as fast:
where switches add up, a GPU sends its part once (NVLS)."""


def compare_collectives(columns: Columns, links: Network) -> Compared:
    """Compare collectives inside a node with those of a step; `columns` are `COLLECTIVES`."""
    sort, seconds = columns["collective"], columns["seconds"]
    gpus = np.asarray(columns["num_gpus"], dtype=np.float64)
    message = np.asarray(columns["message_bytes"], dtype=np.float64)
    gathers, reduces, exchanges = (np.equal(sort, name) for name in (GATHER, REDUCE, EXCHANGE))
    group = Group(gpus, links.nvlink_size)
    sent = np.where(reduces, 2.0, 1.0) * (gpus - 1) / gpus * message
    ratio = np.where(reduces, links.all_reduce_ratio, 1.0)
    link = links.nvlink_bytes_per_second
    rate = np.where(
        exchanges,
        link * links.alltoall_efficiency * network.link_share(gpus, links),
        network.bandwidth(group, links, ratio),
    )
    hops = np.where(exchanges, 1.0, np.where(reduces, 2.0, 1.0) * (gpus - 1))
    latency = hops * links.nvlink_latency_seconds
    every = np.ones(len(seconds), dtype=bool)
    moving = sent / rate
    is_pair = gathers & np.equal(gpus, 2)
    parts: tuple[tuple[str, str, Array, Real], ...] = (
        (
            "collective_seconds",
            "fixed cost of collectives",
            every,
            links.collective_seconds,
        ),
        ("nvlink_latency_seconds", "hops of collectives", every, latency),
        ("nvlink_efficiency", "bytes of gathers and scatters", gathers & ~is_pair, moving),
        ("pair_ring_share", "bytes between two GPUs", is_pair, moving),
        ("all_reduce_ratio", "bytes of all-reduces", reduces, moving),
        ("alltoall_efficiency", "bytes of all-to-alls", exchanges, moving),
    )
    read = sum(np.where(rows, part, 0.0) for _, _, rows, part in parts)
    kinds = tuple(
        TimedKind(
            constant,
            name,
            rows,
            np.where(rows, part, 0.0) / read,
            is_cost=constant.endswith("_seconds"),
            base="nvlink_efficiency" if constant in RATIOS else "",
            highest=RATIOS.get(constant, np.inf),
        )
        for constant, name, rows, part in parts
    )
    is_wide = gpus > links.nvlink_size
    fastest = np.where(reduces, 2.0, 1.0) * FASTEST
    left_out = {
        "of more GPUs than NVLink joins": is_wide,
        "faster than the links": ~is_wide & (sent / seconds > fastest * link),
    }
    is_out = np.logical_or.reduce([*left_out.values()])
    return Compared(
        np.where(is_out, np.nan, seconds / read),
        kinds,
        {reason: rows for reason, rows in left_out.items() if rows.any()},
        {kind.constant: float(getattr(links, kind.constant)) for kind in kinds},
    )
