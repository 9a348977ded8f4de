"""How unevenly tokens choose their experts: balanced, or by a power law.

Reference table `expert_load` has a ratio by power law, number of experts and number of ranks: the
tokens of the fullest rank of experts over the mean. The ratios are those of measured kernels. Eight
in ten of the kernels lie between `lowest_load_ratio` and `highest_load_ratio`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Catalog
from estimators.values import Real, Text

BALANCED = "balanced"
"""The value of `expert_routing` with which each rank of experts has the mean."""

LOADS = "expert_load"


class MeasuredLoads:
    """The loads of the fullest rank of experts, by routing: those of table `expert_load`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def ratio(self, routing: Text, num_experts: Real, ranks: Real) -> Real:
        """Return the tokens of the fullest rank of experts over the mean, by `expert_routing`.

        Between measured numbers of experts and of ranks the ratio is linear in their logarithms;
        beyond them the nearest number counts. With one rank it is 1, and where the routing
        is balanced.
        """
        names = np.asarray(routing, dtype=object)
        laws = self._of_laws()
        ratio: Real = np.float64(1.0)
        for name in sorted({*names.ravel()} - {BALANCED}):
            by_law = _between(laws[name], num_experts, ranks)
            ratio = np.where(np.equal(names, name), by_law, ratio)
        return ratio

    def _of_laws(self) -> dict[str, dict[int, dict[int, float]]]:
        """Return routing -> number of experts -> number of ranks -> ratio."""
        laws: dict[str, dict[int, dict[int, float]]] = {}
        for row in self._catalog.tables[LOADS].values():
            experts, ranks = int(row["num_experts"] or 0), int(row["expert_parallel"] or 0)
            law = laws.setdefault(str(row["expert_routing"]), {})
            law.setdefault(experts, {})[ranks] = float(row["expert_load_ratio"] or 1.0)
        return laws


def _between(curves: dict[int, dict[int, float]], experts: Real, ranks: Real) -> Real:
    """Return the ratio of a number of experts on a number of ranks."""
    sizes, places = np.broadcast_arrays(_log(experts), _log(ranks))
    known = sorted(curves)
    by_size = np.stack([_curve(curves[size], places) for size in known])
    place = np.interp(sizes, _log(known), range(len(known)))
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(known) - 1)
    below, above = (np.take_along_axis(by_size, end[np.newaxis], axis=0)[0] for end in (low, high))
    share = place - low
    ratio: Real = (1 - share) * below + share * above
    return ratio


def _curve(ratios: dict[int, float], places: Array) -> Array:
    """Return the ratios at logarithms of numbers of ranks."""
    known = {1: 1.0, **ratios}
    ranks = sorted(known)
    return np.asarray(np.interp(places, _log(ranks), [known[number] for number in ranks]))


def _log(numbers: Any) -> Array:
    return np.log2(np.maximum(np.asarray(numbers, dtype=np.float64), 1.0))
