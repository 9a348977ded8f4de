"""From a frame's rows to the columns an estimator reads, held against the data dictionary."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.columns import COLUMNS, Column
from estimators.columns.records import RECORD, REFERENCE
from estimators.contract import Array, Refusal
from estimators.limits import limits_of
from warehouse.limits import kind_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from estimators.contract import Estimator, Relation


def input_names(estimator: Estimator, relation: Relation) -> tuple[str, ...]:
    """Return the columns that the estimator reads for `relation`, in order."""
    named = (
        *estimator.problem_columns,
        *estimator.choice_columns,
        *relation.keys,
        *estimator.input_columns,
    )
    without = {*relation.outputs, *relation.unread}
    return tuple(name for name in dict.fromkeys(named) if name not in without)


def likely_misspelt(names: Sequence[str], inputs: Sequence[str]) -> dict[str, str]:
    """Return unknown columns whose name is close to an input's, with that input."""
    unknown = [name for name in names if name not in inputs and name not in COLUMNS]
    near = {name: get_close_matches(name.strip().lower(), inputs, 1, 0.85) for name in unknown}
    return {name: found[0] for name, found in near.items() if found}


def source_spellings(
    names: Sequence[str], inputs: Sequence[str], aliases: Mapping[str, str]
) -> dict[str, str]:
    """Return columns that are not read but spelt as in the estimator's source, with the input."""
    found = {name: aliases.get(name.strip(), "") for name in names if name not in inputs}
    return {name: column for name, column in found.items() if column in inputs}


def columns_of_other_views(
    names: Sequence[str], inputs: Sequence[str], relation: Relation
) -> list[str]:
    """Return columns of stored rows that the relation neither reads nor gives, nor any record has.

    Rows that have one come from a view such as configuration, whose columns may lack inputs or
    mean something else than the input of that name.
    """
    if "cell_id" not in names:
        return []
    own = {*inputs, *relation.outputs, *(column.name for column in (*RECORD, *REFERENCE))}
    return [name for name in names if name in COLUMNS and name not in own]


def wrong_types(frame: pl.DataFrame, inputs: Sequence[str]) -> list[Refusal]:
    """Return a refusal for each input column that cannot hold what the dictionary says."""
    refusals = []
    for name in inputs:
        if name not in frame.columns:
            continue
        column, dtype = COLUMNS[name], frame.schema[name]
        if not (dtype == pl.Null or _is_text(dtype) or _fits(column, dtype)):
            reason = (
                f"is a column of type {dtype}; it must hold {kind_in_words(column)} in each row"
            )
            refusals.append(Refusal(name, str(frame[name][0]), reason))
    return refusals


def read_columns(
    block: pl.DataFrame, inputs: Sequence[str], relation: Relation
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the input columns of `block` and every refused value.

    A missing or empty cell is NaN in a column of numbers and None in a column of texts or flags;
    so is every cell of a column that the block does not have.
    """
    columns: dict[str, Array] = {}
    refusals: list[Refusal] = _empty_rows(block)
    for name in inputs:
        column = relation.column(name)
        if name not in block.columns or block.schema[name] == pl.Null:
            missing = np.nan if column.dtype in (np.int64, np.float64) else None
            columns[name] = np.full(block.height, missing)
            continue
        read = _READERS.get(column.kind, _read_numbers)
        columns[name], refused = read(column, _respelt(block[name], relation.spellings.get(name)))
        refusals += refused
    return columns, refusals


def _respelt(series: pl.Series, spellings: Mapping[str, str] | None) -> pl.Series:
    """Return texts by their names here, where others are known."""
    if spellings is None:
        return series
    plain = _stripped(series).str.to_lowercase().str.replace_all("[- ]", "_")
    return plain.replace(dict(spellings))


def _read_texts(column: Column, series: pl.Series) -> tuple[Array, list[Refusal]]:
    texts = _stripped(series)
    refusals = []
    if column.choices:
        unknown = (texts.is_not_null() & ~texts.is_in(column.choices)).arg_true()
        hint = f"use {', '.join(column.choices)}"
        refusals = [Refusal(column.name, texts[i], "is not known", hint, i) for i in unknown]
    return texts.to_numpy().astype(object), refusals


def _read_flags(column: Column, series: pl.Series) -> tuple[Array, list[Refusal]]:
    texts = _stripped(series).str.to_lowercase()
    known = {
        **dict.fromkeys(("true", "1", "1.0", "yes"), True),
        **dict.fromkeys(("false", "0", "0.0", "no"), False),
    }
    unread = (texts.is_not_null() & ~texts.is_in(list(known))).arg_true()
    reason = f"must be {kind_in_words(column)}"
    refusals = [Refusal(column.name, series[i], reason, "", i) for i in unread]
    flags = np.array([known.get(text) for text in texts], dtype=object)
    return flags, refusals


def _read_numbers(column: Column, series: pl.Series) -> tuple[Array, list[Refusal]]:
    given = _stripped(series) if _is_text(series.dtype) else series
    numbers = given.cast(pl.Float64, strict=False)
    unread = (given.is_not_null() & numbers.is_null()).arg_true()
    reason = f"must be {kind_in_words(column)}"
    refusals = [Refusal(column.name, given[i], reason, "", i) for i in unread]
    values = numbers.to_numpy()
    settled = numbers.is_null().to_numpy().copy()  # missing: no rule applies
    for rule in limits_of(column):
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(rule.is_broken(values) & ~settled)
        hint = "leave the cell empty to take the default" if "finite" in rule.reason else ""
        refusals += [
            Refusal(column.name, given[row], rule.reason, hint, row) for row in rows.tolist()
        ]
        settled[rows] = True  # one reason a value is enough
    return values, refusals


def _stripped(series: pl.Series) -> pl.Series:
    """Return texts without surrounding blanks; empty ones are missing."""
    texts = series.cast(pl.String).str.strip_chars()
    return texts.set(texts == "", None)


def _empty_rows(block: pl.DataFrame) -> list[Refusal]:
    empty = block.select(pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
    return [Refusal("row", None, "has no value at all", "remove it", row) for row in empty]


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def _fits(column: Column, dtype: pl.DataType) -> bool:
    if column.kind == "bool":
        return dtype == pl.Boolean or dtype.is_numeric()
    return column.kind in ("int", "float") and dtype.is_numeric()


_READERS = {"str": _read_texts, "bool": _read_flags}
