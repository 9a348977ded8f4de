"""A set of content ids in eight bytes each; a set of Python takes eight times as much."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_WAITING = 65_536
"""Number of ids that are sorted in together, because sorting them one by one takes longer."""


class IdSet:
    """Ids of cells; `add` says which ones are new."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._sorted = np.zeros(0, dtype=np.int64)
        self._waiting: set[int] = set()
        for number in ids:
            self.add(number)

    def __contains__(self, number: int) -> bool:
        """Return whether an id is in the set."""
        if number in self._waiting:
            return True
        place = int(self._sorted.searchsorted(number))
        return place < len(self._sorted) and int(self._sorted[place]) == number

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._sorted) + len(self._waiting)

    def add(self, number: int) -> bool:
        """Add an id; return whether it is new."""
        if number in self:
            return False
        self._waiting.add(number)
        if len(self._waiting) >= _WAITING:
            self._sort()
        return True

    def ids(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the ids, ascending."""
        self._sort()
        return self._sorted

    def _sort(self) -> None:
        waiting = np.fromiter(self._waiting, dtype=np.int64, count=len(self._waiting))
        self._sorted = np.concatenate([self._sorted, waiting])
        self._sorted.sort(kind="stable")
        self._waiting.clear()
