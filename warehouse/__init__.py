"""Estimates of training cost as rows: sweeps search spaces into DuckDB and queries them in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.api.warehouse import Warehouse

    __version__: str

__all__ = ["Warehouse", "__version__"]


def __getattr__(name: str) -> Any:
    # Few importers need these names: the package's metadata, and DuckDB with polars.
    if name == "Warehouse":
        from warehouse.api.warehouse import Warehouse

        return Warehouse
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("training-warehouse")
        except PackageNotFoundError:
            return "0+unknown"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
