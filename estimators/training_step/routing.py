"""How unevenly tokens choose their experts: balanced, or by a power law.

The fullest rank of experts has `load_ratio_of` times the mean number of tokens. A ratio is the time
of a measured kernel, of the fullest rank where the loads of experts follow a power law, over its
time with balanced loads. Time is taken as proportional to tokens, so only shapes with at least 512
rows an expert count: with fewer, a kernel takes as long to read its weights. The ratios are medians
over all programs, accelerators and widths. For 128 experts, eight in ten of the ratios lie from
0.95 to 1.7 on 8 ranks at an exponent of 1.01, and from 1.2 to 3.7 on 64 ranks.

Source: ai-dynamo/aiconfigurator @095f58a51 (Apache-2.0), tables of experts on one GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values

RATIOS: dict[str, dict[int, tuple[float, ...]]] = {
    "power_law_1.01": {
        8: (1.0, 1.31, 1.97, 3.13),
        16: (1.0, 1.39, 1.80, 2.25, 2.93),
        128: (1.0, 1.13, 1.25, 1.39, 1.56, 1.71, 1.80),
        256: (1.0, 1.11, 1.20, 1.31, 1.40, 1.46, 1.49, 1.53),
        512: (1.0, 1.06, 1.13, 1.21, 1.29, 1.37, 1.45, 1.50, 1.60),
    },
    "power_law_1.2": {
        8: (1.0, 1.34, 2.01, 3.24),
        16: (1.0, 1.50, 2.09, 2.62, 3.75),
        128: (1.0, 1.17, 1.35, 1.57, 1.83, 2.08, 2.36, 2.43),
        256: (1.0, 1.17, 1.31, 1.50, 1.67, 1.77, 1.89, 1.92, 1.96),
        512: (1.0, 1.10, 1.20, 1.34, 1.50, 1.62, 1.78, 1.89, 2.07),
    },
}
"""Routing -> number of experts -> ratio on 1, 2, 4, 8 ... ranks.

The measured kernels send a token to 2 of 8 experts, 1 of 16, 8 of 128, 8 of 256 and 22 of 512.
"""


def load_ratio_of(values: Values, layout: Values) -> Any:
    """Return the tokens of the fullest rank of experts over the mean, by `expert_routing`.

    Between measured numbers of experts and of ranks the ratio is linear in their logarithms; beyond
    them it is that of the nearest.

    Parameters
    ----------
    values
        `expert_routing` and `num_experts`: one of each, or one a row.
    layout
        `expert_parallel`, the ranks that share the experts: one, or one a row.

    Returns
    -------
    float or ndarray
        At least 1, without a unit; 1 where the routing is balanced.
    """
    routing = values["expert_routing"]
    found: Any = 1.0
    for name, table in RATIOS.items():
        chosen = np.equal(routing, name)
        if np.any(chosen):
            ratio = _between(table, values["num_experts"], layout["expert_parallel"])
            found = np.where(chosen, ratio, found)
    return found


def _between(table: dict[int, tuple[float, ...]], experts: Any, ranks: Any) -> Any:
    """Return the ratio of a number of experts on a number of ranks."""
    experts, ranks = (np.asarray(each, dtype=np.float64) for each in (experts, ranks))
    sizes, places = np.broadcast_arrays(
        np.log2(np.maximum(experts, 1.0)), np.log2(np.maximum(ranks, 1.0))
    )
    by_size = np.stack([np.interp(places, range(len(row)), row) for row in table.values()])
    known = np.log2(np.array(tuple(table), dtype=np.float64))
    place = np.interp(sizes, known, range(len(known)))
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(known) - 1)
    below, above = (
        np.take_along_axis(by_size, each[np.newaxis], axis=0)[0] for each in (low, high)
    )
    share = place - low
    return (1 - share) * below + share * above
