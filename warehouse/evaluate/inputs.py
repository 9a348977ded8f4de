"""From records to results: read, resolve and evaluate the rows of a frame, or a few texts.

`resolve_rows` is the only way from records to what an estimator computes with, and `evaluate_rows`
the only way from there to results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.columns import COLUMNS, Column
from estimators.columns.records import RECORD, REFERENCE
from estimators.contract import Array, Catalog, Columns, Mends, Refusal, RefusedError
from estimators.interval import ENDS, has_interval, interval
from estimators.limits import limits_of
from warehouse.evaluate.profiles import COLUMN as PROFILE
from warehouse.evaluate.profiles import catalog_of, resolve
from warehouse.limits import kind_in_words, read_number

if TYPE_CHECKING:
    from estimators.contract import Estimator, Relation


@dataclass(frozen=True)
class Resolved:
    """Records as an estimator reads them, with the reasons why it refuses some.

    Attributes
    ----------
    columns
        Problem, choice and key columns of the records that could be read, refused ones included;
        empty if none could be.
    rows
        Zero-based number of each of them among all records.
    is_good
        Of every record: whether nothing in it is refused.
    refusals
        In the order of the records; first those that concern all of them, whose `row` is None.
    """

    estimator: Estimator
    relation: Relation
    mends: Mends
    catalog: Catalog
    columns: Columns
    rows: Array
    is_good: Array
    refusals: tuple[Refusal, ...]

    @property
    def good(self) -> Columns:
        """Return the columns of the good records alone."""
        return taken(self.columns, self.is_good[self.rows])


def resolve_rows(
    estimator: Estimator,
    relation: Relation,
    records: pl.DataFrame | Mapping[str, str],
    catalog: Catalog,
    mends: Mends,
) -> Resolved:
    """Read records, fill in defaults and check every rule. Refusals are returned, not raised.

    From a `ProfiledCatalog`, records take the constants of the profiles that they name. A record
    with a value that cannot be read is refused for that alone: what follows from a faulty value
    is not checked.

    Parameters
    ----------
    records
        A frame, or the texts of one record by column name. Columns that the estimator does not
        read are passed over; numbers in texts may be grouped, as 1_000_000.
    """
    if not isinstance(records, pl.DataFrame):
        texts = without_grouping(relation, records)
        _refuse_broken_texts(texts)
        records = pl.DataFrame({name: [text] for name, text in texts.items()} or {"": [""]})
    inputs = input_names(estimator, relation)
    refusals = wrong_types(records, inputs)
    columns: Columns = {}
    if not refusals:
        columns, refusals = read_columns(records, inputs, relation)
    is_good = _marked(np.ones(records.height, dtype=bool), refusals)
    rows = np.flatnonzero(is_good)
    resolved: Columns = {}
    if len(rows):
        try:
            own = taken(columns, is_good)
            resolved, faults = resolve(estimator, relation, own, catalog, mends)
        except RefusedError as error:
            faults = list(error.refusals)
        faults = [
            one if one.row is None else replace(one, row=int(rows[one.row])) for one in faults
        ]
        refusals = sorted([*refusals, *faults], key=_row_of)
        _marked(is_good, faults)
    if not resolved:
        rows = rows[:0]
    return Resolved(estimator, relation, mends, catalog, resolved, rows, is_good, tuple(refusals))


def _refuse_broken_texts(texts: Mapping[str, str]) -> None:
    """Raise `RefusedError` for texts that have no form in UTF-8."""
    refusals = []
    for name, text in texts.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError:
            refusals.append(Refusal(ascii(name)[1:-1], ascii(text)[1:-1], "is not UTF-8 text"))
    if refusals:
        raise RefusedError(refusals)


def evaluate_rows(resolved: Resolved, outputs: Iterable[str] = ()) -> dict[str, Array]:
    """Return results of the good records, in order.

    Parameters
    ----------
    outputs
        Names of outputs of the relation; by default all of them.
    """
    relation = resolved.relation
    names = tuple(outputs) or relation.outputs
    if not resolved.is_good.any():
        return {name: np.empty(0, relation.column(name).dtype) for name in names}
    return estimated(
        resolved.estimator, relation, resolved.good, resolved.mends, names, resolved.catalog
    )


def evaluate_intervals(resolved: Resolved, pinned: Collection[str] = ()) -> dict[str, Array]:
    """Return both ends of the interval of the step of the good records, by column name.

    Without a step that depends on constants there is none. Each constant takes two evaluations.

    Parameters
    ----------
    pinned
        Constants that are known: they have no range.
    """
    estimator, relation = resolved.estimator, resolved.relation
    if not has_interval(estimator, relation):
        return {}
    if not resolved.is_good.any():
        return {name: np.empty(0) for name in ENDS}
    good = resolved.good
    names = good.get(PROFILE)
    ends = {name: np.empty(len(next(iter(good.values())))) for name in ENDS}
    # the range of a constant is that of the row's profile
    for profile in [None] if names is None else dict.fromkeys(names.tolist()):
        rows = np.ones_like(ends[ENDS[0]], dtype=bool) if names is None else names == profile
        catalog = catalog_of(resolved.catalog, profile, estimator)
        own = interval(estimator, relation, taken(good, rows), resolved.mends, catalog, pinned)
        for name, values in zip(ENDS, own, strict=True):
            ends[name][rows] = values
    return ends


def estimated(
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    mends: Mends,
    outputs: Iterable[str],
    catalog: Catalog,
) -> dict[str, Array]:
    """Return outputs of rows that are resolved, one element a row.

    Parameters
    ----------
    columns
        Problem, choice and key columns, complete.
    """
    size = len(next(iter(columns.values())))
    out: dict[str, Array] = {name: np.empty(size, relation.column(name).dtype) for name in outputs}
    keys = {name: columns[name] for name in relation.keys}
    shared = (*estimator.problem_columns, *estimator.choice_columns)
    values = {name: columns[name] for name in shared if name in columns}
    estimator.estimate(relation, values, keys, mends, out, catalog)
    return out


def taken(columns: Columns, rows: Array) -> Columns:
    """Return some rows of every column; `rows` is a mask or a list of row numbers."""
    if rows.dtype == bool and rows.all():
        return columns
    return {name: values[rows] for name, values in columns.items()}


def _marked(is_good: Array, refusals: Iterable[Refusal]) -> Array:
    """Mark refused rows in place; a refusal without a row refuses all."""
    for refusal in refusals:
        is_good[slice(None) if refusal.row is None else refusal.row] = False
    return is_good


def _row_of(refusal: Refusal) -> int:
    return -1 if refusal.row is None else refusal.row


def without_grouping(relation: Relation, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts with numbers such as 1_000_000 and 15T as a program writes them."""
    return {
        name: text if relation.column(name).kind == "str" else _plain_number(text)
        for name, text in texts.items()
    }


