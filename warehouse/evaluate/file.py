"""Evaluate a file or a frame of configurations, row for row, in their order."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.columns import COLUMNS, names_in
from estimators.contract import Array, Catalog, Columns, Mends, Refusal, RefusedError
from estimators.interval import ENDS, has_interval
from warehouse.errors import InputError
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.csv_parquet import (
    check_paths,
    read_configs,
    write_results,
)
from warehouse.evaluate.frames import wrong_types
from warehouse.evaluate.inputs import (
    evaluate_intervals,
    evaluate_rows,
    input_names,
    likely_misspelt,
    resolve_rows,
)
from warehouse.files import formula_columns, formula_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from estimators.contract import Cell, Relation
    from estimators.estimator import Estimator

BLOCK_ROWS = 16_384
"""Rows evaluated at a time: few enough for their columns to stay in the processor's cache."""

_OBJECTS: dict[str, type[pl.DataType]] = {"str": pl.String, "bool": pl.Boolean}
"""Kind of a column -> polars type of results that are Python objects in memory."""


@dataclass(frozen=True)
class BatchReport:
    """The outcome of a batch: rows written, rows left out with the reasons, and cells to store."""

    num_rows: int
    num_refused: int
    seconds: float
    refusals: tuple[Refusal, ...] = ()
    cells: tuple[tuple[Cell, Columns], ...] = ()


def find_relation(estimator: Estimator, name: str | None) -> Relation:
    """Return the estimator's relation called `name`, by default its first."""
    relations = {relation.name: relation for relation in estimator.relations}
    if name is None:
        return estimator.relations[0]
    if name not in relations:
        reason, hint = f"is not a relation of {estimator.name}", f"known: {', '.join(relations)}"
        raise RefusedError([Refusal("relation", name, reason, hint)])
    return relations[name]


def evaluate_file(
    estimator: Estimator,
    configs: Path,
    out: Path,
    mends: Mends,
    catalog: Catalog,
    *,
    relation: Relation | None = None,
    keep_valid: bool = False,
    with_cells: bool = False,
    with_interval: bool = True,
    warn: Callable[[str], None] = lambda _: None,
) -> BatchReport:
    """Evaluate every row of `configs` and write it to `out` with its results.

    Nothing is written if the file cannot be read or a row is refused; `keep_valid` leaves refused
    rows out instead. The interval of the step takes two evaluations a constant. `warn` gets each
    remark; refusals are not remarks.
    """
    started = time.perf_counter()
    check_paths(configs, out)
    relation = relation or estimator.relations[0]
    inputs = input_names(estimator, relation)
    frame = read_configs(configs, inputs, keep_text=out.suffix.lower() == ".csv")
    evaluated, report = evaluate_frame(
        *(estimator, frame, mends, catalog),
        relation=relation,
        keep_valid=keep_valid,
        with_cells=with_cells,
        with_interval=with_interval,
        warn=warn,
        called=str(configs),
    )
    write_results(evaluated, out)
    if out.suffix.lower() == ".csv":
        texts = evaluated.select(pl.col(pl.String, pl.Categorical, pl.Enum))
        if formulas := formula_columns((column.name, column.unique()) for column in texts):
            warn(f"{out}: {formula_warning(formulas)}")
    return replace(report, seconds=time.perf_counter() - started)


def evaluate_frame(
    estimator: Estimator,
    frame: pl.DataFrame,
    mends: Mends,
    catalog: Catalog,
    *,
    relation: Relation | None = None,
    keep_valid: bool = False,
    with_cells: bool = False,
    with_interval: bool = True,
    are_runs: bool = False,
    warn: Callable[[str], None] = lambda _: None,
    called: str = "frame",
) -> tuple[pl.DataFrame, BatchReport]:
    """Return every row of `frame` with its results, and the report.

    Errors call the frame `called`. `are_runs` is that of `resolve_rows`. See `evaluate_file` for
    the other parameters.
    """
    started = time.perf_counter()
    relation = relation or estimator.relations[0]
    inputs = input_names(estimator, relation)
    _check_columns(frame, inputs, estimator, relation, called, warn)
    results, is_good, refusals, blocks = _evaluate(
        *(estimator, relation, frame, mends, catalog),
        stop=not keep_valid,
        collect=with_cells,
        with_interval=with_interval,
        are_runs=are_runs,
    )
    refusals.sort(key=lambda refusal: -1 if refusal.row is None else refusal.row)
    if refusals and not keep_valid:
        raise InputError.from_refusals(refusals, called)
    results = {name: values[is_good] for name, values in results.items()}
    cells: tuple[tuple[Cell, Columns], ...] = ()
    if blocks:
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        cells = tuple(cells_of(estimator, relation, joined, results, mends))
    seconds = time.perf_counter() - started
    num_rows = int(is_good.sum())
    report = BatchReport(num_rows, frame.height - num_rows, seconds, tuple(refusals), cells)
    # result columns that the frame has keep their place
    series = [_series(name, values) for name, values in results.items()]
    return frame.filter(is_good).with_columns(series), report


