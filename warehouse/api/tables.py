"""Rows and records as polars frames, with the types of the data dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from warehouse.database.meanings import meaning_of

_TYPES: Mapping[str, type[pl.DataType]] = {
    "int": pl.Int64,
    "float": pl.Float64,
    "bool": pl.Boolean,
    "str": pl.String,
}
"""Kind of a column -> its type in a frame."""


Types = Mapping[str, type[pl.DataType]]
"""Column -> its type in a frame."""


def frame_of_rows(columns: Sequence[str] | Types, rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Return rows as a frame.

    Parameters
    ----------
    columns
        The columns, with their types where their names are not those of the data dictionary. A
        column that neither knows has the type of its values.
    """
    known = {name: meaning_of(name) for name in columns}
    types = {name: _TYPES[one.kind] for name, one in known.items() if one is not None}
    found = pl.DataFrame(
        [tuple(row) for row in rows],
        schema=list(columns),
        schema_overrides=columns if isinstance(columns, Mapping) else types,
        orient="row",
        infer_schema_length=None,
    )
    return found.with_columns(pl.col(pl.Null).cast(pl.String))  # notes that no row has


def frame_of_records(
    records: Iterable[Mapping[str, Any]], columns: Types | None = None
) -> pl.DataFrame:
    """Return records as a frame; a value that a record does not have is null.

    Parameters
    ----------
    columns
        The columns with their types; None: those of all records, in the order in which they first
        occur.
    """
    listed = list(records)
    names = columns or list(dict.fromkeys(name for record in listed for name in record))
    return frame_of_rows(names, ([record.get(name) for name in names] for record in listed))