def _plain_number(text: str) -> str:
    """Return a number without separators and without a letter for its power of ten."""
    if not re.search("[_,]|[kmbgt]$", text.strip(), re.IGNORECASE):
        return text
    number = read_number(text)
    if number is None or not np.isfinite(number):
        return text  # as it was given, for a refusal to quote
    return str(int(number)) if float(number).is_integer() else repr(float(number))


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
    """Return columns of stored rows that are neither inputs, outputs nor record of the relation.

    Rows with such a column come from a view such as configuration. It may lack inputs, or have
    columns that mean something else than the input of that name.
    """
    if "cell_id" not in names:
        return []
    own = {*inputs, *relation.outputs, *(column.name for column in (*RECORD, *REFERENCE))}
    return [name for name in names if name in COLUMNS and name not in own]


def wrong_types(frame: pl.DataFrame, inputs: Sequence[str]) -> list[Refusal]:
    """Return a refusal for each input column whose type the dictionary does not admit."""
    refusals = []
    for name in inputs:
        if name not in frame.columns:
            continue
        column, dtype = COLUMNS[name], frame.schema[name]
        if not (dtype == pl.Null or _is_text(dtype) or _fits(column, dtype)):
            reason = (
                f"is a column of type {dtype}; it must hold {kind_in_words(column)} in each row"
            )
            first = str(frame[name][0]) if frame.height else None
            refusals.append(Refusal(name, first, reason))
    return refusals


