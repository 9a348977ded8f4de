"""Layers that cells of a search share: cells that differ in the GPUs or in the batch alone.

A layer's work at full clock depends on neither. Such cells follow one another, and have most ways
to split a layer in common. So the ways of all cells so far make one table. Cells of another
system, or with other recomputation, compute it once and read their own rows. That is for dense
models: their tables are short, and calls take longer than arithmetic. Mixtures have long ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Values
from estimators.factored import distinct
from estimators.training_step.layer import LAYER_KEYS, FullClock
from estimators.training_step.search import DEPENDS_ON

FREE = frozenset({"num_gpus", "global_batch_size"})
"""Values that the work of a layer must not depend on: it does not get them."""

_LARGEST = 4
"""Rows of a shared table over those of a cell, at most: else the cell takes its own."""

_TABLES_KEPT, _WORK_KEPT = 64, 4

Table = Mapping[str, Array]

_tables: OrderedDict[tuple[Any, ...], Table] = OrderedDict()
_work: OrderedDict[tuple[Any, ...], tuple[Catalog, Table, FullClock]] = OrderedDict()


class SharedLayers:
    """The layers of one cell.

    Parameters
    ----------
    values
        The cell's values, as its estimator takes them.
    """

    def __init__(self, values: Values, catalog: Catalog) -> None:
        self._catalog = catalog
        self._own = tuple(item for item in values.items() if item[0] not in FREE)
        self._of_rows = tuple(item for item in self._own if item[0] in DEPENDS_ON)

    def table(self, own: Table) -> tuple[Table, Array | None]:
        """Return a table of layers that has those of the cell, and the place of each in it.

        It is the table of all cells so far if that has them already, and else the cell's own, with
        None for the places: to compute a table anew for a few more layers would gain nothing.

        Parameters
        ----------
        own
            Columns `LAYER_KEYS` of the cell's layers, each once.
        """
        known, size = _tables.get(self._of_rows), len(own[LAYER_KEYS[0]])
        if known is None:
            known = {name: own[name][:0] for name in LAYER_KEYS}
        before = len(known[LAYER_KEYS[0]])
        if before > _LARGEST * size:
            return own, None
        both = {name: np.concatenate([known[name], own[name]]) for name in LAYER_KEYS}
        found, place = distinct(both, LAYER_KEYS)
        if len(found[LAYER_KEYS[0]]) > before:
            _keep(_tables, self._of_rows, found, _TABLES_KEPT)
            return own, None
        _keep(_tables, self._of_rows, known, _TABLES_KEPT)
        return known, place[before:]

    def once(
        self, values: Values, table: Table, work: Callable[[Values, Values], FullClock]
    ) -> FullClock:
        """Return the work of the layers of a table, that of the last cell if it is the same.

        Parameters
        ----------
        values
            Those of a kind of layer, with derived ones.
        work
            Computes it from values and layouts.
        """
        key = (*self._own, values["sparse_share"])
        catalog, rows, found = _work.get(key, (None, None, None))
        if found is None or rows is not table or catalog is not self._catalog:
            found = work({n: value for n, value in values.items() if n not in FREE}, table)
        _keep(_work, key, (self._catalog, table, found), _WORK_KEPT)
        return found


def _keep(
    kept: OrderedDict[tuple[Any, ...], Any], key: tuple[Any, ...], new: Any, most: int
) -> None:
    kept[key] = new
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def forget() -> None:
    """Forget the layers of all cells so far."""
    _tables.clear()
    _work.clear()
