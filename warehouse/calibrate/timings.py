"""Files of timings of kernels, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.contract import Array, Catalog, Columns, Refusal, RefusedError
from warehouse.errors import InputError
from warehouse.evaluate.csv_parquet import check_source, read_configs
from warehouse.evaluate.frames import has_parts, stripped, wrong_type
from warehouse.evaluate.texts import control_characters

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.timings import TimedInput, TimedKernels

ACCELERATOR = "accelerator"

_TEXTS = (pl.String, pl.Categorical, pl.Enum)
"""Types of columns of texts."""


@dataclass(frozen=True)
class Timings:
    """The rows of a file that are of one accelerator.

    Attributes
    ----------
    columns
        Inputs of the kernels: numbers in floating point, texts as the estimator reads them.
    left_out
        Why rows of the file are not in `columns` -> how many.
    """

    path: Path
    kernels: TimedKernels
    accelerator: str
    columns: Columns
    num_rows: int
    left_out: Mapping[str, int]


def read_timings(
    path: Path, known: Sequence[TimedKernels], accelerator: str | None, catalog: Catalog
) -> Timings:
    """Read a file of timings of one of the `known` kinds; its columns say which.

    Raise `InputError` if the file cannot be read, misses a column or has a faulty value; all faults
    are listed.

    Parameters
    ----------
    accelerator
        The accelerator whose rows are taken; None: the only one of the file.
    """
    check_source(path)
    names = [column.name for kernels in known for column in kernels.inputs]
    frame = read_configs(path, (*names, ACCELERATOR), keep_text=False)
    kernels = _kind_of(path, frame, known)
    if frame.height == 0:
        raise InputError(f"{path}: has no rows", "give one row for each kernel that was timed")
    accelerator, is_taken, left_out = _one_accelerator(path, frame, accelerator, catalog)
    read = {column.name: _read(column, frame) for column in kernels.inputs}
    refusals = [refusal for _, refused in read.values() for refusal in refused]
    if refusals:
        refusals.sort(key=lambda refusal: -1 if refusal.row is None else refusal.row)
        raise InputError.from_refusals(refusals, str(path))
    columns = {name: values[is_taken] for name, (values, _) in read.items()}
    return Timings(path, kernels, accelerator, columns, frame.height, left_out)


def _kind_of(path: Path, frame: pl.DataFrame, known: Sequence[TimedKernels]) -> TimedKernels:
    """Return the kind of file whose columns a frame has."""
    missing = [[name for name in each.required if name not in frame.columns] for each in known]
    fewest, kernels = min(zip(missing, known, strict=True), key=lambda pair: len(pair[0]))
    if fewest:
        needs = "; ".join(f"{each.name}: {', '.join(each.required)}" for each in known)
        raise InputError(f"{path}: has no column `{fewest[0]}`", f"columns of a file of {needs}")
    return kernels


def _one_accelerator(
    path: Path, frame: pl.DataFrame, given: str | None, catalog: Catalog
) -> tuple[str, Array, dict[str, int]]:
    """Return the accelerator, its rows, and how many are of others."""
    wanted = None if given is None else _named(given, "`--accelerator`", catalog)
    if ACCELERATOR not in frame.columns:
        if wanted is None:
            hint = "give --accelerator, or a column of that name"
            raise InputError(f"{path}: no `{ACCELERATOR}` is given", hint)
        return wanted, np.ones(frame.height, dtype=bool), {}
    if has_parts(frame.schema[ACCELERATOR]):
        raise InputError.from_refusals([wrong_type(frame[ACCELERATOR], "a text")], str(path))
    texts = stripped(frame[ACCELERATOR])
    refusals = control_characters(ACCELERATOR, texts.to_list())
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    names = {
        text: _named(text, f"{path}: `{ACCELERATOR}`", catalog)
        for text in texts.drop_nulls().unique(maintain_order=True).to_list()
    }
    found = list(dict.fromkeys(names.values()))
    if wanted is None and len(found) != 1:
        has = f"has {len(found)} accelerators: {', '.join(found)}" if found else "names none"
        raise InputError(f"{path}: column `{ACCELERATOR}` {has}", "name one with --accelerator")
    taken = wanted or found[0]
    is_taken = np.array([text is None or names[text] == taken for text in texts.to_list()])
    if not is_taken.any():
        raise InputError(
            f"{path}: no row is of {taken}", f"the file has {', '.join(found)}: name one of them"
        )
    others = int((~is_taken).sum())
    return taken, is_taken, {"of another accelerator": others} if others else {}


def _named(text: str, where: str, catalog: Catalog) -> str:
    """Return the accelerator as sold that a text names."""
    with suppress(RefusedError):
        return str(catalog.find("priced_as", text)["priced_as"])
    try:
        return str(catalog.find(ACCELERATOR, text)[ACCELERATOR])
    except RefusedError as error:
        [refusal] = error.refusals
        raise InputError(f"{where} {text} {refusal.reason}", refusal.hint) from None


def _read(column: TimedInput, frame: pl.DataFrame) -> tuple[Array, list[Refusal]]:
    """Return a column, and what is wrong with its values."""
    height = frame.height
    if column.name not in frame.columns or frame.schema[column.name] == pl.Null:
        if column.default is None:
            return np.full(height, np.nan), _missing(column, range(height))
        return np.full(height, column.default, object if column.choices else np.float64), []
    series = frame[column.name]
    if series.dtype not in _TEXTS and not series.dtype.is_numeric():
        kind = "a text" if column.choices else "a number"
        return np.full(height, np.nan), [wrong_type(series, kind)]
    return _texts(column, series) if column.choices else _numbers(column, series)


def _texts(column: TimedInput, series: pl.Series) -> tuple[Array, list[Refusal]]:
    assert column.choices is not None
    texts = stripped(series).str.to_lowercase().to_list()
    values = np.array([column.choices.get(text, column.default) for text in texts], dtype=object)
    hint = f"use {', '.join(column.choices)}"
    refusals = [
        Refusal(column.name, series[row], "is not known", hint, row)
        for row, text in enumerate(texts)
        if text is not None and text not in column.choices
    ]
    if column.default is None:
        refusals += _missing(column, [row for row, text in enumerate(texts) if text is None])
    return values, refusals


def _numbers(column: TimedInput, series: pl.Series) -> tuple[Array, list[Refusal]]:
    given = stripped(series) if series.dtype in _TEXTS else series
    is_given = given.is_not_null().to_numpy()
    numbers = given.cast(pl.Float64, strict=False)
    values = numbers.fill_null(np.nan).to_numpy().copy()
    least, most = column.limits
    kind = "a whole number" if column.is_whole else "a number"
    with np.errstate(invalid="ignore"):
        is_sound = (values >= least) & (values <= most)
        if column.is_whole:
            is_sound &= values == np.floor(values)
    reason = f"must be {kind} from {least:,.13g} to {most:,.13g}"
    refusals = [
        Refusal(column.name, given[row], reason, "", row)
        for row in np.flatnonzero(is_given & ~is_sound).tolist()
    ]
    if column.default is None:
        refusals += _missing(column, np.flatnonzero(~is_given).tolist())
    elif not is_given.all():
        values[~is_given] = float(column.default)
    return values, refusals


def _missing(column: TimedInput, rows: Sequence[int]) -> list[Refusal]:
    return [Refusal(column.name, None, "is missing", "", row) for row in rows]
