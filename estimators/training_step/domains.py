"""The GPUs that a run has in each NVLink domain."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from estimators.factored import distinct_rows

if TYPE_CHECKING:
    from estimators.values import Real


def gpus_in_domain(num_gpus: Real, nvlink_size: Real) -> Real:
    """Return the GPUs that a run has in each NVLink domain: an aligned slice of it.

    A scheduler allots equal slices of as few domains as possible. A run of 2,048 GPUs has 64 of the
    72 of each NVL72 (Slurm, topology/block: `sbatch --segment=16` for nodes of 4 GPUs). Where no
    equal slice is at least half as large as that of the fewest domains, domains are filled up to
    their share, and the last one has the rest.
    """
    if np.ndim(num_gpus) == 0 and np.ndim(nvlink_size) == 0:
        # a run whose GPUs are not known fills a domain
        return nvlink_size if np.isnan(num_gpus) else _slice(int(num_gpus), int(nvlink_size))
    gpus, size = np.broadcast_arrays(num_gpus, nvlink_size)
    rows, place = distinct_rows({"gpus": gpus, "size": size}, ("gpus", "size"))
    pairs = zip(rows["gpus"].tolist(), rows["size"].tolist(), strict=True)
    return np.array([_slice(int(gpus), int(size)) for gpus, size in pairs]).take(place)


@lru_cache(maxsize=65_536)
def _slice(gpus: int, size: int) -> float:
    fewest = math.ceil(gpus / size)
    equal = (gpus // domains for domains in range(fewest, 2 * fewest + 1) if gpus % domains == 0)
    return float(next(equal, math.ceil(gpus / fewest)))
