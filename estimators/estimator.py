"""An estimator: its columns, capabilities and computations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Evaluate,
    Formula,
    Mends,
    Operations,
    Refusal,
    RefusedError,
    Relation,
    Report,
    Scalar,
    Search,
    SourceTable,
    TableRow,
    UnevenStages,
    Values,
)
from estimators.factored import Gathered
from estimators.hints import tried_hints
from estimators.id_set import IdSet
from estimators.inputs import Broken, Inputs
from estimators.rules import Rule
from estimators.timings import TimedKernels

if TYPE_CHECKING:
    from estimators.values import Real

PLANNED = ("model", "accelerator", "num_gpus", "global_batch_size", "seq_len")
"""Problem columns that a plan sets."""

_TRIED = 100
"""Refusals of a batch whose hints are tried: an error lists ten rows."""


def height(columns: Columns) -> int:
    """Return the number of rows."""
    return len(next(iter(columns.values()), ()))


def _unknown(columns: Columns) -> Array:
    """Return NaN for each row."""
    return np.full(height(columns), np.nan)


def _matrix_rate(columns: Columns) -> Array:
    """Return the rate of the matrix units, NaN where the problem has none."""
    rate = columns.get("matrix_flops_per_second", _unknown(columns))
    return np.asarray(rate, dtype=np.float64)


def _everywhere(_catalog: Catalog, _framework: Scalar, _accelerator: Scalar) -> tuple[str, ...]:
    """Return one place: constants hold for all systems."""
    return ("",)


def of_the_table(_constant: str, columns: Columns, _catalog: Catalog) -> tuple[Array, Array]:
    """Return NaN: each row has the range of the table."""
    return _unknown(columns), _unknown(columns)


def _no_share(_relation: Relation, columns: Columns, _mends: Mends, _catalog: Catalog) -> Array:
    """Return 0: no part of the step errs independently."""
    return np.zeros(height(columns))


@dataclass(frozen=True)
class Step:
    """The step that a row of the first relation describes. A command refuses what is empty.

    Attributes
    ----------
    parts
        Outputs that add up to ``step_seconds``.
    memory
        Outputs or problem values that add up to ``memory_bytes``.
    formulas
        Part -> its formula.
    rates
        Rates of the system that `explain` changes one by one.
    least_flops
        Returns the least FLOPs of a step in any program, from resolved columns; NaN if unknown.
    peak_flops_per_second
        Returns the peak rate of one GPU in the precision of each row; NaN where unknown.
    cell_figures
        Name of a figure that all rows of a cell share -> its function of the problem and the
        choices of cells. It is stored with the cell. Cells of older versions may lack columns.
    """

    parts: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    rates: tuple[str, ...] = ()
    operations: Operations | None = None
    least_flops: Callable[[Columns], Array] = _unknown
    peak_flops_per_second: Callable[[Columns], Array] = _matrix_rate
    cell_figures: Mapping[str, Callable[[Columns], Real]] = field(default_factory=dict)

    def least_seconds(self, columns: Columns) -> Array:
        """Return the seconds of `least_flops` at the peak of all GPUs: no step is faster."""
        with np.errstate(all="ignore"):
            gpus = columns.get("num_gpus", _unknown(columns))
            rate = self.peak_flops_per_second(columns) * gpus
            return np.asarray(self.least_flops(columns) / rate)


@dataclass(frozen=True)
class Constants:
    """The measured constants of an estimator: rows of table ``step_constant``.

    Attributes
    ----------
    names
        Problem columns whose defaults are in the table; empty: nothing to calibrate.
    places
        Returns the suffixes of a constant's key for a framework and an accelerator, the most
        specific first.
    ends
        Returns the ends of a constant's range in resolved rows whose other inputs set it, else NaN.
    timed_kernels
        Kinds of files with timings of kernels that scale constants.
    independent_share
        Returns the root of the summed squares of the shares of a step that err independently. Row
        ``product_error`` of table ``interval_term`` is the error of one share.
    """

    names: tuple[str, ...] = ()
    places: Callable[[Catalog, Scalar, Scalar], tuple[str, ...]] = _everywhere
    ends: Callable[[str, Columns, Catalog], tuple[Array, Array]] = of_the_table
    timed_kernels: tuple[TimedKernels, ...] = ()
    independent_share: Callable[[Relation, Columns, Mends, Catalog], Array] = _no_share


@dataclass(frozen=True)
class Source:
    """The text and the published steps of the estimator's source.

    Attributes
    ----------
    reports
        Name of a relation -> the report that the source prints of one of its rows.
    tables
        Name -> a table that the source prints or draws.
    takes_published_steps
        Whether it evaluates the rows of tables of published steps as they are.
    """

    reports: Mapping[str, Report] = field(default_factory=dict)
    tables: Mapping[str, SourceTable] = field(default_factory=dict)
    takes_published_steps: bool = False


Cells = Callable[[], Iterable[Cell]]
"""Returns cells, at each call the same ones in the same order."""


@dataclass(frozen=True)
class IdleChoices:
    """Choices that change nothing where a degree is 1, such as a schedule without a pipeline.

    Attributes
    ----------
    neutral
        Choice -> its value in the cell that has such layouts.
    degree
        A key of the first relation.
    implied
        Other keys that are 1 wherever the degree is.
    """

    neutral: Mapping[str, Scalar]
    degree: str
    implied: tuple[str, ...] = ()

    def given(self, values: Values) -> dict[str, Scalar]:
        """Return the choices of a cell whose values are not neutral."""
        return {
            name: values[name]
            for name, neutral in self.neutral.items()
            if values.get(name) not in (None, neutral)
        }

    def neutralize(self, inputs: Inputs) -> None:
        """Give the choices their neutral values in the rows of a batch where the degree is 1."""
        rows = np.equal(inputs[self.degree], 1)
        for name, value in self.neutral.items():
            column = inputs[name]
            column[rows] = np.nan if value is None and column.dtype == np.float64 else value

    @property
    def rule(self) -> Rule:
        """The rule of a search that the degree is above 1 if a choice is not neutral."""

        def holds(values: Values) -> Array:
            return np.asarray(values[self.degree] >= (2 if self.given(values) else 1))

        def reason(row: Values) -> str:
            given = ", ".join(f"`{name}` {value}" for name, value in self.given(row).items())
            return f"is 1, where {given} changes nothing"

        return Rule(
            f"{next(iter(self.neutral))} needs {self.degree}",
            self.degree,
            (self.degree, *self.neutral),
            holds,
            reason,
            lambda _row: f"leave out {', '.join(self.neutral)}, or use more",
        )


class Estimator:
    """An analytic model and its capabilities. Instances have no state except caches.

    A subclass defines its columns, `complete`, or else `resolve`, and `figures`, or else
    `estimate`. A command refuses an estimator that lacks the capability that it needs.
    """

    name: str
    version: int
    """Raised whenever results change; views show the newest version of each cell."""

    title: str
    """The model and its source in one line."""

    precedence: int = 0
    """If several estimators have stored results for a question, the one with the highest precedence
    answers."""

    mends: tuple[str, ...] = ()
    """Ids of the errata that it can mend, in order."""

    problem_columns: tuple[str, ...]
    choice_columns: tuple[str, ...] = ()
    input_columns: tuple[str, ...] = ()
    """Other inputs, from which `resolve` derives values of the problem."""

    aliases: Mapping[str, str] = MappingProxyType({})
    """Spelling of an input in the estimator's source -> the column's name."""

    neutral_choices: Mapping[str, Scalar] = MappingProxyType({})
    """Choice -> its value in cells that were stored before the choice was added."""

    idle_choices: tuple[IdleChoices, ...] = ()
    """Choices that change nothing where a degree is 1."""

    optional_columns: tuple[str, ...] = ()
    """Problem columns and choices that a row may lack."""

    relations: tuple[Relation, ...]
    search: Search | None = None
    """The search over its layouts; None: it evaluates given configurations only."""

    shape_columns: tuple[str, ...] = ()
    """Columns of a model's shape."""

    needed_shape: tuple[str, ...] = ()
    """Those of `shape_columns` without a default: a shape needs them."""

    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType({})
    """Choice -> the values that a search of every layout takes."""

    searched_by_default: Mapping[str, tuple[Scalar, ...]] = MappingProxyType({})
    """Those of `searched_choices` that a study need not name: its search takes all values."""

    reference_files: tuple[str, ...] = ()
    """CSV files that are reference tables of a database: paths in package `estimators`."""

    step: Step = Step()
    constants: Constants = Constants()
    source: Source = Source()

    @property
    def can_plan(self) -> bool:
        """Whether it searches the layouts of a step of a model on a number of GPUs."""
        has_step = bool(self.step.parts) and "step_seconds" in self.relations[0].outputs
        has_columns = set(PLANNED) <= set(self.problem_columns)
        return self.search is not None and has_step and has_columns

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return every named predicate on problem and layout, with its hint."""
        del mends
        return ()

    def with_idle_layouts(self, mends: Mends, cells: Cells) -> Iterator[Cell]:
        """Yield cells, then cells with those of their layouts for which choices have no effect.

        A layout without a pipeline has no schedule: a search stores it once, in the cell of the
        neutral schedule. A study that names only another schedule also gets this part of the
        neutral cell. None is added if `cells` has the neutral cell, nor for choices that break a
        rule where the degree is 1, such as a text with several stages. `cells` is called several
        times: only the ids of cells are kept.
        """
        for idle in self.idle_choices:
            cells = partial(self._with_idle_parts, idle, mends, cells)
        yield from cells()

    def _with_idle_parts(self, idle: IdleChoices, mends: Mends, cells: Cells) -> Iterator[Cell]:
        known, is_idle = IdSet(), False
        for cell in cells():
            known.add(cell.id)
            is_idle = is_idle or bool(idle.given(cell.choices))
            yield cell
        for cell in cells() if is_idle else ():
            if not idle.given(cell.choices) or cell.fixed.get(idle.degree, 1) != 1:
                continue
            whole = replace(cell, choices={**cell.choices, **idle.neutral})
            part = replace(whole, fixed={**cell.fixed, idle.degree: 1})
            if whole.id in known or part.id in known:
                continue
            values = {**dict.fromkeys(self.optional_columns), **cell.values}
            values |= dict.fromkeys((idle.degree, *idle.implied), 1)
            applied = (rule for rule in self.rules(mends) if values.keys() >= {*rule.needs})
            if all(rule.is_kept(values) for rule in applied):
                known.add(part.id)
                yield part

    def consistent_choices(self, choices: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the choices of a search; one that another choice excludes is replaced."""
        return dict(choices)

    def uneven_stages(self, values: Values) -> UnevenStages | None:
        """Return how the stages of a layout differ; None where they do not, or choices say how.

        Parameters
        ----------
        values
            Scalars of one resolved configuration.
        """
        del values
        return None

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return the parameters of all layers, and the active ones; NaN where it has none.

        Parameters
        ----------
        values
            Scalars of one resolved problem; the vocabulary is not counted.
        """
        del values
        return math.nan, math.nan

    def least_step_seconds(self, cells: Sequence[Cell], catalog: Catalog) -> Array:
        """Return a lower bound of the step of every layout of each cell [s]; 0 if none is known.

        A plan leaves out cells that cannot win by it. The cells have the same mends.
        """
        del catalog
        given = [{**dict.fromkeys(self.optional_columns), **cell.values} for cell in cells]
        columns = {
            name: np.array([np.nan if row[name] is None else row[name] for row in given])
            for name in given[0]
        }
        return np.nan_to_num(self.step.least_seconds(columns))

    def complete(self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
        """Fill defaults of a batch of rows, and refuse faulty rows."""
        raise NotImplementedError(f"{self.name} has neither `complete` nor `resolve`")

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return results by name, among them all `wanted` ones that are no key; see `estimate`."""
        raise NotImplementedError(f"{self.name} has neither `figures` nor `estimate`")

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Fill defaults and check every rule.

        Parameters
        ----------
        columns
            Input columns; a missing number is NaN, a missing text None.

        Returns
        -------
        columns
            Problem, choice and key columns, complete and in dictionary dtypes. Refused rows stay
            in place; their values mean nothing.
        refusals
            Every refusal, with its row.
        """
        inputs = Inputs(columns, relation.real)
        self.complete(inputs, relation, catalog, mends)
        broken = inputs.broken[:_TRIED]
        hints = self.hints(broken, relation, columns, catalog, mends)
        for fault, hint in zip(broken, hints, strict=True):
            inputs.refusals[fault.refusal] = replace(inputs.refusals[fault.refusal], hint=hint)
        names = (*self.problem_columns, *self.choice_columns, *relation.keys)
        return inputs.finish(names, self.optional_columns), inputs.refusals

    def hints(
        self,
        broken: Sequence[Broken],
        relation: Relation,
        columns: Columns,
        catalog: Catalog,
        mends: Mends,
    ) -> list[str]:
        """Return a hint for each rule that rows of input columns break, tried on every rule."""

        def complete(changed: Columns) -> Inputs:
            inputs = Inputs(changed, relation.real, has_hints=False)
            self.complete(inputs, relation, catalog, mends)
            return inputs

        return tried_hints(broken, columns, self.rules(mends), complete) if broken else []

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
        catalog: Catalog,
    ) -> None:
        """Fill every array in `out` with the result of that name, one element a layout.

        The same kernel serves a cell (`values` holds scalars) and a batch (arrays as long as
        the layouts). `out` may name any of the relation's keys and outputs. `catalog` has the
        measured tables that a problem's values name.
        """
        figures = self.figures(relation, values, layouts, mends, out.keys(), catalog)
        for name, column in out.items():
            figure = layouts[name] if name in relation.keys else figures[name]
            if isinstance(figure, Gathered):
                figure.write(column)
            else:
                column[:] = figure

    def forget(self) -> None:
        """Free figures that `estimate` keeps of a cell for the next cells; there is no next one."""


def source_table(
    estimator: Estimator, name: str, given: Mapping[str, str], mends: Mends, evaluate: Evaluate
) -> list[TableRow]:
    """Return the rows of one of the estimator's `source.tables`.

    Parameters
    ----------
    given
        Inputs that hold in every row, as texts.
    evaluate
        Evaluates one configuration under `mends`.

    Raises
    ------
    RefusedError
        If there is no such table, if an input is an axis of the table or has no effect on it, or
        if a configuration is refused.
    """
    if name not in estimator.source.tables:
        hint = f"use {', '.join(estimator.source.tables)}"
        raise RefusedError([Refusal("table", name, f"is not a table of {estimator.name}", hint)])
    table = estimator.source.tables[name]
    keys = {key for relation in estimator.relations for key in relation.keys}
    idle = table.without_effect | table.relation.unread | (keys - {*table.relation.keys})
    refusals = [
        Refusal(key, value, "is an axis of the table", "leave it out, or leave --table out")
        for key, value in given.items()
        if key in table.axes
    ]
    refusals += [
        Refusal(key, given[key], f"has no effect on table `{name}`", "leave it out")
        for key in sorted((given.keys() & idle) - table.axes)
    ]
    if refusals:
        raise RefusedError(refusals)
    return list(table.rows(evaluate, given, mends))