def _check_columns(
    frame: pl.DataFrame,
    inputs: Sequence[str],
    estimator: Estimator,
    relation: Relation,
    file: str,
    warn: Callable[[str], None],
) -> None:
    known = {*inputs, *relation.outputs, *names_in("Records"), *names_in("Reference tables")}
    foreign = [name for name in frame.columns if name in COLUMNS and name not in known]
    if foreign and "cell_id" in frame.columns:  # rows of a view such as configuration
        warn(
            f"{file}: take stored rows from view current_{relation.name}, which `{foreign[0]}` is "
            "not in; columns of other views may mean something else"
        )
    aliases = {name: estimator.aliases.get(name.strip(), "") for name in frame.columns}
    spelt = {n: meant for n, meant in aliases.items() if n not in inputs and meant in inputs}
    for name, column in spelt.items():
        reason = f"it is this estimator's source's name for `{column}`; rename it"
        warn(f"{file}: column `{name}` is not read: {reason}")
    for name, near in likely_misspelt(frame.columns, inputs).items():
        if name not in spelt:
            warn(f"{file}: column `{name}` is not read; did you mean `{near}`?")
    if not any(name in inputs for name in frame.columns):
        hint = f"columns are separated by commas; known: {', '.join(inputs)}"
        raise InputError(f"{file}: has no column that the estimator reads", hint=hint)
    refusals = wrong_types(frame, inputs)
    if refusals:
        raise InputError.from_refusals(refusals, file)


def _evaluate(
    estimator: Estimator,
    relation: Relation,
    frame: pl.DataFrame,
    mends: Mends,
    catalog: Catalog,
    *,
    stop: bool,
    collect: bool,
    with_interval: bool,
    are_runs: bool,
) -> tuple[dict[str, Array], Array, list[Refusal], list[Columns]]:
    """Return results, which rows are good, all refusals, and the good rows if they are collected.

    With `stop`, blocks after a refusal are only checked.
    """
    ends = ENDS if with_interval and has_interval(estimator, relation) else ()
    names = {*relation.outputs, *ends}
    results: dict[str, Array] = {  # in the order of the dictionary: first times, then memory
        name: np.empty(frame.height, relation.column(name).dtype)
        for name in COLUMNS
        if name in names
    }
    is_good = np.ones(frame.height, dtype=bool)
    refusals: list[Refusal] = []
    blocks: list[Columns] = []
    for start in range(0, frame.height, BLOCK_ROWS):
        block = frame.slice(start, BLOCK_ROWS)
        resolved = resolve_rows(estimator, relation, block, catalog, mends, are_runs=are_runs)
        is_good[start : start + BLOCK_ROWS] = resolved.is_good
        for refusal in resolved.refusals:
            if refusal.row is not None:
                refusals.append(replace(refusal, row=start + refusal.row))
            elif refusal not in refusals:
                refusals.append(refusal)
        if not resolved.is_good.any() or (stop and refusals):
            continue
        good = start + np.flatnonzero(resolved.is_good)
        outputs = evaluate_rows(resolved, relation.outputs)
        if ends:
            outputs |= evaluate_intervals(resolved)
        for name, values in outputs.items():
            results[name][good] = values
        if collect:
            blocks.append(resolved.good)
    return results, is_good, refusals, blocks


def _series(name: str, values: Array) -> pl.Series:
    """Return results as a series; polars cannot infer the type of texts that begin with None."""
    if values.dtype == object:
        return pl.Series(name, values.tolist(), dtype=_OBJECTS[COLUMNS[name].kind])
    return pl.Series(name, values, nan_to_null=True)
