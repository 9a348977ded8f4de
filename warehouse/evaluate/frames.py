"""Records of a polars frame: their types checked, their values read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.columns import COLUMNS
from estimators.contract import Refusal
from warehouse.errors import CONTROL
from warehouse.evaluate.texts import (
    broken_limits,
    checked_flags,
    checked_texts,
    control_characters,
    missing,
)
from warehouse.limits import LINE_MARKS, control_character, kind_in_words, plain_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.columns import Column
    from estimators.contract import Array, Relation


def wrong_types(
    frame: pl.DataFrame, inputs: Sequence[str], names: Sequence[str] = ()
) -> list[Refusal]:
    """Return a refusal for each column whose type, or a character of its name, is not admitted.

    The dictionary says the types of `inputs`; `names` are columns of names and remarks, which may
    be numbers or dates as well.
    """
    refusals = refused_names(frame.columns)
    for name, dtype in frame.schema.items():
        if dtype == pl.Null or _is_text(dtype):
            continue
        if name in inputs and not _fits(COLUMNS[name], dtype):
            refusals.append(wrong_type(frame[name], kind_in_words(COLUMNS[name])))
        elif name in names and has_parts(dtype):
            refusals.append(wrong_type(frame[name], "a text"))
    return refusals


def refused_names(names: Sequence[str]) -> list[Refusal]:
    """Return a refusal for each column whose name has a control character."""
    return [
        Refusal("column", name, reason, "rename it")
        for name in names
        if (reason := control_character(name, LINE_MARKS))
    ]


def wrong_type(series: pl.Series, kind: str) -> Refusal:
    """Return the refusal of a column that must hold values of another kind, such as a text."""
    first = str(series.to_list()[0]) if len(series) else None
    reason = f"is a column of type {series.dtype}; it must hold {kind} in each row"
    return Refusal(series.name, first, reason)


def has_parts(dtype: pl.DataType) -> bool:
    """Return whether values of a type are lists, structs or bytes: neither number nor text."""
    return dtype.is_nested() or dtype in (pl.Binary, pl.Object)


def read_columns(
    block: pl.DataFrame, inputs: Sequence[str], relation: Relation
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the input columns of `block` and every refused value, also of columns not read.

    A missing or empty cell is NaN in a column of numbers and None in a column of texts or flags.
    A column that the block does not have is missing in every cell.
    """
    columns: dict[str, Array] = {}
    refusals: list[Refusal] = _empty_rows(block)
    given = _normalised(block, inputs, relation)
    for name in inputs:
        column = relation.column(name)
        if name not in given.columns:
            columns[name] = missing(column, block.height)
            continue
        if column.kind == "bool":
            columns[name], refused = checked_flags(
                column, given[name].to_list(), block[name].to_list()
            )
        elif column.kind == "str":
            columns[name], refused = checked_texts(column, given[name].to_list())
        else:
            columns[name], refused = _read_numbers(column, given[name])
        refusals += refused
    for name in block.columns:
        if name not in inputs and _is_text(block.schema[name]):
            texts = block[name].cast(pl.String)
            if texts.str.contains(CONTROL).any():
                # a column that is not read may have texts of several lines
                refusals += control_characters(name, texts.to_list(), LINE_MARKS)
    return columns, refusals


def _normalised(block: pl.DataFrame, inputs: Sequence[str], relation: Relation) -> pl.DataFrame:
    """Return the input columns that are given, flags and texts as texts without blanks.

    One query covers all columns, because each polars query takes a millisecond.
    """
    values = []
    for name in inputs:
        if name not in block.columns or block.schema[name] == pl.Null:
            continue
        column, dtype = relation.column(name), block.schema[name]
        value = pl.col(name)
        if column.kind in ("str", "bool") or _is_text(dtype):
            value = _without_blanks(value)
        spellings = relation.spellings.get(name)
        if spellings is not None:
            plain = _without_blanks(value).str.to_lowercase().str.replace_all("[- ]", "_")
            value = _without_blanks(plain.replace(dict(spellings)))
        values.append(value)
    return block.select(values)


def _without_blanks(text: pl.Expr) -> pl.Expr:
    plain = text.cast(pl.String).str.strip_chars()
    return pl.when(plain != "").then(plain)


def _read_numbers(column: Column, given: pl.Series) -> tuple[Array, list[Refusal]]:
    numbers = given.cast(pl.Float64, strict=False)
    refusals = []
    if numbers.null_count() > given.null_count():
        unread = (given.is_not_null() & numbers.is_null()).arg_true()
        reason = f"must be {kind_in_words(column)}"
        refusals = [
            Refusal(column.name, given[i], reason, plain_number(column, given[i]), i)
            for i in unread
        ]
    is_missing = np.zeros(len(numbers), dtype=bool)
    if numbers.null_count():
        is_missing = numbers.is_null().to_numpy().copy()
    values = numbers.to_numpy()
    return values, refusals + broken_limits(column, values, is_missing, given.__getitem__)


def stripped(series: pl.Series) -> pl.Series:
    """Return texts without surrounding blanks; empty ones are missing."""
    return series.to_frame().select(_without_blanks(pl.col(series.name))).to_series()


def _empty_rows(block: pl.DataFrame) -> list[Refusal]:
    empty = block.select(pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
    return [Refusal("row", None, "has no value at all", "remove it", row) for row in empty]


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def _fits(column: Column, dtype: pl.DataType) -> bool:
    if column.kind == "bool":
        return dtype == pl.Boolean or dtype.is_numeric()
    return column.kind in ("int", "float") and dtype.is_numeric()
