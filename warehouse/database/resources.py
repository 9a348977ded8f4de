"""Directories of SQL, reference tables, studies and the notebook, in the wheel or in a source tree.

Call ``resources.sql_directory()`` with the module, so that a test can replace the directory.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def sql_directory() -> Path:
    """Return the directory of macros.sql, the layers of views and the checks."""
    return _directory("sql", "sql")


def reference_directory() -> Path:
    """Return the directory of the reference tables' CSV files."""
    return _directory("reference", "db/reference")


def studies_directory() -> Path:
    """Return the directory of the studies that come with the package."""
    return _directory("studies", "studies")


def examples_directory() -> Path:
    """Return the directory of the notebook; in the wheel it has no other example."""
    return _directory("examples", "examples")


def cache_directory() -> Path:
    """Return the directory of documents that a release computed ahead; there may be none."""
    return _directory("cache", "build/cache")


def _directory(packed: str, in_source_tree: str) -> Path:
    directory = _PACKAGE / "resources" / packed
    return directory if directory.is_dir() else _PACKAGE.parent / in_source_tree
