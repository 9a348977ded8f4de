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
    num_rows
        Rows of the file.
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

    Parameters
    ----------
    accelerator
        The accelerator whose rows are taken; None: the only one of the file.

    Raises
    ------
    InputError
        If the file cannot be read, misses a column or has a faulty value; all faults are listed.
    """
    check_source(path)
    names = [one.name for each in known for one in each.inputs]
    frame = read_configs(path, (*names, ACCELERATOR), keep_text=False)
    kernels = _kind_of(path, frame, known)
    if frame.height == 0:
        raise InputError(f"{path}: has no rows", "give one row for each kernel that was timed")
    own, kept, left_out = _one_accelerator(path, frame, accelerator, catalog)
    refusals: list[Refusal] = []
    columns: dict[str, Array] = {}
    for one in kernels.inputs:
        columns[one.name], faults = _read(one, frame)
        refusals += faults
    if refusals:
        refusals.sort(key=lambda one: -1 if one.row is None else one.row)
        raise InputError.from_refusals(refusals, str(path))
    columns = {name: values[kept] for name, values in columns.items()}
    return Timings(path, kernels, own, columns, frame.height, left_out)


def _kind_of(path: Path, frame: pl.DataFrame, known: Sequence[TimedKernels]) -> TimedKernels:
    """Return the kind of file whose columns a frame has."""
    missing = {
        each.name: [name for name in each.required if name not in frame.columns] for each in known
    }
    found = [each for each in known if not missing[each.name]]
    if found:
        return found[0]
    near = min(known, key=lambda each: len(missing[each.name]))
    needs = "; ".join(f"{each.name}: {', '.join(each.required)}" for each in known)
    raise InputError(
        f"{path}: has no column `{missing[near.name][0]}`", f"columns of a file of {needs}"
    )


def _one_accelerator(
    path: Path, frame: pl.DataFrame, asked: str | None, catalog: Catalog
) -> tuple[str, Array, dict[str, int]]:
    """Return the accelerator, which rows are its own, and how many are of others."""
    every = np.ones(frame.height, dtype=bool)
    wanted = None if asked is None else _named(asked, "`--accelerator`", catalog)
    if ACCELERATOR not in frame.columns:
        if wanted is None:
            hint = "give --accelerator, or a column of that name"
            raise InputError(f"{path}: no `{ACCELERATOR}` is given", hint)
        return wanted, every, {}
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
    own = wanted or found[0]
    kept = np.array([text is None or names[text] == own for text in texts.to_list()])
    if not kept.any():
        raise InputError(
            f"{path}: no row is of {own}", f"the file has {', '.join(found)}: name one of them"
        )
    others = int((~kept).sum())
    return own, kept, {"of another accelerator": others} if others else {}


def _named(text: str, where: str, catalog: Catalog) -> str:
    """Return the accelerator as sold that a text names."""
    with suppress(RefusedError):
        return str(catalog.find("priced_as", text)["priced_as"])
    try:
        return str(catalog.find(ACCELERATOR, text)[ACCELERATOR])
    except RefusedError as error:
        [refusal] = error.refusals
        raise InputError(f"{where} {text} {refusal.reason}", refusal.hint) from None


def _read(one: TimedInput, frame: pl.DataFrame) -> tuple[Array, list[Refusal]]:
    """Return a column, and what is wrong with its values."""
    height = frame.height
    if one.name not in frame.columns or frame.schema[one.name] == pl.Null:
        if one.default is None:
            return np.full(height, np.nan), _missing(one, range(height))
        return np.full(height, one.default, object if one.choices else np.float64), []
    series = frame[one.name]
    if series.dtype not in _TEXTS and not series.dtype.is_numeric():
        kind = "a text" if one.choices else "a number"
        return np.full(height, np.nan), [wrong_type(series, kind)]
    return _texts(one, series) if one.choices else _numbers(one, series)


def _texts(one: TimedInput, series: pl.Series) -> tuple[Array, list[Refusal]]:
    assert one.choices is not None
    texts = stripped(series).str.to_lowercase().to_list()
    values = np.array([one.choices.get(text, one.default) for text in texts], dtype=object)
    hint = f"use {', '.join(one.choices)}"
    refusals = [
        Refusal(one.name, series[row], "is not known", hint, row)
        for row, text in enumerate(texts)
        if text is not None and text not in one.choices
    ]
    if one.default is None:
        refusals += _missing(one, [row for row, text in enumerate(texts) if text is None])
    return values, refusals


def _numbers(one: TimedInput, series: pl.Series) -> tuple[Array, list[Refusal]]:
    given = stripped(series) if series.dtype in _TEXTS else series
    is_given = given.is_not_null().to_numpy()
    numbers = given.cast(pl.Float64, strict=False)
    values = numbers.fill_null(np.nan).to_numpy().copy()
    least, most = one.limits
    kind = "a whole number" if one.is_whole else "a number"
    with np.errstate(invalid="ignore"):
        is_sound = (values >= least) & (values <= most)
        if one.is_whole:
            is_sound &= values == np.floor(values)
    reason = f"must be {kind} from {least:,.13g} to {most:,.13g}"
    refusals = [
        Refusal(one.name, given[row], reason, "", row)
        for row in np.flatnonzero(is_given & ~is_sound).tolist()
    ]
    if one.default is None:
        refusals += _missing(one, np.flatnonzero(~is_given).tolist())
    elif not is_given.all():
        values[~is_given] = float(one.default)
    return values, refusals


def _missing(one: TimedInput, rows: Sequence[int]) -> list[Refusal]:
    return [Refusal(one.name, None, "is missing", "", row) for row in rows]
