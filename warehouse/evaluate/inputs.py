"""From records to results: read, resolve and evaluate the rows of a frame, or a few texts.

`resolve_rows` is the only way from records to what an estimator computes with, and `evaluate_rows`
the only way from there to results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Columns, Mends, Refusal, RefusedError, Scalar
from estimators.inputs import records
from estimators.interval import ENDS, has_interval, interval
from warehouse.evaluate.profiles import COLUMN as PROFILE
from warehouse.evaluate.profiles import catalog_of, resolve
from warehouse.evaluate.texts import read_texts
from warehouse.limits import read_number

if TYPE_CHECKING:
    import polars as pl

    from estimators.contract import Relation
    from estimators.estimator import Estimator


@dataclass(frozen=True)
class Resolved:
    """Records as an estimator reads them, with the reasons why it refuses some.

    `columns` are problem, choice and key columns of the records that could be read, refused ones
    included, and `rows` their numbers among all records. `is_good` says of every record whether
    nothing in it is refused. Refusals of all records come first; their `row` is None. `excused` are
    what a rule of a program has against runs that happened.
    """

    estimator: Estimator
    relation: Relation
    mends: Mends
    catalog: Catalog
    columns: Columns
    rows: Array
    is_good: Array
    refusals: tuple[Refusal, ...]
    excused: tuple[Refusal, ...] = ()
    given: Columns = field(default_factory=dict)

    @property
    def good(self) -> Columns:
        """Return the columns of the good records alone."""
        return taken(self.columns, self.is_good[self.rows])


def resolve_rows(
    estimator: Estimator,
    relation: Relation,
    records: pl.DataFrame | Mapping[str, str] | Sequence[Mapping[str, str]],
    catalog: Catalog,
    mends: Mends,
    *,
    are_runs: bool = False,
) -> Resolved:
    """Read records, fill in defaults and check every rule. Refusals are returned, not raised.

    From a `ProfiledCatalog`, records take the constants of the profiles that they name. A record
    with an unreadable value is refused only for that value: nothing that depends on it is checked.
    Columns that the estimator does not read are ignored; numbers in texts may be grouped, as
    1_000_000.

    Parameters
    ----------
    are_runs
        Whether the records are runs that happened: no rule of a program refuses them.
    """
    if isinstance(records, Mapping):
        records = [records]
    columns, refusals = _read(input_names(estimator, relation), relation, records)
    is_good = _marked(np.ones(len(records), dtype=bool), refusals)
    is_read = is_good.copy()
    rows = np.flatnonzero(is_read)
    resolved: Columns = {}
    excused: list[Refusal] = []
    if len(rows):
        try:
            read = taken(columns, is_read)
            resolved, faults = resolve(estimator, relation, read, catalog, mends)
        except RefusedError as error:
            faults = list(error.refusals)
        faults = [r if r.row is None else replace(r, row=int(rows[r.row])) for r in faults]
        if are_runs:
            excused = [refusal for refusal in faults if refusal.is_of_program]
            faults = [refusal for refusal in faults if not refusal.is_of_program]
        refusals = sorted([*refusals, *faults], key=lambda r: -1 if r.row is None else r.row)
        _marked(is_good, faults)
    if not resolved:
        rows = rows[:0]
    known = (estimator, relation, mends, catalog, resolved, rows, is_good)
    return Resolved(*known, tuple(refusals), tuple(excused), taken(columns, is_read))


def _read(
    inputs: Sequence[str],
    relation: Relation,
    records: pl.DataFrame | Sequence[Mapping[str, str]],
) -> tuple[Columns, list[Refusal]]:
    """Return the input columns of records and every refused value; no column if a type is wrong."""
    if isinstance(records, Sequence):
        plain = [without_grouping(relation, texts) for texts in records]
        for texts in plain:
            _refuse_broken_texts(texts)
        return read_texts(plain, inputs, relation)
    from warehouse.evaluate.frames import read_columns, wrong_types  # here: texts need no polars

    refusals = wrong_types(records, inputs)
    return ({}, refusals) if refusals else read_columns(records, inputs, relation)


def _refuse_broken_texts(texts: Mapping[str, str]) -> None:
    refusals = []
    for name, text in texts.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError:
            refusals.append(Refusal(ascii(name)[1:-1], ascii(text)[1:-1], "is not UTF-8 text"))
    if refusals:
        raise RefusedError(refusals)


def evaluate_rows(resolved: Resolved, outputs: Iterable[str] = ()) -> dict[str, Array]:
    """Return outputs of the relation, by default all, of the good records in order."""
    relation = resolved.relation
    names = tuple(outputs) or relation.outputs
    if not resolved.is_good.any():
        return {name: np.empty(0, relation.column(name).dtype) for name in names}
    return estimated(
        resolved.estimator, relation, resolved.good, resolved.mends, names, resolved.catalog
    )


def evaluate_intervals(resolved: Resolved, pinned: Collection[str] = ()) -> dict[str, Array]:
    """Return both ends of the interval of the step of the good records, by column name.

    The result is empty if no step depends on constants. Each constant takes two evaluations, except
    those in `pinned`, which are known.
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
        both = interval(estimator, relation, taken(good, rows), resolved.mends, catalog, pinned)
        for name, values in zip(ENDS, both, strict=True):
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
    """Return outputs of rows with complete problem, choice and key columns."""
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


def scalars(columns: Columns, names: Iterable[str], row: int = 0) -> dict[str, Scalar]:
    """Return a row as scalars of the same types as a search's: the problems are the same."""
    values = {name: columns[name][row : row + 1] for name in names}
    return records(values)[0] if values else {}  # an estimator may have no choices


def _marked(is_good: Array, refusals: Iterable[Refusal]) -> Array:
    """Mark refused rows in place; a refusal without a row applies to all rows."""
    for refusal in refusals:
        is_good[slice(None) if refusal.row is None else refusal.row] = False
    return is_good


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
        return text  # unchanged, so that a refusal can quote it
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
    return {name: matches[0] for name, matches in near.items() if matches}
