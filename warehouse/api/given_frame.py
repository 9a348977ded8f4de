"""Rows that users give to a method, as polars frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from warehouse.errors import InputError, UsageError


class Arrow(Protocol):
    """A table of another library, such as pyarrow or pandas."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""
        ...


Rows = (
    pl.DataFrame
    | pl.LazyFrame
    | Arrow
    | Mapping[str, Sequence[Any]]
    | Sequence[Mapping[str, Any]]
    | str
    | Path
)
"""Rows as methods take them; texts are paths."""

_TAKEN = (
    "a polars or pandas frame, a pyarrow table, a dict of columns, a list of dicts, or the path of "
    "a .csv or .parquet file"
)


def is_table(given: Any) -> bool:
    """Return whether a value is a frame or table of a library, not a scalar or collection."""
    return (
        isinstance(given, pl.LazyFrame)
        or hasattr(given, "__arrow_c_stream__")
        or (_is_of_pandas(given) and hasattr(given, "columns"))  # pandas before 2.2
    )


def given_frame(given: Any, name: str = "frame") -> pl.DataFrame:
    """Return rows that polars can read as a frame; errors call them `name`."""
    if isinstance(given, pl.DataFrame):
        return given
    try:
        frame = _read(given)
    except Exception as error:  # polars raises errors of Python, of pyarrow and of its own
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"`{name}`: polars cannot read this {_type_of(given)}: {reason}"
        ) from error
    if not isinstance(frame, pl.DataFrame):
        raise UsageError(f"`{name}` is of type {_type_of(given)}", f"give {_TAKEN}")
    return frame


def _read(given: Any) -> pl.DataFrame | None:
    if isinstance(given, pl.LazyFrame):
        return given.collect()
    if _is_of_pandas(given):
        has_names = any(getattr(given, "index", given).names)
        return pl.from_pandas(given, include_index=has_names)  # its missing numbers are NaN
    if hasattr(given, "__arrow_c_stream__"):
        return pl.DataFrame(given)
    if isinstance(given, Mapping):
        return pl.DataFrame(dict(given))
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
        return pl.DataFrame([dict(row) for row in given], infer_schema_length=None)
    return None


def _is_of_pandas(given: Any) -> bool:
    return _type_of(given).startswith("pandas.")


def _type_of(given: Any) -> str:
    kind = type(given)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
