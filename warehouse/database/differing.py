"""Names of what a database has otherwise than it should."""

from __future__ import annotations

from typing import NamedTuple


class Differences(NamedTuple):
    """Names of what is missing or differs; macros are among the views."""

    views: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    references: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return all of them."""
        return self.views | self.tables | self.references
