"""Estimates of training cost as rows: sweeps search spaces into DuckDB and queries them in SQL."""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Reading package metadata costs more than importing this package; few callers need it.
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("training-warehouse")
        except PackageNotFoundError:
            return "0+unknown"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
