"""How unevenly tokens choose their experts: balanced, or by a power law.

Reference table `expert_load` has a ratio by power law, number of experts and number of ranks: the
tokens of the fullest rank of experts over the mean. The ratios are those of measured kernels. Eight
in ten of the kernels lie between `lowest_load_ratio` and `highest_load_ratio`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Values

TABLE = "expert_load"

BALANCED = "balanced"
"""The value of `expert_routing` with which each rank of experts has the mean."""


class MeasuredLoads:
    """The loads of the fullest rank of experts, by routing.

    Parameters
    ----------
    catalog
        Has table `expert_load`.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def ratio(self, values: Values, layout: Values) -> Any:
        """Return the tokens of the fullest rank of experts over the mean, by `expert_routing`.

        Between measured numbers of experts and of ranks the ratio is linear in their logarithms;
        beyond them it is that of the nearest number. With one rank it is 1.

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
        routing = np.asarray(values["expert_routing"], dtype=object)
        laws = self._of_laws()
        found: Any = np.float64(1.0)
        for name in sorted({*routing.ravel()} - {BALANCED}):
            ratio = _between(laws[name], values["num_experts"], layout["expert_parallel"])
            found = np.where(np.equal(routing, name), ratio, found)
        return found

    def _of_laws(self) -> dict[str, dict[int, dict[int, float]]]:
        """Return routing -> number of experts -> number of ranks -> ratio."""
        laws: dict[str, dict[int, dict[int, float]]] = {}
        for row in self._catalog.tables[TABLE].values():
            experts, ranks = int(row["num_experts"] or 0), int(row["expert_parallel"] or 0)
            law = laws.setdefault(str(row["expert_routing"]), {})
            law.setdefault(experts, {})[ranks] = float(row["expert_load_ratio"] or 1.0)
        return laws


def _between(curves: dict[int, dict[int, float]], experts: Any, ranks: Any) -> Any:
    """Return the ratio of a number of experts on a number of ranks."""
    sizes, places = np.broadcast_arrays(*(_log(each) for each in (experts, ranks)))
    known = sorted(curves)
    by_size = np.stack([_curve(curves[each], places) for each in known])
    place = np.interp(sizes, _log(known), range(len(known)))
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(known) - 1)
    below, above = (
        np.take_along_axis(by_size, each[np.newaxis], axis=0)[0] for each in (low, high)
    )
    share = place - low
    return (1 - share) * below + share * above


def _curve(ratios: dict[int, float], places: Array) -> Array:
    """Return the ratios at logarithms of numbers of ranks."""
    known = {1: 1.0, **ratios}
    ranks = sorted(known)
    return np.asarray(np.interp(places, _log(ranks), [known[each] for each in ranks]))


def _log(numbers: Any) -> Array:
    return np.log2(np.maximum(np.asarray(numbers, dtype=np.float64), 1.0))