def read_columns(
    block: pl.DataFrame, inputs: Sequence[str], relation: Relation
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the input columns of `block` and every refused value.

    A missing or empty cell is NaN in a column of numbers and None in a column of texts or flags.
    A column that the block does not have is missing in every cell.
    """
    columns: dict[str, Array] = {}
    refusals: list[Refusal] = _empty_rows(block)
    given = _normalised(block, inputs, relation)
    for name in inputs:
        column = relation.column(name)
        if name not in given.columns:
            missing = np.nan if column.dtype in (np.int64, np.float64) else None
            columns[name] = np.full(block.height, missing)
            continue
        if column.kind == "bool":
            columns[name], refused = _read_flags(column, given[name], block[name])
        elif column.kind == "str":
            columns[name], refused = _read_texts(column, given[name])
        else:
            columns[name], refused = _read_numbers(column, given[name])
        refusals += refused
    return columns, refusals


def _normalised(block: pl.DataFrame, inputs: Sequence[str], relation: Relation) -> pl.DataFrame:
    """Return the input columns that are given, flags and texts as texts without blanks.

    One query for all columns: polars takes a millisecond for each.
    """
    found = []
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
        found.append(value)
    return block.select(found)


def _without_blanks(text: pl.Expr) -> pl.Expr:
    """Return texts without surrounding blanks; empty ones are missing."""
    plain = text.cast(pl.String).str.strip_chars()
    return pl.when(plain != "").then(plain)


def _read_texts(column: Column, texts: pl.Series) -> tuple[Array, list[Refusal]]:
    found = texts.to_numpy().astype(object)
    refusals = []
    if column.choices:
        hint = f"use {', '.join(column.choices)}"
        refusals = [
            Refusal(column.name, text, "is not known", hint, row)
            for row, text in enumerate(found.tolist())
            if text is not None and text not in column.choices
        ]
    return found, refusals


_FLAGS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}


def _read_flags(column: Column, texts: pl.Series, given: pl.Series) -> tuple[Array, list[Refusal]]:
    found = texts.to_list()
    flags = [None if text is None else _FLAGS.get(text.lower()) for text in found]
    reason = f"must be {kind_in_words(column)}"
    refusals = [
        Refusal(column.name, given[row], reason, "", row)
        for row, (text, flag) in enumerate(zip(found, flags, strict=True))
        if text is not None and flag is None
    ]
    return np.array(flags, dtype=object), refusals


def _read_numbers(column: Column, given: pl.Series) -> tuple[Array, list[Refusal]]:
    numbers = given.cast(pl.Float64, strict=False)
    refusals = []
    if numbers.null_count() > given.null_count():
        unread = (given.is_not_null() & numbers.is_null()).arg_true()
        reason = f"must be {kind_in_words(column)}"
        refusals = [Refusal(column.name, given[i], reason, "", i) for i in unread]
    values = numbers.to_numpy()
    settled = np.zeros(len(values), dtype=bool)  # missing: no rule applies
    if numbers.null_count():
        settled = numbers.is_null().to_numpy().copy()
    for rule in limits_of(column):
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(rule.is_broken(values) & ~settled)
        hint = "leave it empty to take the default" if "finite" in rule.reason else ""
        refusals += [
            Refusal(column.name, given[row], rule.reason, hint, row) for row in rows.tolist()
        ]
        settled[rows] = True  # one reason a value is enough
    return values, refusals


def stripped(series: pl.Series) -> pl.Series:
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
